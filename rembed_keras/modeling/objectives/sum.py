"""Several objectives on one encoder, trained at once: their losses are added, with weights that may change by step.

Each objective keeps its own head, loss and logs, and none knows of the others: they are models side by side that read
the same inputs, so whatever one does to save memory it does in a sum too.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence

import keras
from keras import ops

from rembed_keras.errors import Count, CountOrZero, Rate, UserError, shortened
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.losses.terms import TAKEN
from rembed_keras.modeling.losses.weights import weight_at
from rembed_keras.modeling.objectives.masked_tokens import with_mask_positions
from rembed_keras.modeling.objectives.pretraining import PretrainingModel
from rembed_keras.modeling.objectives.sum_cost import UNSHARED, check_objectives, check_weights, sum_entries
from rembed_keras.modeling.saving.changes import OF_LAYERS
from rembed_keras.modeling.saving.configuration import check_names, class_named

OURS = ("encoder", "preprocessor", *OF_LAYERS)  # what the configuration of a sum says once for all of its objectives


@keras.saving.register_keras_serializable(package="rembed_keras")
class Sum(PretrainingModel):
    """Trains several objectives on one encoder at once.

    Args:
        encoder: an `Encoder`; what is kept.
        objectives: what makes each objective of an encoder: classes, functions, or configurations as `get_config` gives
            them.
        weights: of each loss: a number, or numbers by the step from which they hold, the first from 0; 1 by default. In
            evaluation the last of them holds.
        micro_batches: as in `MaskedLM`.
        name: the model's name.

    Inputs and targets as `MaskedLM`'s; outputs a dict of the objectives' outputs, by their names. Logs have `loss`, the
    weighted sum; `accuracy`, that of the first objective which has one; and of each objective `<name>/weight` and its
    own logs, as `<name>/loss` and, of a language, `<name>/loss/<language>`.

    Raises:
        UserError: for no objectives, two of one name, weights that are not one for each, or an objective that cannot
            share its encoder or cuts it, or has micro-batches of its own.

    >>> from rembed_keras.modeling import Encoder, MaskedLM, ReplacedTokenDetection
    >>> encoder = Encoder(100, num_layers=2, num_heads=4, hidden_dim=16, intermediate_dim=16, input_embedding_dim=4)
    >>> both = [lambda each: MaskedLM(each, 8), lambda each: ReplacedTokenDetection(each, 8, generator_layers=1)]
    >>> model = Sum(encoder, both, weights=[1.0, {0: 0.1, 1000: 1.0}])
    >>> [objective.name for objective in model.objectives], model.drop_heads() is encoder
    (['masked_lm', 'replaced_token_detection'], True)
    """

    ledger_entries = staticmethod(sum_entries)
    takes_metrics = False  # there are several outputs

    def __init__(
        self,
        encoder: Encoder,
        objectives: Sequence[Callable | Mapping],
        weights: Sequence[Rate | Mapping[CountOrZero, Rate]] | None = None,
        micro_batches: Count = 1,
        name: str = "sum",
    ):
        self.schedules = check_weights(objectives, weights)
        given = [1.0] * len(objectives) if weights is None else weights
        self.objectives = []
        for i, objective in enumerate(objectives):
            with keras.name_scope(f"objective_{i}"):  # files of checkpoints tell their variables apart by path
                self.objectives.append(_made(objective, encoder))
        _check(self.objectives, encoder)
        read = {key for each in self.objectives for key in each.input}
        inputs = {key: given for key, given in with_mask_positions(encoder.input).items() if key in read}
        outputs = {each.name: each({key: inputs[key] for key in each.input}) for each in self.objectives}
        arguments = {
            "objectives": [_config_of(each) for each in self.objectives],
            "weights": [_as_json(weight) for weight in given],
        }
        super().__init__(encoder, inputs, outputs, arguments, name, micro_batches)
        self.reads_rows = any(each.reads_rows for each in self.objectives)
        self.weight_means = [keras.metrics.Mean(name=f"{each.name}/weight") for each in self.objectives]

    @property
    def teachers(self):
        """Those of all objectives."""
        return [teacher for each in self.objectives for teacher in each.teachers]

    def check_teachers(self) -> None:
        for each in self.objectives:
            each.check_teachers()

    @property
    def metrics(self):
        """Keras leaves those of models in a model aside."""
        return [*super().metrics, *(metric for each in self.objectives for metric in each.metrics)]

    @property
    def names_of_logs(self) -> set[str]:
        """Those of the objectives stand under their names."""
        return {*TAKEN, *(f"{each.name}/{log}" for each in self.objectives for log in ("weight", *each.names_of_logs))}

    def trained(self, variables: list) -> list:
        """Those of `variables` that the loss of any objective can move."""
        moved = {id(variable) for each in self.objectives for variable in each.trainable_variables}
        return [variable for variable in variables if id(variable) in moved]

    def nats_of(self, logs: Mapping[str, float]) -> float | None:
        """The first objective's that has them."""
        for each in self.objectives:
            own = {key.removeprefix(f"{each.name}/"): logs[key] for key in logs if key.startswith(f"{each.name}/")}
            with contextlib.suppress(KeyError):  # of a language, as of one that logs no nats of languages
                if (nats := each.nats_of(own)) is not None:
                    return nats
        return None

    def known_labels(self, x):
        return next((known for each in self.objectives if (known := each.known_labels(x)) is not None), None)

    def track_groups(self, groups) -> None:
        for each in self.objectives:
            each.track_groups(groups)

    def call(self, inputs, training=None, mask=None):
        return {each.name: each(_own_inputs(inputs, each), training=training) for each in self.objectives}

    def step_numbers(self, training: bool) -> dict:
        """As others', and the weight of each objective."""
        step = self.optimizer.iterations if training else None
        weights = {
            each.name: weight_at(rates, step) for each, rates in zip(self.objectives, self.schedules, strict=True)
        }
        return super().step_numbers(training) | {f"{name}/weight": weight for name, weight in weights.items()}

    def shares_of(self, x, y, sample_weight):
        """Those of predictions, which loss terms take, and each objective's under its name: its weights may differ."""
        own = {each.name: each.shares_of(x, y, sample_weight) for each in self.objectives}
        named = {f"{name}/{key}": tensor for name, tensors in own.items() for key, tensor in tensors.items()}
        return super().shares_of(x, y, sample_weight) | named

    def loss_of(self, x, y, y_pred, sample_weight):
        """The weighted sum of the objectives' losses."""
        loss = ops.zeros((), "float32")
        for each in self.objectives:
            weight = ops.max(x[f"{each.name}/weight"])
            loss = loss + weight * each.loss_of(_own_inputs(x, each), y, y_pred[each.name], sample_weight)
        return loss

    def update_metrics(self, x, y, y_pred, sample_weight):
        for each, mean in zip(self.objectives, self.weight_means, strict=True):
            each.update_metrics(_own_inputs(x, each), y, y_pred[each.name], sample_weight)
            mean.update_state(ops.max(x[f"{each.name}/weight"]))

    def get_metrics_result(self):
        own = {f"{each.name}/{key}": log for each in self.objectives for key, log in each.get_metrics_result().items()}
        hits = [own[key] for each in self.objectives if (key := f"{each.name}/accuracy") in own]
        return super().get_metrics_result() | own | ({"accuracy": hits[0]} if hits else {})

    def own_logs(self):
        """Keras's, without those of the objectives, which would stand under names of the sum's, such as `loss/de`."""
        unused = (self.loss_mean, self.accuracy)
        own = [metric for metric in super().metrics if not any(metric is each for each in unused)]
        logs = {metric.name: log for metric in own if not isinstance(log := metric.result(), dict)}
        return self.without_idle_terms(logs)

    def loss_result(self):
        return sum(
            mean.result() * each.loss_result() for each, mean in zip(self.objectives, self.weight_means, strict=True)
        )


def _own_inputs(inputs, objective):
    """Inputs in which what an objective said of a batch, see `shares_of`, has the names that it gave it."""
    prefix = f"{objective.name}/"
    return {**inputs, **{key.removeprefix(prefix): inputs[key] for key in inputs if key.startswith(prefix)}}


def _class_of(config):
    check_names(config)
    name, kind = config.get("class_name"), class_named(config)
    if not (isinstance(kind, type) and issubclass(kind, PretrainingModel)):
        raise UserError(f"a configuration of Sum names {shortened(name)}, which is no objective")
    return kind


def _made(objective, encoder):
    if isinstance(objective, Mapping):
        return _class_of(objective)(encoder, **_own(objective["config"]))
    return objective(encoder)


def _check(objectives, encoder):
    """Refuses objectives that cannot be trained together."""
    for each in objectives:
        if not isinstance(each, PretrainingModel) or isinstance(each, Sum) or each.encoder is not encoder:
            raise UserError(f"Sum was given {type(each).__name__} as an objective, which is none of its encoder")
        if each.folded_variables:
            raise UserError(UNSHARED.format(each.name))
    check_objectives([each.name for each in objectives], [each.get_config() for each in objectives])


def _own(config):
    """What a configuration of an objective says of it alone."""
    return {key: value for key, value in config.items() if key not in OURS}


def _config_of(objective):
    """An objective as a configuration says it, without what it shares."""
    kind = type(objective)
    return {
        "module": kind.__module__,
        "class_name": kind.__name__,
        "config": _own(objective.get_config()),
        "registered_name": keras.saving.get_registered_name(kind),
    }


def _as_json(weight):
    """A weight as a configuration says it: JSON's keys are text."""
    return {str(step): rate for step, rate in weight.items()} if isinstance(weight, Mapping) else weight
