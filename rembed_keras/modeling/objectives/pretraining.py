"""Pre-training: an encoder, a head that will be dropped, and the loss that teaches both.

The loss is a mean over *predictions*: every masked token counts the same, wherever it stands and whichever replica
sees it, and padding counts nothing. Both the sum and the count are global, so a batch gives one loss whether one
device or many work on it.
"""

import keras
from keras import ops

from rembed_keras.errors import check_counts
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.encoder_task import EncoderTask
from rembed_keras.modeling.objectives.masked_lm_head import MaskedLMHead
from rembed_keras.modeling.objectives.micro_batches import step_in_parts
from rembed_keras.modeling.objectives.running_means import MeanByGroup, MeanOfNumbers, numbers
from rembed_keras.modeling.replicas import sum_over_replicas, weighted_mean
from rembed_keras.modeling.saving.changes import config_with_encoder, quantize_again
from rembed_keras.modeling.saving.configuration import made


class PretrainingModel(EncoderTask):
    """An encoder, whatever is dropped after pre-training, and their loss: what all objectives have in common.

    A subclass brings the loss and its metrics.

    Args:
        encoder: an `Encoder`; what is kept.
        inputs: the model's symbolic inputs, a dict.
        outputs: its symbolic outputs.
        arguments: what the model is made with besides the encoder, for `get_config`.
        name: the model's name.
    """

    def __init__(self, encoder, inputs, outputs, arguments, name):
        super().__init__(encoder, inputs, outputs, name)
        self._arguments = arguments
        self.loss_mean = MeanOfNumbers(name="loss")
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.loss_by_group = None

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
        num_layers = self._arguments.get("kept_layers") if num_layers is None else num_layers
        if num_layers is None:
            return self.encoder
        return self.encoder.with_layers(num_layers, keep or self._arguments.get("keep", "bottom"))

    def track_groups(self, groups) -> None:
        """Also logs the loss of each group of rows, as `loss/<group>`; rows say theirs in `language_ids` int [B]."""
        self.loss_by_group = MeanByGroup(groups, prefix="loss/", name="loss_by_group")

    @property
    def trainable_variables(self):
        """All trainable variables that the loss can move."""
        return self.movable(super().trainable_variables)

    @property
    def trainable_weights(self):
        """As `trainable_variables`."""
        return self.movable(super().trainable_weights)

    def movable(self, variables: list) -> list:
        """Those of `variables` that the loss can move: not the pooler's, which nothing here reads."""
        return self.encoder.without_pooler(variables)

    def call(self, inputs, training=None, mask=None):
        return super().call({key: inputs[key] for key in self.input}, training=training, mask=mask)

    def track(self, losses, hits, weights, language_ids):
        """Adds losses and hits, weighted, all [B, N], of rows in languages int [B] to the metrics."""
        losses, weights = numbers(losses, weights)
        self.loss_mean.update_state(losses, weights)
        self.accuracy.update_state(hits, weights)
        if self.loss_by_group is not None:
            rows = ops.sum(weights, axis=1)
            by_row = ops.divide_no_nan(ops.sum(losses * weights, axis=1), rows)
            self.loss_by_group.update_state(by_row, language_ids, rows)

    def get_metrics_result(self):
        # Keras's own tracker of the loss averages over rows; ours, over predictions, takes its place
        return super().get_metrics_result() | {"loss": self.loss_mean.result()}

    def get_config(self):
        return {"name": self.name} | self._arguments | config_with_encoder(self)

    @classmethod
    def from_config(cls, config):
        arguments = {key: value for key, value in config.items() if key != "quantized"}
        model = cls(**(arguments | {"encoder": made(config["encoder"], Encoder)}))
        quantize_again(model, config.get("quantized", {}))
        return model


class WordPrediction(PretrainingModel):
    """What objectives have in common whose loss is that of the hidden words; their outputs are logits [B, P, V].

    `fit` and `evaluate` never make these outputs: they hand the words to the model, which then gives losses instead, a
    chunk of predictions at a time; see `vocabulary_losses`.

    Args:
        encoder: an `Encoder`; what is kept.
        head: a `MaskedLMHead`.
        inputs: the model's symbolic inputs, with `mask_positions`.
        hidden: the hidden states [B, S, D], symbolic, that the head picks from.
        loss_chunk: how many predictions are scored at a time in training.
        micro_batches: how many parts of a batch are trained on one after the other before the optimizer steps.
        arguments: what the model is made with besides, for `get_config`.
        name: the model's name.
    """

    def __init__(self, encoder, head, inputs, hidden, loss_chunk, micro_batches, arguments, name):
        counts = {"loss_chunk": loss_chunk, "micro_batches": micro_batches}
        check_counts(counts)
        logits = head(hidden, inputs["mask_positions"])
        super().__init__(encoder, inputs, logits, arguments | counts, name)
        self.head = head
        self.loss_chunk = loss_chunk
        self.micro_batches = micro_batches

    def hidden_at_predictions(self, inputs, training=None):
        """Hidden states [B, P, D] that the head sees, of the predicted tokens alone."""
        raise NotImplementedError

    def train_step(self, *args):
        """Keras's, with the words in the inputs; JAX hands over its state first."""
        args = (*args[:-1], _with_targets(args[-1], self._loss_scale(*args[:-1])))
        if self.micro_batches > 1:
            return self.told(step_in_parts(self, self.micro_batches, *args))
        return super().train_step(*args)

    def _loss_scale(self, *state):
        """What the optimizer multiplies the loss by, of JAX's state if there is one; 1 where it does not."""
        if not state:
            return self.optimizer.scale_loss(ops.ones(()))
        ((_, _, values, _),) = state
        with keras.StatelessScope(state_mapping=list(zip(self.optimizer.variables, values, strict=True))):
            return self.optimizer.scale_loss(ops.ones(()))

    def test_step(self, *args):
        """As `train_step`."""
        return super().test_step(*args[:-1], _with_targets(args[-1], 1.0))

    def call(self, inputs, training=None, mask=None):
        if "targets" not in inputs:
            return super().call(inputs, training=training, mask=mask)
        features = self.head.features(self.hidden_at_predictions(inputs, training))  # [B, P, E_out]
        words, scale = (inputs["targets"], inputs["target_shares"]), ops.max(inputs.get("loss_scales", 1.0))
        loss, losses, hits = self.head.output_embedding.losses(features, *words, self.loss_chunk, training, scale)
        return {"loss": loss, "losses": losses, "hits": hits}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Cross-entropy in nats, averaged over the real predictions of all replicas.

        `y_pred` is what the model gave: losses if it was told the words, and logits [B, P, V] if not.
        """
        if isinstance(y_pred, dict):
            return y_pred["loss"]
        return weighted_mean(*losses_and_weights(y, y_pred, sample_weight))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        self.track(y_pred["losses"], y_pred["hits"], x["target_weights"], x.get("language_ids"))
        return self.get_metrics_result()


def _with_targets(data, loss_scale):
    """A batch whose inputs hold the words too, their weights, and the share of each in the loss of all replicas.

    What the loss is going to be multiplied by is among them, for each row, as a part of the batch needs it too.
    """
    tensors = (part if part is None else keras.tree.map_structure(ops.convert_to_tensor, part) for part in data)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tuple(tensors))
    weights = ops.ones(ops.shape(y), "float32") if sample_weight is None else ops.cast(sample_weight, "float32")
    shares = ops.divide_no_nan(weights, sum_over_replicas(ops.sum(weights)))
    scales = loss_scale * ops.ones_like(weights[:, 0])  # [B]
    told = {"targets": y, "target_weights": weights, "target_shares": shares, "loss_scales": scales}
    return x | told, y, sample_weight


def encoder_of(model) -> Encoder:
    """The encoder of a model that pre-trains one; an `Encoder` itself."""
    return model.encoder if isinstance(model, PretrainingModel) else model


def make_head(encoder, output_embedding_dim, coupling, output_cutoffs) -> MaskedLMHead:
    """A head with an encoder's activation and epsilon, coupled to its token table.

    Raises:
        ValueError: for an unknown coupling, or widths that a coupling cannot share.
    """
    width = output_embedding_dim
    check_counts({"output_embedding_dim": width})
    config = encoder.get_config()
    return MaskedLMHead(
        encoder.token_embedding,
        width,
        coupling,
        output_cutoffs,
        activation=config["activation"],
        layer_norm_epsilon=config["layer_norm_epsilon"],
        name="head",
        dtype=encoder.dtype_policy,
    )


def with_mask_positions(inputs: dict) -> dict:
    """An encoder's symbolic inputs, and the positions [B, P] that are predicted."""
    return inputs | {"mask_positions": keras.Input((None,), dtype="int32", name="mask_positions")}


def losses_and_weights(y, logits, sample_weight):
    """Cross-entropies in nats [B, P] of logits [B, P, V] for ids [B, P], and their weights, ones by default."""
    losses = ops.sparse_categorical_crossentropy(y, logits, from_logits=True)  # [B, P, V] -> [B, P]
    weights = ops.ones_like(losses) if sample_weight is None else ops.cast(sample_weight, losses.dtype)
    return losses, weights


def chosen(mask_positions, length):
    """Which token each slot is for.

    Args:
        mask_positions: int [B, P], rising, empty slots last and 0.
        length: S.

    Returns:
        float32 [B, P, S], one 1 a slot; none in an empty slot. A slot for token 0 is the first.

    >>> ops.convert_to_numpy(chosen(np.array([[0, 2, 0]]), 4)).tolist()
    [[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]
    """
    is_first = ops.cumsum(ops.ones_like(mask_positions, dtype="int32"), axis=1) == 1
    is_real = ops.logical_or(mask_positions > 0, is_first)
    return ops.one_hot(mask_positions, length, dtype="float32") * ops.cast(is_real, "float32")[:, :, None]
