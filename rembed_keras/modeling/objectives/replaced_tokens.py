"""An objective in which the encoder finds what a small generator, dropped after pre-training, put in place of words."""

from typing import Literal, TypeAlias, get_args

import keras
from keras import ops

from rembed_keras.errors import Count, Rate, UserError, check_counts
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.layers.activation import activation_function
from rembed_keras.modeling.layers.tables import initializer
from rembed_keras.modeling.objectives.pretraining import (
    PretrainingModel,
    chosen,
    losses_and_weights,
    make_head,
    with_mask_positions,
)
from rembed_keras.modeling.objectives.replaced_tokens_cost import replaced_token_entries
from rembed_keras.modeling.objectives.running_means import MeanOfNumbers
from rembed_keras.modeling.parts import Parts, make_parts
from rembed_keras.modeling.replicas import weighted_mean
from rembed_keras.modeling.sizes import Coupling, generator_config

Sharing: TypeAlias = Literal["none", "embeddings"]


@keras.saving.register_keras_serializable(package="rembed_keras")
class Replace(keras.layers.Layer):
    """Draws a word for each gap from the logits of a generator, and puts it there.

    Args:
        name: the layer's name.

    Call arguments: `token_ids` int [B, S], `mask_positions` int [B, P], `logits` [B, P, V]. Returns the ids with
    replacements, int32 [B, S], and the words drawn, int32 [B, P]. No gradient flows back.
    """

    def __init__(self, name=None):
        super().__init__(name=name, dtype="float32")
        self.seed_generator = keras.random.SeedGenerator()

    def compute_output_spec(self, token_ids, mask_positions, logits):
        return tuple(keras.KerasTensor(ids.shape, dtype="int32") for ids in (token_ids, mask_positions))

    def call(self, token_ids, mask_positions, logits):
        uniform = keras.random.uniform(ops.shape(logits), minval=1e-9, maxval=1.0, seed=self.seed_generator)
        noisy = ops.stop_gradient(logits) - ops.log(-ops.log(uniform))  # its argmax is a draw from the softmax
        drawn = ops.cast(ops.argmax(noisy, axis=-1), "int32")  # [B, P, V] -> [B, P]
        slots = ops.cast(chosen(mask_positions, ops.shape(token_ids)[1]), "int32")  # [B, P, S]
        replaced = ops.sum(slots * drawn[:, :, None], axis=1)
        return ops.where(ops.sum(slots, axis=1) > 0, replaced, token_ids), drawn


@keras.saving.register_keras_serializable(package="rembed_keras")
class ReplacedTokenDetection(PretrainingModel):
    """A small generator fills gaps, and the encoder tells of every token whether it was replaced.

    Args:
        encoder: an `Encoder`; what is kept.
        output_embedding_dim: E_out of the generator's head; dropped after pre-training, as the generator is.
        generator_layers: blocks of the generator; as many as the encoder's by default.
        generator_scale: its heads, and with them its widths, as a share of the encoder's.
        discriminator_weight: of the detection loss against the generator's.
        sharing: "embeddings": the generator reads the encoder's token, position and segment tables and teaches them
            too; "none": it has its own.
        coupling: of the generator's output table to the tables that the generator reads; see `MaskedLM`.
        name: the model's name.

    Inputs and targets as `MaskedLM`'s; outputs a dict of `logits` [B, P, V], `drawn` int [B, P] and `detection`
    [B, S], logits of having been replaced. Logs have `loss`, the weighted sum of `generator_loss`, in
    nats a prediction, and `detection_loss`, in nats a token; and `accuracy` of detection.

    Raises:
        ValueError: for an unknown sharing or coupling, or widths that a coupling cannot share.

    Source: Clark et al. 2020 (ELECTRA), sections 2 and 3.2.

    >>> encoder = Encoder(100, num_layers=2, num_heads=4, hidden_dim=16, intermediate_dim=16, input_embedding_dim=4)
    >>> model = ReplacedTokenDetection(encoder, output_embedding_dim=32, generator_layers=1)
    >>> model.generator.get_config()["hidden_dim"], model.drop_heads() is encoder
    (4, True)
    """

    ledger_entries = staticmethod(replaced_token_entries)

    def __init__(
        self,
        encoder: Encoder,
        output_embedding_dim: Count,
        generator_layers: Count | None = None,
        generator_scale: Rate = 0.25,
        discriminator_weight: Rate = 50.0,
        sharing: Sharing = "embeddings",
        coupling: Coupling = "decoupled",
        name: str = "replaced_token_detection",
    ):
        if sharing not in get_args(Sharing):
            raise UserError(f"sharing is {sharing!r}; it can be one of {', '.join(get_args(Sharing))}")
        if generator_layers is not None:
            check_counts({"generator_layers": generator_layers})
        config = encoder.get_config()
        self.generator = _make_generator(encoder, generator_layers, generator_scale, sharing)
        head = make_head(self.generator, output_embedding_dim, coupling, ())
        inputs = with_mask_positions(encoder.input)
        logits = head(self.generator(encoder.input)["sequence_output"], inputs["mask_positions"])
        replaced, drawn = Replace(name="replace")(inputs["token_ids"], inputs["mask_positions"], logits)
        hidden = encoder(encoder.input | {"token_ids": replaced})["sequence_output"]
        dense = {"kernel_initializer": initializer(), "dtype": encoder.dtype_policy}
        features = keras.layers.Dense(
            config["hidden_dim"], activation=activation_function(config["activation"]), name="detector", **dense
        )(hidden)
        detection = keras.layers.Dense(1, kernel_initializer=initializer(), name="detection", dtype="float32")(features)
        outputs = {"logits": logits, "drawn": drawn, "detection": detection[:, :, 0]}
        arguments = {
            "output_embedding_dim": output_embedding_dim,
            "generator_layers": generator_layers,
            "generator_scale": generator_scale,
            "discriminator_weight": discriminator_weight,
            "sharing": sharing,
            "coupling": coupling,
        }
        super().__init__(encoder, inputs, outputs, arguments, name)
        self.head = head
        self.generator_loss = MeanOfNumbers(name="generator_loss")
        self.detection_loss = MeanOfNumbers(name="detection_loss")

    def movable(self, variables: list) -> list:
        """Those of `variables` that the loss can move: neither pooler's."""
        return self.generator.without_pooler(super().movable(variables))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The generator's cross-entropy and the weighted detection loss, over all replicas."""
        generated = weighted_mean(*losses_and_weights(y, y_pred["logits"], sample_weight))
        detected, _, weights = self._detection(x, y, y_pred)
        return generated + self._arguments["discriminator_weight"] * weighted_mean(detected, weights)

    def _detection(self, x, y, y_pred):
        """Detection losses, whether detection is right, and weights, each [B, S]."""
        differs = ops.cast(ops.not_equal(y_pred["drawn"], ops.cast(y, "int32")), "float32")  # [B, P]
        slots = chosen(x["mask_positions"], ops.shape(x["token_ids"])[1])  # [B, P, S]
        truth = ops.sum(slots * differs[:, :, None], axis=1)  # [B, P, S] -> [B, S]
        score = y_pred["detection"]
        losses = ops.softplus(score) - truth * score
        counts = ops.cast(ops.cast(x["padding_mask"], "bool"), "float32")  # a document's number may be over 1
        return losses, ops.cast((score > 0) == (truth > 0), "float32"), counts

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        generated, slots = losses_and_weights(y, y_pred["logits"], sample_weight)
        losses, hits, weights = self._detection(x, y, y_pred)
        self.generator_loss.update_state(generated, slots)
        self.detection_loss.update_state(losses, weights)
        self.track(losses, hits, weights, x.get("language_ids"))
        return self.get_metrics_result()

    def get_metrics_result(self):
        detection = self._arguments["discriminator_weight"] * self.detection_loss.result()
        return super().get_metrics_result() | {"loss": self.generator_loss.result() + detection}


def _make_generator(encoder, num_layers, scale, sharing):
    config = generator_config(encoder.arguments, num_layers, scale)
    parts = make_parts(config, encoder.dtype_policy, prefix="generator_")
    if sharing == "embeddings":
        parts = Parts(**(vars(parts) | {"embeddings": encoder.parts.embeddings}))
    return Encoder(**config, parts=parts, dtype=encoder.dtype_policy, name="generator")
