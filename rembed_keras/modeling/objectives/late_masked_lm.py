"""An objective in which [MASK] enters late: the encoder reads the other tokens, a small decoder predicts.

The decoder is capacity that exists in pre-training only, and the tokens that the encoder is spared pay for it.
"""

from collections.abc import Sequence

import keras
from keras import ops

from rembed_keras.errors import Count, check_counts
from rembed_keras.modeling.blocks.stack import block_of, has_position_table, make_blocks
from rembed_keras.modeling.couplings.naming import COUPLINGS, Coupling
from rembed_keras.modeling.documents import attention_mask, document_positions
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.layers.embeddings import look_up_positions
from rembed_keras.modeling.layers.sublayer import pick
from rembed_keras.modeling.layers.tables import LookupTable, initializer
from rembed_keras.modeling.objectives.late_masked_lm_cost import decoder_config, late_masked_lm_entries
from rembed_keras.modeling.objectives.masked_tokens import MaskedTokenPrediction, chosen, make_head, with_mask_positions
from rembed_keras.modeling.saving.cloning import made_with_its_model


@keras.saving.register_keras_serializable(package="rembed_keras")
class LateMasking(keras.layers.Layer):
    """Encodes the tokens that are not masked, then lets a decoder see all positions.

    The encoder's rows are shorter by P tokens, which is what it saves. In a row with empty slots as many of the last
    tokens are left out and come in late as well, so that all rows are of one length.

    Args:
        encoder: an `Encoder`.
        decoder_layers: blocks of the decoder, of the encoder's kind and sizes.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `token_ids`, `segment_ids`, `padding_mask` int [B, S] and `mask_positions` int [B, P]. Returns
    [B, S, D], or, with `only_masked`, those of the masked tokens alone, [B, P, D].
    """

    get_config = made_with_its_model

    def __init__(self, encoder, decoder_layers, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.encoder = encoder
        config = decoder_config(encoder.get_config(), decoder_layers)
        block = block_of(config)
        self.hidden_dim = config["hidden_dim"]
        self.blocks = make_blocks(config, dtype, input_is_normed=False)
        self.position = None
        self.norm = None
        if block.norms_first:
            self.norm = keras.layers.LayerNormalization(
                epsilon=config["layer_norm_epsilon"], center=block.has_biases, name="norm", dtype=dtype
            )
        if has_position_table(config):
            self.position = LookupTable(config["max_sequence_length"], self.hidden_dim, name="position", dtype=dtype)

    def build(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None, mask_positions_shape=None):
        self.gap = self.add_weight(shape=(self.hidden_dim,), initializer=initializer(), name="gap")
        shape = (*token_ids_shape, self.hidden_dim)
        for part in (*self.blocks, self.norm, self.position):
            if part is not None:
                part.build(shape)

    def compute_output_spec(
        self, token_ids, segment_ids, padding_mask, mask_positions, only_masked=False, training=None
    ):
        return keras.KerasTensor(
            (*(mask_positions if only_masked else token_ids).shape, self.hidden_dim), dtype=self.compute_dtype
        )

    def call(self, token_ids, segment_ids, padding_mask, mask_positions, only_masked=False, training=None):
        length = ops.shape(token_ids)[1]
        positions = document_positions(padding_mask)  # [B, S]
        is_masked = ops.sum(chosen(mask_positions, length), axis=1) > 0  # [B, S]
        index = ops.cumsum(ops.ones_like(token_ids, dtype="int32"), axis=1) - 1
        seen = ops.argsort(ops.cast(is_masked, "int32") * length + index, axis=1)  # in order, those not masked first
        seen = seen[:, : length - ops.shape(mask_positions)[1]]  # [B, S] -> [B, S - P]
        parts = self.encoder.parts
        embedded = parts.embed(token_ids, segment_ids, padding_mask, training=training)  # [B, S, D]
        embedded = pick(embedded, seen)  # [B, S, D] -> [B, S - P, D]
        documents, places = (pick(ids, seen) for ids in (padding_mask, positions))
        encoded, _ = parts.transform(embedded, documents, places, is_whole=False, training=training)
        rank = ops.cumsum(ops.cast(ops.logical_not(is_masked), "int32"), axis=1) - 1  # place of a token in `seen`
        is_late = ops.logical_or(is_masked, rank >= ops.shape(seen)[1])
        rank = ops.clip(rank, 0, ops.shape(seen)[1] - 1)
        filled = pick(encoded, rank)  # [B, S - P, D] -> [B, S, D]
        filled = ops.where(is_late[:, :, None], ops.cast(self.gap, filled.dtype), filled)
        if self.position is not None:
            filled = filled + look_up_positions(self.position, padding_mask)
        mask = attention_mask(padding_mask)
        for block in self.blocks:
            at = mask_positions if only_masked and block is self.blocks[-1] else None
            filled = block(filled, mask, positions, at=at, documents=padding_mask, training=training)
        return filled if self.norm is None else self.norm(filled)


@keras.saving.register_keras_serializable(package="rembed_keras")
class LateMaskedLM(MaskedTokenPrediction):
    """Masked-language-model pre-training in which [MASK] enters late, so that many tokens can be masked cheaply.

    Args:
        encoder: an `Encoder`; what is kept. It never sees a masked token nor anything in its place.
        output_embedding_dim: E_out; dropped after pre-training.
        decoder_layers: blocks that see the masked positions; dropped too.
        coupling: as in `MaskedLM`.
        output_cutoffs: as in `MaskedLM`.
        loss_chunk: as in `MaskedLM`.
        micro_batches: as in `MaskedLM`.
        name: the model's name.

    Inputs, outputs, loss and logs as `MaskedLM`'s. What stands at masked positions in `token_ids` is not read.

    Raises:
        ValueError: for an unknown coupling, widths that a coupling cannot share, or no layers.

    Source: Liao et al. 2022 ("Mask More and Mask Later"), sections 3.1 and 3.3.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> model = LateMaskedLM(encoder, output_embedding_dim=32, decoder_layers=1)
    >>> model.drop_heads() is encoder
    True
    """

    ledger_entries = staticmethod(late_masked_lm_entries)
    reads_rows = False

    def __init__(
        self,
        encoder: Encoder,
        output_embedding_dim: Count,
        decoder_layers: Count = 2,
        coupling: Coupling = "decoupled",
        output_cutoffs: Sequence[Count] = (),
        loss_chunk: Count = 512,
        micro_batches: Count = 1,
        name: str = "late_masked_lm",
    ):
        check_counts({"decoder_layers": decoder_layers})
        head = make_head(encoder, output_embedding_dim, coupling, output_cutoffs)
        masking = LateMasking(encoder, decoder_layers, name="decoder", dtype=encoder.dtype_policy)
        arguments = {
            "output_embedding_dim": output_embedding_dim,
            "decoder_layers": decoder_layers,
            "coupling": COUPLINGS.told(coupling),
            "output_cutoffs": [*output_cutoffs],
        }
        inputs = with_mask_positions(encoder.input)
        super().__init__(encoder, head, inputs, masking(**inputs), loss_chunk, micro_batches, arguments, name)
        self.masking = masking

    def hidden_at_predictions(self, inputs, training=None):
        return self.masking(**{key: inputs[key] for key in self.input}, only_masked=True, training=training)
