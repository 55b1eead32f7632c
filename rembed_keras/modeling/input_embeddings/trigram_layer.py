"""The layer of `Trigrams`, whose tables and their sum are those of BERT at two widths."""

import keras
from keras import ops

from rembed_keras.modeling.blocks.bottleneck_layers import Affine
from rembed_keras.modeling.layers.embeddings import InputEmbedding
from rembed_keras.modeling.layers.tables import initializer, make_table


class TrigramEmbedding(InputEmbedding):
    """Tokens with their neighbours, projected; segments and positions are added, and the sum is scaled and shifted.

    Args:
        vocabulary_size: rows of the token table, V.
        input_embedding_dim: E_in, of the token table.
        hidden_dim: D, of the other tables and of what it gives.
        max_sequence_length: rows of the position table; 0 for no such table.
        num_segments: rows of the segment table; 0 for no such table.
        dropout: rate applied at the end.
        cutoffs: where the token table's bands begin; none by default.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `token_ids`, `segment_ids`, `padding_mask`, each int [B, S]. Returns [B, S, D].

    >>> layer = TrigramEmbedding(10, input_embedding_dim=2, hidden_dim=8)
    >>> ids = np.array([[1, 2, 3]])
    >>> tuple(layer(ids, 0 * ids, ids > 0).shape)
    (1, 3, 8)
    """

    def __init__(
        self,
        vocabulary_size,
        input_embedding_dim,
        hidden_dim,
        max_sequence_length=512,
        num_segments=2,
        dropout=0.0,
        cutoffs=(),
        name=None,
        dtype=None,
    ):
        super().__init__(
            vocabulary_size,
            hidden_dim,
            max_sequence_length,
            num_segments,
            dropout,
            token=make_table(vocabulary_size, input_embedding_dim, cutoffs, name="token", dtype=dtype),
            norm=Affine(name="norm", dtype=dtype),
            name=name,
            dtype=dtype,
        )
        self.mixing = keras.layers.Dense(hidden_dim, kernel_initializer=initializer(), name="projection", dtype=dtype)

    def build(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        super().build(token_ids_shape)
        self.mixing.build((*token_ids_shape, 3 * self.token.output_dim))

    def finish(self, embedded, segment_ids, padding_mask, training=None):
        """What it makes of the rows of tokens [B, S, E_in]: [B, S, D]."""
        documents = ops.cast(padding_mask, "int32")
        following, preceding = _neighbours(embedded, documents, 1), _neighbours(embedded, documents, -1)
        trigrams = ops.concatenate([following, embedded, preceding], axis=-1)  # -> [B, S, 3 E_in]
        wide = self.mixing(trigrams)  # [B, S, 3 E_in] -> [B, S, D]
        return super().finish(wide, segment_ids, padding_mask, training=training)


def _neighbours(rows, documents, step):
    """For each token the row of the one `step` places on, [B, S, E]: zeros where that is another document's."""
    before, after = max(-step, 0), max(step, 0)
    length = ops.shape(documents)[1]
    moved = ops.pad(rows, ((0, 0), (before, after), (0, 0)))[:, after : after + length]
    theirs = ops.pad(documents, ((0, 0), (before, after)))[:, after : after + length]
    is_own = ops.logical_or(ops.equal(theirs, documents), ops.equal(theirs, 0))  # padding is no document
    return moved * ops.cast(is_own, moved.dtype)[:, :, None]
