"""Keras's attention heads, with what a kind of attention has in the place of their softmax."""

from functools import partial

import keras

from rembed_keras import compat
from rembed_keras.modeling.attention.platforms import is_on_gpu, keras_attention
from rembed_keras.modeling.layers.draws import Dropout
from rembed_keras.modeling.layers.sublayer import project
from rembed_keras.modeling.layers.tables import initializer


class Heads(keras.layers.MultiHeadAttention):
    """Keras's attention of [B, S, D] under a mask [B, S, S], with `project` for its dense layers.

    Args:
        num_heads: H.
        head_dim: K, width of a head.
        dropout: rate on attention probabilities.
        attend: what attends in the place of Keras's softmax, see `attention.Global`; None for that.
        name: the layer's name.
        dtype: dtype or policy of the layer.
    """

    def __init__(self, num_heads, head_dim, dropout=0.0, attend=None, name="heads", dtype=None):
        super().__init__(num_heads, head_dim, dropout=dropout, kernel_initializer=initializer(), name=name, dtype=dtype)
        self.attend = attend

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        compat.attention_dropout(self).__class__ = Dropout  # of the same state and arguments

    def call(self, query, value, attention_mask, positions=None, at=None, training=None):
        projections = ((self.query_dense, query), (self.key_dense, value), (self.value_dense, value))
        heads = [project(dense, tokens) for dense, tokens in projections]  # [B, S, D] -> [B, S, H, K]
        drop = partial(compat.attention_dropout(self), training=training) if self.dropout and training else None
        if self.attend is None and drop is None and is_on_gpu():
            attended = keras_attention(heads[0], heads[1], heads[2], attention_mask)
        elif self.attend is None:
            attended = compat.attend(self, heads, attention_mask, training)
        else:
            attended = self.attend(*heads, attention_mask, at, drop)
        return project(self.output_dense, attended)

    def attended_by(self, kernel, query, value, positions):
        """What a kernel makes of heads, see `dispatch.kernel_for`: [B, Q, D] and [B, S, D] -> [B, Q, D]."""
        projections = ((self.query_dense, query), (self.key_dense, value), (self.value_dense, value))
        heads = (project(dense, tokens) for dense, tokens in projections)  # [B, S, D] -> [B, S, H, K]
        return project(self.output_dense, kernel(*heads, positions))
