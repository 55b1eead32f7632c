"""An objective in which the encoder detects which tokens a small generator, dropped after pre-training, replaced."""

import functools
from collections.abc import Callable, Mapping

import keras
from keras import ops

from rembed_keras.errors import Count, Rate, UserError, check_counts
from rembed_keras.modeling.couplings.naming import COUPLINGS, Coupling
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.generator_sharing.naming import SHARING, Sharing
from rembed_keras.modeling.layers import draws
from rembed_keras.modeling.layers.activation import activation_function
from rembed_keras.modeling.layers.tables import initializer
from rembed_keras.modeling.losses.row_weights import counted
from rembed_keras.modeling.losses.softmax import cross_entropies
from rembed_keras.modeling.objectives.masked_tokens import chosen, make_head, with_mask_positions
from rembed_keras.modeling.objectives.pretraining import PretrainingModel
from rembed_keras.modeling.objectives.replaced_tokens_cost import replaced_token_entries
from rembed_keras.modeling.objectives.running_means import MeanOfNumbers
from rembed_keras.modeling.replicas import shares
from rembed_keras.modeling.saving.changes import QUANTIZED, change_layers_again
from rembed_keras.modeling.saving.freezing import is_frozen
from rembed_keras.modeling.sizes import generator_config


@keras.saving.register_keras_serializable(package="rembed_keras")
class Replace(keras.layers.Layer):
    """Draws a token for each masked position from the logits of a generator, and puts it there.

    Args:
        name: the layer's name.

    Call arguments: `token_ids` int [B, S], `mask_positions` int [B, P], `logits` [B, P, V]. Returns the ids with
    replacements, int32 [B, S], and the tokens drawn, int32 [B, P]. No gradient flows back.
    """

    def __init__(self, name=None, dtype="float32", **kwargs):
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.seed_generator = keras.random.SeedGenerator()

    def compute_output_spec(self, token_ids, mask_positions, logits):
        return tuple(keras.KerasTensor(ids.shape, dtype="int32") for ids in (token_ids, mask_positions))

    def call(self, token_ids, mask_positions, logits):
        uniform = draws.uniform(ops.shape(logits), minval=1e-9, maxval=1.0, seed=self.seed_generator)
        noisy = ops.stop_gradient(logits) - ops.log(-ops.log(uniform))  # its argmax is a draw from the softmax
        drawn = ops.cast(ops.argmax(noisy, axis=-1), "int32")  # [B, P, V] -> [B, P]
        slots = ops.cast(chosen(mask_positions, ops.shape(token_ids)[1]), "int32")  # [B, P, S]
        replaced = ops.sum(slots * drawn[:, :, None], axis=1)
        return ops.where(ops.sum(slots, axis=1) > 0, replaced, token_ids), drawn


def _of_one_table(quantize: Callable) -> Callable:
    """Keras's `quantize`, but not of a model that computes the encoder's table of two others."""

    @functools.wraps(quantize)
    def checked(model, *arguments, **named):
        if model.folded_variables:
            raise UserError("sharing 'gdes' reads the sum of two tables: quantize the encoder that drop_heads() gives")
        return quantize(model, *arguments, **named)

    return checked


@keras.saving.register_keras_serializable(package="rembed_keras")
class ReplacedTokenDetection(PretrainingModel):
    """A small generator replaces masked tokens, and the encoder detects of every token whether it was replaced.

    Args:
        encoder: an `Encoder`; what is kept.
        output_embedding_dim: E_out of the generator's head; dropped after pre-training, as the generator is.
        generator_layers: blocks of the generator; as many as the encoder's by default.
        generator_scale: its heads, and with them its widths, as a share of the encoder's.
        discriminator_weight: of the detection loss against the generator's.
        sharing: "embeddings": the generator reads the encoder's token, position and segment tables and trains them
            too; "none": it has its own; "gdes": it has its own, and the encoder reads the sum of the generator's token
            table, without its gradient, and of a table of differences, which detection alone trains. The encoder's
            table has the sum after `fit`, and whenever the model is saved or its heads are dropped; see `fold`. Or a
            kind of your own; see `modeling.generator_sharing`.
        coupling: of the generator's output table to the tables that the generator reads; see `MaskedLM`.
        micro_batches: as in `MaskedLM`.
        name: the model's name.

    Inputs and targets as `MaskedLM`'s; outputs a dict of `logits` [B, P, V], `drawn` int [B, P] and `detection`
    [B, S], logits of having been replaced. Logs have `loss`, the weighted sum of `generator_loss`, in
    nats a prediction, and `detection_loss`, in nats a token; and `accuracy` of detection.

    Raises:
        ValueError: for an unknown sharing or coupling, widths that a coupling cannot share, or "gdes" with a token
            table in bands or a frozen one.

    Source: Clark et al. 2020 (ELECTRA), sections 2 and 3.2; He et al. 2021 (DeBERTaV3), section 3.2, for "gdes".

    >>> encoder = Encoder(100, num_layers=2, num_heads=4, hidden_dim=16, intermediate_dim=16, input_embedding_dim=4)
    >>> model = ReplacedTokenDetection(encoder, output_embedding_dim=32, generator_layers=1)
    >>> model.generator.get_config()["hidden_dim"], model.drop_heads() is encoder
    (4, True)
    """

    ledger_entries = staticmethod(replaced_token_entries)
    quantize = _of_one_table(PretrainingModel.quantize)

    def __init__(
        self,
        encoder: Encoder,
        output_embedding_dim: Count,
        generator_layers: Count | None = None,
        generator_scale: Rate = 0.25,
        discriminator_weight: Rate = 50.0,
        sharing: Sharing = "embeddings",
        coupling: Coupling = "decoupled",
        micro_batches: Count = 1,
        name: str = "replaced_token_detection",
    ):
        kind = SHARING.kind(sharing)
        if generator_layers is not None:
            check_counts({"generator_layers": generator_layers})
        given = encoder.arguments | {"trainable": not is_frozen(encoder)}
        config = generator_config(given, generator_layers, generator_scale)
        kind.check(given, config)
        config = kind.arguments(given, config)
        parts = kind.parts(encoder, config)
        self.generator = Encoder(**config, parts=parts, dtype=encoder.dtype_policy, name="generator")
        self.reader = kind.reader(encoder, self.generator)
        head = make_head(self.generator, output_embedding_dim, coupling, ())
        inputs = with_mask_positions(encoder.input)
        logits = head(self.generator(encoder.input)["sequence_output"], inputs["mask_positions"])
        replaced, drawn = Replace(name="replace")(inputs["token_ids"], inputs["mask_positions"], logits)
        hidden = self.reader(encoder.input | {"token_ids": replaced})["sequence_output"]
        dense = {"kernel_initializer": initializer(), "dtype": encoder.dtype_policy}
        features = keras.layers.Dense(
            encoder.arguments["hidden_dim"],
            activation=activation_function(config["activation"]),
            name="detector",
            **dense,
        )(hidden)
        detection = keras.layers.Dense(1, kernel_initializer=initializer(), name="detection", dtype="float32")(features)
        outputs = {"logits": logits, "drawn": drawn, "detection": detection[:, :, 0]}
        arguments = {
            "output_embedding_dim": output_embedding_dim,
            "generator_layers": generator_layers,
            "generator_scale": generator_scale,
            "discriminator_weight": discriminator_weight,
            "sharing": SHARING.told(kind),
            "coupling": COUPLINGS.told(coupling),
        }
        super().__init__(encoder, inputs, outputs, arguments, name, micro_batches)
        self.head = head
        self.generator_loss = MeanOfNumbers(name="generator_loss")
        self.detection_loss = MeanOfNumbers(name="detection_loss")

    @classmethod
    def from_config(cls, config):
        encoder, later = config["encoder"], {}
        if isinstance(encoder, dict) and isinstance(encoder.get("config"), dict):  # "gdes" is made of a table as it was
            later = {key: encoder["config"][key] for key in QUANTIZED if key in encoder["config"]}
            plain = {key: value for key, value in encoder["config"].items() if key not in later}
            config = config | {"encoder": encoder | {"config": plain}}
        model = super().from_config(config)
        change_layers_again(model, later)
        return model

    def trained(self, variables: list) -> list:
        """Those of `variables` that the loss can move: neither pooler's."""
        return self.generator.without_pooler(super().trained(variables))

    @property
    def reading(self) -> Encoder:
        """The encoder as detection reads it."""
        return self.reader

    @property
    def folded_variables(self) -> list:
        """The encoder's token table if a `table` of other weights takes its place in training."""
        is_read = not hasattr(self.reader.parts.embeddings, "table")
        return [] if is_read else [self.encoder.token_embedding.embeddings]

    def fold(self) -> None:
        """Gives the encoder's token table what detection reads in its place, to the bit; a quantized one has it."""
        for table in self.folded_variables:
            if self.encoder.token_embedding.quantization_mode is None:
                table.assign(self.reader.parts.embeddings.table())

    def nats_of(self, logs: Mapping[str, float]) -> float | None:
        """The generator's."""
        return logs["generator_loss"]

    def known_labels(self, x):
        return self.encoder.arguments["vocabulary_size"], "vocabulary_size"

    def shares_of(self, x, y, sample_weight):
        is_real = ops.cast(ops.cast(x["padding_mask"], "bool"), "float32")  # a document's number may be over 1
        weights = is_real * x["row_weights"][:, None]
        return super().shares_of(x, y, sample_weight) | {"token_weights": weights, "token_shares": shares(weights)}

    def loss_of(self, x, y, y_pred, sample_weight):
        """The generator's cross-entropy and the weighted detection loss, over all replicas."""
        generated = ops.sum(self._generated(x, y, y_pred) * x["target_shares"])
        detected, _ = self._detection(x, y, y_pred)
        return generated + self._arguments["discriminator_weight"] * ops.sum(detected * x["token_shares"])

    def _generated(self, x, y, y_pred):
        """The generator's losses [B, P]."""
        return cross_entropies(counted(y, x["target_weights"]), y_pred["logits"])

    def _detection(self, x, y, y_pred):
        """Detection losses and whether detection is right, each [B, S]."""
        differs = ops.cast(ops.not_equal(y_pred["drawn"], ops.cast(y, "int32")), "float32")  # [B, P]
        slots = chosen(x["mask_positions"], ops.shape(x["token_ids"])[1])  # [B, P, S]
        truth = ops.sum(slots * differs[:, :, None], axis=1)  # [B, P, S] -> [B, S]
        score = y_pred["detection"]
        losses = ops.softplus(score) - truth * score
        return losses, ops.cast((score > 0) == (truth > 0), "float32")

    def update_metrics(self, x, y, y_pred, sample_weight):
        losses, hits = self._detection(x, y, y_pred)
        self.generator_loss.update_state(self._generated(x, y, y_pred), x["target_weights"])
        self.detection_loss.update_state(losses, x["token_weights"])
        self.track(losses, hits, x["token_weights"], x.get("language_ids"))

    def loss_result(self):
        detection = self._arguments["discriminator_weight"] * self.detection_loss.result()
        return self.generator_loss.result() + detection
