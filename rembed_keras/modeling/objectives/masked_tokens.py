"""What objectives have in common whose loss is that of masked tokens.

In training the labels go in with the inputs, and a loss comes out instead of logits: those of all predictions of a
batch at once, [B, P, V], can take more memory than the model.
"""

import keras
from keras import ops

from rembed_keras.errors import check_counts
from rembed_keras.modeling.heads.masked_lm_head import MaskedLMHead
from rembed_keras.modeling.losses.row_weights import counted
from rembed_keras.modeling.losses.softmax import cross_entropies, symmetric_divergence
from rembed_keras.modeling.objectives.pretraining import PretrainingModel
from rembed_keras.modeling.texts.masks import FillsMasks


class MaskedTokenPrediction(FillsMasks, PretrainingModel):
    """What objectives have in common whose loss is that of masked tokens; their outputs are logits [B, P, V].

    `fit` and `evaluate` make these outputs only for metrics that a user compiles: they hand the labels to the model,
    which then gives losses instead, a chunk of predictions at a time; see `vocabulary_losses`.

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
        chunk = {"loss_chunk": loss_chunk}
        check_counts(chunk | {"micro_batches": micro_batches})
        logits = head(hidden, inputs["mask_positions"])
        super().__init__(encoder, inputs, logits, arguments | chunk, name, micro_batches)
        self.head = head
        self.loss_chunk = loss_chunk

    def hidden_at_predictions(self, inputs, training=None):
        """Hidden states [B, P, D] that the head sees, of the predicted tokens alone."""
        raise NotImplementedError

    def known_labels(self, x):
        return self.encoder.arguments["vocabulary_size"], "vocabulary_size"

    def shares_of(self, x, y, sample_weight):
        own = super().shares_of(x, y, sample_weight)
        return own | {"targets": counted(y, own["target_weights"])}

    def call(self, inputs, training=None, mask=None):
        if "targets" not in inputs:
            return super().call(inputs, training=training, mask=mask)
        features = self.head.features(self.hidden_at_predictions(inputs, training), training)  # [B, P, E_out]
        labels, output = (inputs["targets"], inputs["target_shares"]), self.head.output_embedding
        scale = ops.max(inputs["loss_scales"])
        loss, losses, hits = output.losses(features, *labels, self.loss_chunk, training, scale)
        outputs = {"loss": loss, "losses": losses, "hits": hits, "features": features}
        if self.computes_metrics:
            outputs["logits"] = output(ops.stop_gradient(features))  # [B, P, E_out] -> [B, P, V]
        return outputs

    def loss_of(self, x, y, y_pred, sample_weight):
        """Cross-entropy in nats, averaged over the real predictions of all replicas.

        `y_pred` is what the model gave: losses if the labels were among its inputs, and logits [B, P, V] if not.
        """
        if isinstance(y_pred, dict):
            return y_pred["loss"]
        return ops.sum(cross_entropies(counted(y, x["target_weights"]), y_pred) * x["target_shares"])

    def symmetric_divergence(self, outputs, others):
        """How far two outputs of the same tokens are apart, in nats [B, P]; see `TaskModel`'s.

        It costs the logits of both, 2 x P x V float32 numbers a row of a micro-batch.
        """
        score = self.head.output_embedding
        return symmetric_divergence(score(outputs["features"]), score(others["features"]))

    def update_metrics(self, x, y, y_pred, sample_weight):
        if isinstance(y_pred, dict):
            losses, hits = y_pred["losses"], y_pred["hits"]
        else:
            losses = cross_entropies(counted(y, x["target_weights"]), y_pred)
            hits = ops.cast(ops.equal(ops.argmax(y_pred, axis=-1), ops.cast(y, "int32")), "float32")
        self.track(losses, hits, x["target_weights"], x.get("language_ids"))


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
