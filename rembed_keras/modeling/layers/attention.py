"""Attention sublayers: BERT's, with the norm last or first, and the one with the norm first and rotary positions."""

import keras

from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.attention.dispatch import kernel_for
from rembed_keras.modeling.attention.heads import Heads
from rembed_keras.modeling.attention.platforms import keras_attention
from rembed_keras.modeling.attention.rotary import rotate
from rembed_keras.modeling.layers.draws import Dropout
from rembed_keras.modeling.layers.sublayer import Sublayer, pick, project
from rembed_keras.modeling.layers.tables import initializer


class SelfAttention(Sublayer):
    """BERT's attention: heads, dropout, the residual sum, and the norm after it.

    Args:
        num_heads: H.
        head_dim: width of a head.
        dropout: rate on attention probabilities and on the residual branch.
        layer_norm_epsilon: the norm's epsilon.
        kind: of attention; `attention.Global` by default.
        heads: a layer that attends, called as `Heads` is; these by default.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `hidden` [B, S, D], `mask` bool [B, S, S], `positions` int [B, S]; `at` int [B, P], the only tokens
    to compute, or None; `documents` int [B, S], of which the mask was made, for kernels that take them instead, or
    None. Returns [B, S, D], or [B, P, D].
    """

    def __init__(
        self,
        num_heads,
        head_dim,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        kind=None,
        heads=None,
        name="attention",
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.kind = kind or Global()
        self.heads = heads or Heads(num_heads, head_dim, dropout, self.kind.attend, dtype=dtype)
        self.dropout = Dropout(dropout, name="dropout", dtype=dtype)
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="norm", dtype=dtype)

    def build(self, hidden_shape):
        self.heads.build(hidden_shape, hidden_shape)
        self.norm.build(hidden_shape)

    @property
    def projections(self):
        """The matrices, by what they do."""
        heads = self.heads
        return {
            "query": heads.query_dense,
            "key": heads.key_dense,
            "value": heads.value_dense,
            "output": heads.output_dense,
        }

    def queries_keys_values(self, hidden, positions):
        """What heads attend with, for those who compare them: three times [B, S, D] -> [B, S, H, K]."""
        heads = self.heads
        return [project(dense, hidden) for dense in (heads.query_dense, heads.key_dense, heads.value_dense)]

    def attend(self, hidden, mask, positions, at, documents, training):
        """What the heads make of hidden states: [B, S, D] -> [B, S, D], or of the tokens `at`, [B, P, D]."""
        early = None if self.kind.needs_all_queries else at
        if isinstance(self.heads, Heads):
            is_dropping = bool(self.heads.dropout and training)
            kernel = kernel_for(self.kind, hidden, documents, at, is_dropping)
            if kernel is not None:
                return self.heads.attended_by(kernel, pick(hidden, at), hidden, positions)
        query, mask = pick(hidden, early), pick(self.kind.restrict(mask, positions), early)
        return self.heads(query, hidden, attention_mask=mask, positions=positions, at=at, training=training)

    def call(self, hidden, mask, positions=None, at=None, documents=None, training=None):
        attended = self.attend(hidden, mask, positions, at, documents, training)  # [B, S, D] -> [B, S, D]
        read = pick(hidden, at)
        return self.norm(read + self.adapted(self.dropout(attended, training=training), read))


class PreNormAttention(SelfAttention):
    """The norm, heads, dropout, and the residual sum; arguments and calls are those of `SelfAttention`."""

    def queries_keys_values(self, hidden, positions):
        """What heads attend with: three times [B, S, D] -> [B, S, H, K]."""
        return super().queries_keys_values(self.norm(hidden), positions)

    def call(self, hidden, mask, positions=None, at=None, documents=None, training=None):
        normed = self.norm(hidden)
        attended = self.attend(normed, mask, positions, at, documents, training)  # [B, S, D] -> [B, S, D]
        branch = self.adapted(self.dropout(attended, training=training), pick(normed, at))
        return pick(hidden, at) + branch


class RotaryAttention(Sublayer):
    """Attention over normed hidden states with rotary positions, added to what came in; no biases.

    Args:
        num_heads: H.
        head_dim: width of a head, even.
        dropout: rate on the residual branch.
        layer_norm_epsilon: the norm's epsilon.
        has_norm: whether there is a norm here; none where what comes in is normed already.
        kind: of attention, with the base of its rotary positions; `attention.Global` by default.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments and what it returns are those of `SelfAttention`.
    """

    def __init__(
        self,
        num_heads,
        head_dim,
        dropout=0.0,
        layer_norm_epsilon=1e-5,
        has_norm=True,
        kind=None,
        name="attention",
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.kind = kind or Global()
        self.norm = None
        if has_norm:
            self.norm = keras.layers.LayerNormalization(
                epsilon=layer_norm_epsilon, center=False, name="norm", dtype=dtype
            )
        self.query, self.key, self.value = (
            keras.layers.EinsumDense(
                "bsd,dhk->bshk",
                (None, num_heads, head_dim),
                kernel_initializer=initializer(),
                name=name,
                dtype=dtype,
            )
            for name in ("query", "key", "value")
        )
        self.dropout = Dropout(dropout, name="dropout", dtype=dtype)

    def build(self, hidden_shape):
        if self.norm is not None:
            self.norm.build(hidden_shape)
        for projection in (self.query, self.key, self.value):
            projection.build(hidden_shape)
        self.merge = keras.layers.EinsumDense(
            "bshk,hkd->bsd",
            (None, hidden_shape[-1]),
            kernel_initializer=initializer(),
            name="merge",
            dtype=self.dtype_policy,
        )
        self.merge.build(self.query.compute_output_shape(hidden_shape))

    @property
    def projections(self):
        """The matrices, by what they do."""
        return {"query": self.query, "key": self.key, "value": self.value, "output": self.merge}

    def queries_keys_values(self, hidden, positions):
        """What heads attend with, rotated: three times [B, S, D] -> [B, S, H, K]."""
        normed = hidden if self.norm is None else self.norm(hidden)
        query, key, value = (project(dense, normed) for dense in (self.query, self.key, self.value))
        return [*(rotate(each, positions, self.kind.rotary_base) for each in (query, key)), value]

    def call(self, hidden, mask, positions=None, at=None, documents=None, training=None):
        normed = hidden if self.norm is None else self.norm(hidden)
        early = None if self.kind.needs_all_queries else at
        read = pick(normed, at)
        query = project(self.query, pick(normed, early))  # [B, S, D] -> [B, S, H, K]
        query = rotate(query, pick(positions, early), self.kind.rotary_base)
        key = rotate(project(self.key, normed), positions, self.kind.rotary_base)
        value = project(self.value, normed)
        kernel = kernel_for(self.kind, hidden, documents, at, is_dropping=False)
        if kernel is None:
            mask = pick(self.kind.restrict(mask, positions), early)
            attended = self._attend(query, key, value, mask, at)
        else:
            attended = kernel(query, key, value, positions)
        merged = self.dropout(project(self.merge, attended), training=training)  # [B, S, H, K] -> [B, S, D]
        return pick(hidden, at) + self.adapted(merged, read)

    def _attend(self, query, key, value, mask, at):
        if self.kind.attend is not None:
            return self.kind.attend(query, key, value, mask, at, drop=None)
        return keras_attention(query, key, value, mask)
