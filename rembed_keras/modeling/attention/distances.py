"""The layers of disentangled attention: the table of distances, and heads that score by them."""

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.modeling.attention.full import masked_softmax
from rembed_keras.modeling.attention.heads import Heads
from rembed_keras.modeling.layers.draws import Dropout
from rembed_keras.modeling.layers.sublayer import pick, project
from rembed_keras.modeling.layers.tables import initializer


class Distances(keras.layers.Layer):
    """A table of distances, normed; layers have it in common.

    Args:
        rows: R, of the table.
        hidden_dim: D.
        layer_norm_epsilon: the norm's epsilon.
        name: the layer's name.
        dtype: dtype or policy of the layer.
    """

    def __init__(self, rows, hidden_dim, layer_norm_epsilon=1e-12, name="distances", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.shape = (rows, hidden_dim)
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="norm", dtype=dtype)

    def build(self):
        self.embeddings = self.add_weight(shape=self.shape, initializer=initializer(), name="embeddings")
        self.norm.build(self.shape)

    def normed(self):
        """The rows [R, D], normed."""
        return self.norm(ops.convert_to_tensor(self.embeddings))


class DisentangledHeads(Heads):
    """Heads of [B, S, D] that score distances beside tokens.

    Args:
        num_heads: H.
        head_dim: K, width of a head.
        kind: the `attention.Disentangled`.
        dropout: rate on attention probabilities and on the table's features.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Attributes:
        shared: the table of distances, a layer, which they are given before they are built.
    """

    shared: Distances

    def __init__(self, num_heads, head_dim, kind, dropout=0.0, name="heads", dtype=None):
        super().__init__(num_heads, head_dim, dropout, name=name, dtype=dtype)
        self.kind = kind
        self.distance_dropout = Dropout(dropout, name="distance_dropout", dtype=dtype)

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        if not self.shared.built:
            self.shared.build()

    def call(self, query, value, attention_mask, positions=None, at=None, training=None):
        table = self.distance_dropout(self.shared.normed(), training=training)[None]  # [1, R, D]
        scale = ops.cast((3 * self.key_dim) ** -0.5, self.compute_dtype)
        queries = project(self.query_dense, query) * scale  # [B, Q, D] -> [B, Q, H, K]
        keys = project(self.key_dense, value)  # [B, S, D] -> [B, S, H, K]
        far_keys = project(self.key_dense, table)[0]  # [R, H, K]
        far_queries = project(self.query_dense, table)[0] * scale
        scores = ops.einsum("bqhk,bshk->bhqs", queries, keys)
        rows = self.kind.rows(pick(positions, at)[:, :, None] - positions[:, None, :])  # [B, Q, S]
        by_query = ops.einsum("bqhk,rhk->bhqr", queries, far_keys)
        by_key = ops.einsum("bshk,rhk->bhsr", keys, far_queries)
        scores = scores + self._of_rows(by_query, rows)
        scores = scores + ops.swapaxes(self._of_rows(by_key, ops.swapaxes(rows, 1, 2)), 2, 3)  # [B, H, S, Q] turned
        shares = ops.cast(masked_softmax(scores, attention_mask[:, None]), self.compute_dtype)
        if self.dropout and training:
            shares = compat.attention_dropout(self)(shares, training=training)
        attended = ops.einsum("bhqs,bshk->bqhk", shares, project(self.value_dense, value))
        return project(self.output_dense, attended)

    def _of_rows(self, products, rows):
        """Of products with all rows [B, H, N, R] those with the rows [B, N, M] that are asked for: [B, H, N, M]."""
        each = ops.repeat(rows[:, None], self.num_heads, axis=1)
        return ops.take_along_axis(products, each, axis=-1)
