"""The layer of `Projected`, whose tables and their sum are those of `InputEmbedding`."""

import keras

from rembed_keras.modeling.layers.embeddings import InputEmbedding
from rembed_keras.modeling.layers.tables import initializer


class ProjectedEmbedding(InputEmbedding):
    """Token, segment and position embeddings, summed at width E_in, projected to D, and normed.

    Args:
        vocabulary_size: rows of the token table, V.
        input_embedding_dim: E_in, of all tables.
        hidden_dim: D, of the norm and of what it gives.
        max_sequence_length: rows of the position table; 0 for no such table.
        num_segments: rows of the segment table; 0 for no such table.
        dropout: rate applied after the norm.
        layer_norm_epsilon: the norm's epsilon.
        cutoffs: where the token table's bands begin; none by default.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `token_ids`, `segment_ids`, `padding_mask`, each int [B, S]. Returns [B, S, D].
    """

    def __init__(
        self,
        vocabulary_size,
        input_embedding_dim,
        hidden_dim,
        max_sequence_length=512,
        num_segments=2,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        cutoffs=(),
        name=None,
        dtype=None,
    ):
        super().__init__(
            vocabulary_size,
            input_embedding_dim,
            max_sequence_length,
            num_segments,
            dropout,
            layer_norm_epsilon,
            cutoffs,
            name=name,
            dtype=dtype,
        )
        self.width = hidden_dim
        self.projection = keras.layers.Dense(
            hidden_dim, use_bias=False, kernel_initializer=initializer(), name="projection", dtype=dtype
        )

    def build(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        super().build(token_ids_shape)
        self.projection.build((*token_ids_shape, self.token.output_dim))

    def summed(self, embedded, segment_ids, padding_mask):
        """The sum of the tables, projected: [B, S, E_in] -> [B, S, D]."""
        return self.projection(super().summed(embedded, segment_ids, padding_mask))
