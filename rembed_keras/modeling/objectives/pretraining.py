"""Pre-training: an encoder, a head that will be dropped, and the loss that teaches both.

The loss is a mean over *predictions*: every masked token counts the same, wherever it stands and whichever replica
sees it, and padding counts nothing. Both the sum and the count are global, so a batch gives one loss whether one
device or many work on it, and whether it is taken whole or in micro-batches.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.errors import Count, UserError, check_counts
from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.encoder_task import EncoderTask
from rembed_keras.modeling.losses.row_weights import of_each
from rembed_keras.modeling.micro_batches import StepsInParts
from rembed_keras.modeling.objectives.running_means import MeanByGroup, MeanOfNumbers, numbers
from rembed_keras.modeling.replicas import layers_loss, may_add_losses, num_replicas, shares
from rembed_keras.modeling.saving.changes import OF_LAYERS, change_layers_again, config_with_encoder, parts_of
from rembed_keras.modeling.texts.feeding import Preprocessing


def _folds(changes):
    """A method of Keras's after which the encoder has what is computed of other weights, however it ends."""

    @functools.wraps(changes)
    def folded(model, *arguments, **named):
        try:
            return changes(model, *arguments, **named)
        finally:
            model.fold()

    return folded


def _of_folded(saves):
    """A method of Keras's that writes the encoder, which first has what is computed of other weights."""

    @functools.wraps(saves)
    def folded(model, *arguments, **named):
        model.fold()
        return saves(model, *arguments, **named)

    return folded


class PretrainingModel(StepsInParts, EncoderTask):
    """An encoder, whatever is dropped after pre-training, and their loss: what all objectives have in common.

    An objective is a subclass, ours or your own. It brings:

    * `loss_of(x, y, y_pred, sample_weight)`: this replica's and micro-batch's share of the loss of the whole batch.
    * `shares_of(x, y, sample_weight)`: what each prediction counts in that loss, of the batch before it is cut.
    * `update_metrics(x, y, y_pred, sample_weight)`: its running means, which are logged by their names; and
      `loss_result()`, what they make of the loss. Rows that only fill a batch must count nothing: means over rows
      take `x["row_weights"]` and, in the loss, `x["row_shares"]`, float32 [B], which are there for all objectives.
    * `ledger_entries(config, sequence_length, mask_rate)`, a static method: what it costs, see `modeling.cost`.
    * `nats_of(logs)`: the nats per masked token among its logs, which pre-training reports at its end.
    * `trained(variables)`: which variables the loss can move; all but the pooler's by default.
    * `droppable_variables`: what is dropped after pre-training; all that is not the encoder's by default.
    * `folded_variables` and `fold()`: the encoder's that are computed of others after `fit` and `load_weights` and
      before anything saves or reads them; none by default.

    `drop_heads`, micro-batches, replicas, losses that layers add, metrics that a user compiles, presets and checkpoints
    then work. An objective names the `teachers` that it asks, and may refuse them in `check_teachers()`. Losses that
    layers add are taken to be means over rows; where one may be, logs have their mean a step as `layer_losses`.

    Args:
        encoder: an `Encoder`; what is kept.
        inputs: the model's symbolic inputs, a dict.
        outputs: its symbolic outputs.
        arguments: what the model is made with besides the encoder, for `get_config`.
        name: the model's name.
        micro_batches: how many parts of a batch are trained on one after the other before the optimizer steps.
    """

    ledger_entries: Callable[[Config, int, float], list[Entry]]
    preprocessor_cls = Preprocessing("MaskedLMPreprocessor")
    takes_metrics = True  # that a user compiles, of logits
    heads_of: Sequence[str] = ()  # registered names of other objectives whose heads it can start from
    fit, load_weights = map(_folds, (EncoderTask.fit, EncoderTask.load_weights))
    save, save_weights, save_to_preset = map(
        _of_folded, (EncoderTask.save, EncoderTask.save_weights, EncoderTask.save_to_preset)
    )

    def __init__(
        self,
        encoder: Encoder,
        inputs: Mapping[str, keras.KerasTensor],
        outputs: Any,
        arguments: dict[str, Any],
        name: str,
        micro_batches: Count = 1,
    ):
        check_counts({"micro_batches": micro_batches})
        super().__init__(encoder, inputs, outputs, name)
        self._arguments = arguments | {"micro_batches": micro_batches}
        self.micro_batches = micro_batches
        self.computes_metrics = False  # that a user compiled, which need logits
        self.compiles_gradients = False  # by XLA, of a step that is not compiled as a whole
        self.loss_mean = MeanOfNumbers(name="loss")
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.loss_by_group: MeanByGroup | None = None
        self.layer_losses: MeanOfNumbers | None = None

    def drop_heads(self, num_layers: int | None = None, keep: str | None = None) -> Encoder:
        """The encoder without the head: the part to fine-tune.

        Args:
            num_layers: how many blocks to keep; the model's `kept_layers` by default.
            keep: which; the model's `keep` by default.

        Returns:
            An `Encoder` with the same weights, not a copy; its outputs are bit-identical to those before.

        Raises:
            ValueError: for a cut that cannot be made; see `layers_of_cut`.
        """
        self.fold()
        num_layers = self._arguments.get("kept_layers") if num_layers is None else num_layers
        if num_layers is None:
            return self.encoder
        return self.encoder.with_layers(num_layers, keep or self._arguments.get("keep", "bottom"))

    @property
    def droppable_variables(self) -> list:
        """The weights that are dropped after pre-training."""
        kept = {*map(id, self.encoder.weights)}
        return [weight for weight in self.weights if id(weight) not in kept]

    @property
    def folded_variables(self) -> list:
        """The encoder's variables that `fold` computes and no step trains."""
        return []

    def fold(self) -> None:
        """Computes the `folded_variables` from what training moved."""

    @property
    def teachers(self) -> Sequence[Any]:
        return ()  # see `adaptation.teachers`

    def check_teachers(self) -> None:
        """Raises a UserError for open teachers that the model cannot learn from; asked once, before training."""

    def nats_of(self, logs: Mapping[str, float]) -> float | None:
        """The nats per masked token that logs have; None for an objective that predicts no masked tokens."""
        return logs["loss"] - logs.get("layer_losses", 0.0) - logs.get("term_losses", 0.0)

    def track_groups(self, groups) -> None:
        """Also logs the loss of each group of rows, as `loss/<group>`; rows say theirs in `language_ids` int [B]."""
        self.loss_by_group = MeanByGroup(groups, prefix="loss/", name="loss_by_group")

    @property
    def trainable_variables(self):
        """All trainable variables that the loss can move."""
        return self.trained(super().trainable_variables)

    @property
    def trainable_weights(self):
        """As `trainable_variables`."""
        return self.trained(super().trainable_weights)

    def trained(self, variables: list) -> list:
        """Those of `variables` that the loss can move: not the pooler's, which no objective reads."""
        folded = {id(variable) for variable in self.folded_variables}
        return [each for each in self.encoder.without_pooler(variables) if id(each) not in folded]

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: None = None,
        loss_weights: None = None,
        metrics: list | None = None,
        weighted_metrics: list | None = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Keras's, with the model's own loss.

        Args:
            optimizer: as in Keras.
            loss: must be left out.
            loss_weights: must be left out.
            metrics: of logits [B, P, V] and ids [B, P], empty slots included; logs say the model's own `loss` and
                `accuracy` under these names. They cost the logits of a whole micro-batch, P x V float32 numbers a row,
                and one product more; without them only a chunk of the logits exists at a time.
            weighted_metrics: the same, weighted by `sample_weight`, which leaves empty slots out.
            run_eagerly: as in Keras.
            steps_per_execution: as in Keras.
            jit_compile: as in Keras; under a strategy of TensorFlow's True compiles what a replica computes by itself.
            auto_scale_loss: as in Keras.

        Raises:
            UserError: for a loss, or metrics of a model that takes none.
        """
        if loss is not None or loss_weights is not None:
            raise UserError(f"{type(self).__name__} brings its own loss: leave loss and loss_weights out of compile")
        if (metrics or weighted_metrics) and not self.takes_metrics:
            raise UserError(f"{type(self).__name__} has metrics of its own: leave them out of compile")
        if self.layer_losses is None and any(map(may_add_losses, compat.layers_of(self, include_self=False))):
            self.layer_losses = MeanOfNumbers(name="layer_losses")
        self.computes_metrics = bool(metrics or weighted_metrics)
        self.unweighted_metrics = len(keras.tree.flatten(metrics or []))
        self.compiles_gradients = jit_compile is True and self.has_replicas and not (run_eagerly or self.terms)
        super().compile(
            optimizer=optimizer,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution,
            jit_compile=self.whole_step(jit_compile),
            auto_scale_loss=auto_scale_loss,
        )

    def call(self, inputs, training=None, mask=None):
        return super().call({key: inputs[key] for key in self.input}, training=training, mask=mask)

    def shares_of(self, x, y, sample_weight) -> dict:
        """Inputs that the loss needs of a whole batch before it is cut into micro-batches, each [B, ...].

        Here what predictions weigh and their shares in the loss of all replicas: "target_weights" and "target_shares",
        float32 [B, P], of ids `y` [B, P]. The inputs have those of rows already.
        """
        weights = ops.ones(ops.shape(y), "float32")
        weights = weights if sample_weight is None else of_each(sample_weight, weights)
        return {"target_weights": weights, "target_shares": shares(weights)}

    def loss_of(self, x, y, y_pred, sample_weight):
        """The objective's loss, a scalar: the share that this part of the batch has in that of the whole."""
        raise NotImplementedError

    def update_metrics(self, x, y, y_pred, sample_weight) -> None:
        """Adds a batch to the running means."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The objective's loss, and what layers and terms add to it, over all replicas."""
        x = self._with_shares(x, y, sample_weight)
        loss = self.loss_of(x, y, y_pred, sample_weight)
        added = layers_loss(self)
        if self.layer_losses is not None:
            self.layer_losses.update_state(added, ops.ones(()))
        loss = loss + added * ops.max(x["micro_batch_shares"]) / num_replicas()
        return loss + self.terms_loss(x, y, y_pred, sample_weight) if training and self.terms else loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        self.update_metrics(self._with_shares(x, y, sample_weight), y, y_pred, sample_weight)
        if self.computes_metrics:
            super().compute_metrics(x, y, y_pred["logits"] if isinstance(y_pred, dict) else y_pred, sample_weight)
        return self.get_metrics_result()

    def track(self, losses, hits, weights, language_ids):
        """Adds losses and hits, weighted, all [B, N], of rows in languages int [B] to the metrics."""
        self.loss_mean.update_state(losses, weights)
        losses, weights = numbers(losses, weights)
        self.accuracy.update_state(hits, weights)
        if self.loss_by_group is not None:
            self.loss_by_group.update_rows(losses, language_ids, weights)

    def get_metrics_result(self):
        # Keras's own tracker of the loss averages over rows; ours, over predictions, takes its place
        added = 0.0 if self.layer_losses is None else self.layer_losses.result()
        terms = {"term_losses": self.terms_result()} if self.logs_terms else {}
        return self.own_logs() | terms | {"loss": self.loss_result() + added + sum(terms.values())}

    def own_logs(self) -> dict:
        """Logs of all metrics, by their names."""
        return super().get_metrics_result()

    def loss_result(self):
        """The running mean of `loss_of`, over predictions."""
        return self.loss_mean.result()

    def get_config(self):
        return {"name": self.name} | self._arguments | config_with_encoder(self)

    @classmethod
    def from_config(cls, config):
        arguments = {key: value for key, value in config.items() if key not in OF_LAYERS}
        model = cls(**(arguments | parts_of(config)))
        change_layers_again(model, config)
        return model


def encoder_of(model) -> Encoder:
    """The encoder of a model that pre-trains one; an `Encoder` itself."""
    return model.encoder if isinstance(model, PretrainingModel) else model


def kept_encoder(model) -> Encoder:
    """What pre-training keeps of a model, its heads and the blocks that it drops left out; an `Encoder` itself."""
    return model.drop_heads() if isinstance(model, PretrainingModel) else model
