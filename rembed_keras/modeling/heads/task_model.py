"""Task models: an encoder with one dense head, as in BERT, that brings its own loss.

Heads are swapped, the encoder is kept.
"""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.errors import UserError, check_counts, shortened
from rembed_keras.modeling.encoder_task import EncoderTask
from rembed_keras.modeling.heads.given_losses import suited, takes_probabilities
from rembed_keras.modeling.layers.adapters import hosted_by, quantized_weights
from rembed_keras.modeling.layers.draws import Dropout
from rembed_keras.modeling.layers.rows import check_shape
from rembed_keras.modeling.layers.sublayer import move_hosted
from rembed_keras.modeling.layers.tables import initializer
from rembed_keras.modeling.losses.row_weights import beside_outputs, counted, of_each
from rembed_keras.modeling.losses.softmax import cross_entropies, symmetric_divergence
from rembed_keras.modeling.replicas import layers_loss, num_replicas, sum_over_replicas, weighted_mean
from rembed_keras.modeling.saving.changes import OF_LAYERS, change_layers_again, config_with_encoder, parts_of
from rembed_keras.modeling.saving.configuration import made
from rembed_keras.modeling.saving.naming import sublayers_of


class TaskModel(EncoderTask):
    """An encoder with one dense head: what the four task models below have in common.

    A subclass says which of the encoder's outputs its head reads. The loss is the model's own, cross-entropy unless a
    subclass says otherwise, so `model.compile("adam")` suffices; a loss given to `compile` takes its place.

    Args:
        encoder: an `Encoder`; the task model holds it, so its weights are trained along.
        units: width of the head.
        dropout: rate before the head, while training.
        name: the model's name.
    """

    needs_labels = True
    reads = "pooled_output"
    own_metrics: tuple[str, ...] = ("accuracy",)  # that `compile` adds where a user names none
    labels_are = "a number for each prediction"

    def __init__(self, encoder, units, dropout, name):
        check_counts({f"{name}: the number of outputs": units})
        check_counts({f"{name}: dropout": dropout}, "BelowOne")
        head = keras.layers.Dense(units, kernel_initializer=initializer(), name="head", dtype="float32")
        hidden = self.pool(encoder(encoder.input)[self.reads], encoder.input)
        hidden = Dropout(dropout, name="dropout", dtype="float32")(hidden)
        super().__init__(encoder, encoder.input, self.arrange(head(hidden), encoder.input), name)
        self.head = head
        # in logs it takes the place of Keras's, which comes before it, counts rows whatever their predictions weigh,
        # and takes a replica's share of the loss for a mean over the rows that it holds
        self.loss_mean = keras.metrics.Mean(name="loss")
        self.methods: list = []  # of fine-tuning, that `adapt` applied
        self.added: frozenset[int] = frozenset()  # ids of the layers that they added
        self.start: dict | None = None  # where weights are that its checkpoints leave out, see `training.loop.starting`
        self._settings = {"dropout": dropout, "name": name}

    @property
    def trainable_variables(self):
        """All trainable variables, the pooler's only where the head reads it."""
        variables = super().trainable_variables
        return variables if self.reads == "pooled_output" else self.encoder.without_pooler(variables)

    @property
    def trainable_weights(self):
        """As `trainable_variables`."""
        weights = super().trainable_weights
        return weights if self.reads == "pooled_output" else self.encoder.without_pooler(weights)

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: list | None = None,
        weighted_metrics: list | None = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Keras's; without metrics the accuracy of weighted predictions is reported, where there is one.

        Args:
            optimizer: as in Keras.
            loss: as in Keras; the model's own by default.
            loss_weights: as in Keras, of a loss that is given.
            metrics: as in Keras; [] for none.
            weighted_metrics: as in Keras.
            run_eagerly: as in Keras.
            steps_per_execution: as in Keras.
            jit_compile: as in Keras; under a strategy of TensorFlow's nothing is compiled.
            auto_scale_loss: as in Keras.

        Raises:
            UserError: for `loss_weights` without a loss.
        """
        if loss is None and loss_weights is not None:
            raise UserError(f"{type(self).__name__} brings its own loss: give loss_weights beside a loss of yours")
        if any(map(takes_probabilities, keras.tree.flatten(loss))):
            warnings.warn(
                f"{type(self).__name__} gives logits, which this loss takes for probabilities: leave loss out, or give "
                "one of from_logits=True",
                stacklevel=2,
            )
        if metrics is None and weighted_metrics is None:
            weighted_metrics = suited(self.own_metrics, loss)
        self.unweighted_metrics = len(keras.tree.flatten(metrics or []))
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution,
            jit_compile=self.whole_step(jit_compile),
            auto_scale_loss=auto_scale_loss,
        )

    def note_labels(self, step: str, *labels: Any) -> None:
        """Makes the metrics too; see `build_metrics`."""
        super().note_labels(step, *labels)
        self.build_metrics(labels[0])

    def make_train_function(self, force=False):
        """Keras's; an optimizer that takes no learning rates by layer, which a method gives, is warned of."""
        if self.train_function is None and not hasattr(self.optimizer, "multipliers"):
            for method in self.methods:
                if hasattr(method, "multipliers") and method.multipliers(self):
                    warnings.warn(
                        f"{method!r} gives layers learning rates of their own, which this optimizer does not take: "
                        "compile a TrainingOptimizer, of multipliers=learning_rate_multipliers(model, model.methods)",
                        stacklevel=2,
                    )
        return super().make_train_function(force)

    def build_metrics(self, y: Any) -> None:
        """Makes the variables of compiled metrics; TensorFlow would trace a step that makes them a second time.

        Args:
            y: labels; nothing is made for those that are no array, as where a data set brings them.
        """
        if self.makes_variables_in_steps and hasattr(y, "shape"):
            compat.build_metrics(self, self.compared(y), self.compared(self.output))

    def pool(self, output, inputs):
        """What the head reads, of the encoder's output that is named by `reads`; all of it unless a subclass pools."""
        return output

    def arrange(self, scores, inputs):
        """The head's scores in the shape that the task wants; as they come unless a subclass says otherwise."""
        return scores

    def compared(self, values):
        """Labels or outputs as losses and metrics of Keras's compare them; a subclass may have them otherwise."""
        return values

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Keras's, of what is `compared`; in weighted metrics labels that weigh nothing may be none, as NaN or -100.

        `unweighted_metrics` says how many of the compiled metrics, the first ones, are without weights.
        """
        y, y_pred = self.compared(y), self.compared(y_pred)
        if sample_weight is None:
            return super().compute_metrics(x, y, y_pred)
        compat.build_metrics(self, y, y_pred)
        metrics = [metric for each in self.metrics for metric in getattr(each, "metrics", [])]
        for metric in metrics[: self.unweighted_metrics]:
            metric.update_state(y, y_pred)
        for metric in metrics[self.unweighted_metrics :]:
            metric.update_state(counted(y, sample_weight), y_pred, sample_weight=sample_weight)
        return self.get_metrics_result()

    def losses_of(self, y, y_pred):
        """The loss of every single prediction; cross-entropy of logits unless a subclass says otherwise."""
        return cross_entropies(y, y_pred)

    @property
    def learns_classes(self) -> bool:
        """Whether labels are numbers of classes: another loss may be of other labels."""
        return type(self).losses_of is TaskModel.losses_of and getattr(self, "loss", None) is None

    def check_labels(self, x, y, sample_weight):
        """See `TakesTexts`; labels of another shape than predictions have, as one-hot labels, are refused too."""
        if not self.learns_classes:
            return
        super().check_labels(x, y, sample_weight)
        length = x["token_ids"].shape[1] if has_rows(x) else None
        wanted = [length if size is None else size for size in self.output.shape[1:-1]]  # [B, ..., classes] -> [...]
        check_shape(y, wanted, self.labels_are)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Mean loss of the weighted predictions of all replicas, and what layers and terms add to it."""
        if self.loss is not None:
            labels, outputs = self.compared(counted(y, sample_weight)), self.compared(y_pred)
            loss = super().compute_loss(x, labels, outputs, beside_outputs(sample_weight, outputs), training)
            weight = ops.cast(ops.shape(y_pred)[0], "float32")  # of a replica, as in Keras
        else:
            losses = self.losses_of(counted(y, sample_weight), y_pred)
            weights = ops.ones_like(losses) if sample_weight is None else of_each(sample_weight, losses)
            loss = weighted_mean(losses, weights) + layers_loss(self) / num_replicas()
            weight = sum_over_replicas(ops.sum(weights)) / num_replicas()
        loss = loss + self.terms_loss(x, y, y_pred, sample_weight) if training and self.terms else loss
        self.loss_mean.update_state(loss * num_replicas(), weight)
        return loss

    def symmetric_divergence(self, outputs, others):
        """How far two outputs of the same rows are apart: the mean of both Kullback-Leibler divergences, in nats.

        Args:
            outputs: logits [..., N].
            others: the same, of another pass.

        Returns:
            float32 [...], as the targets are.
        """
        return symmetric_divergence(outputs, others)

    def adapt(self, methods, is_read: bool = False) -> None:
        """Applies fine-tuning methods, each of which says what of the encoder is trained; see `adaptation.tune`.

        Args:
            methods: the methods.
            is_read: whether the model is read from a file: its weights follow.

        Raises:
            UserError: for what is no method, one that does not suit the encoder or names what is no variable of the
                model, or a model that has methods.
        """
        for method in methods:
            if isinstance(method, type) or not hasattr(method, "apply"):
                raise UserError(f"{method!r} is no fine-tuning method; in a recipe it ends in (), as @methods.Biases()")
        if self.methods:
            raise UserError("this model has fine-tuning methods: give all methods at once")
        self.methods = [*methods]
        others = {id(layer) for layer in hosted_by(self.encoder)}  # of another task that has the same encoder
        trained = {id(variable) for method in methods for variable in self._trained_by(method, is_read)}
        self.added = frozenset(id(layer) for layer in hosted_by(self.encoder)) - others
        frozen = {id(weight) for weight in quantized_weights(self.encoder)}
        if self.encoder.arguments["freeze_input_embedding"]:
            frozen |= {id(weight) for weight in self.encoder.token_embedding.weights}
        chooses = any(method.chooses for method in methods)
        for weight in self.encoder.weights:
            if chooses or id(weight) in trained:
                weight.trainable = id(weight) in trained - frozen

    def _trained_by(self, method, is_read):
        """The variables that a method, which is applied, says are trained."""
        change = getattr(method, "restore", method.apply) if is_read else method.apply
        given = change(self)
        variables = [*given] if isinstance(given, Iterable) else [given]
        known = {id(variable) for variable in self.variables}
        if not all(id(each) in known for each in variables):
            raise UserError(
                f"{type(method).__name__}.apply gives {shortened(given)}; it must be a list of variables of the model"
            )
        return variables

    def get_config(self):
        methods = [keras.saving.serialize_keras_object(method) for method in self.methods]
        return self._settings | config_with_encoder(self, self.added, bool(self.methods)) | {"methods": methods}

    @classmethod
    def from_config(cls, config):
        arguments = {key: value for key, value in config.items() if key not in ("methods", "ways", *OF_LAYERS)}
        model = cls(**(arguments | parts_of(config)))
        methods = config.get("methods") or config.get("ways", ())  # as version 0.1 called them
        model.adapt([made(method, object) for method in methods], is_read=True)
        if isinstance(config["encoder"], dict):
            _move_again(model.encoder, config["encoder"]["config"].get("hosted", []))
        change_layers_again(model, config)
        return model


def has_rows(x) -> bool:
    """Whether these are inputs whose rows are of a known length."""
    return isinstance(x, Mapping) and len(getattr(x.get("token_ids"), "shape", ())) > 1


def _move_again(encoder, hosted):
    """Puts what another task added to an encoder after what this one did where it stood: changes take their turns."""
    for each in hosted:
        if isinstance(each.get("at"), int):
            sublayers = {sublayer.name: sublayer for sublayer in sublayers_of(encoder.parts.blocks[each["block"]])}
            move_hosted(sublayers[each["sublayer"]], each["place"], each["layer"]["config"]["name"], each["at"])
