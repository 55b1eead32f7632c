"""The sublayers of `Bottleneck` blocks, and the scale and shift that stands where others have a norm."""

import keras
from keras import ops

from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.attention.dispatch import kernel_for
from rembed_keras.modeling.attention.full import softmax_attention
from rembed_keras.modeling.layers.draws import Dropout
from rembed_keras.modeling.layers.feed_forward import FeedForward
from rembed_keras.modeling.layers.sublayer import Sublayer, pick, project
from rembed_keras.modeling.layers.tables import initializer


class Affine(keras.layers.Layer):
    """Features times a scale each, plus a shift each: what is left of a norm that measures nothing.

    Args:
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call argument: [..., E]. Returns [..., E]. Source: Sun et al. 2020, section 3.4, equation 2, "NoNorm".

    >>> ops.convert_to_numpy(Affine()(np.array([[1.0, -2.0]]))).tolist()
    [[1.0, -2.0]]
    """

    def build(self, features_shape):
        self.gamma = self.add_weight(shape=features_shape[-1:], initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=features_shape[-1:], initializer="zeros", name="beta")

    def call(self, features):
        return features * ops.cast(self.gamma, features.dtype) + ops.cast(self.beta, features.dtype)


class NarrowAttention(Sublayer):
    """Attention among hidden states of width D whose queries, keys and outputs are of width B = H x K.

    Args:
        num_heads: H.
        head_dim: K, width of a head.
        dropout: rate on attention probabilities.
        kind: of attention; `attention.Global` by default.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments are those of `SelfAttention`. Returns [B, S, H x K], or [B, P, H x K].
    """

    def __init__(self, num_heads, head_dim, dropout=0.0, kind=None, name="attention", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.kind = kind or Global()
        self.width = num_heads * head_dim
        self.narrow, self.shared = (
            keras.layers.Dense(self.width, kernel_initializer=initializer(), name=name, dtype=dtype)
            for name in ("narrow", "shared")
        )
        self.query, self.key, self.value = (
            _einsum("bsd,dhk->bshk", (num_heads, head_dim), "hk", name, dtype) for name in ("query", "key", "value")
        )
        self.merge = _einsum("bshk,hkd->bsd", (self.width,), "d", "merge", dtype)
        self.dropout = Dropout(dropout, name="dropout", dtype=dtype)
        names = ("narrow_norm", "shared_norm", "norm")
        self.narrow_norm, self.shared_norm, self.norm = (Affine(name=name, dtype=dtype) for name in names)

    def build(self, hidden_shape):
        narrow_shape = (*hidden_shape[:-1], self.width)
        for layer, norm in ((self.narrow, self.narrow_norm), (self.shared, self.shared_norm)):
            layer.build(hidden_shape)
            norm.build(narrow_shape)
        for layer, shape in ((self.query, narrow_shape), (self.key, narrow_shape), (self.value, hidden_shape)):
            layer.build(shape)
        self.merge.build(self.query.compute_output_shape(narrow_shape))
        self.norm.build(narrow_shape)

    def host(self, layer, place, hidden_shape):
        """As of every sublayer; what is hosted here is of the narrow states."""
        super().host(layer, place, (*hidden_shape[:-1], self.width))

    @property
    def projections(self):
        """The matrices, by what they do."""
        return {"query": self.query, "key": self.key, "value": self.value, "output": self.merge}

    def queries_keys_values(self, hidden, positions):
        """What heads attend with: three times [B, S, D] -> [B, S, H, K]."""
        shared = self.shared_norm(project(self.shared, hidden))  # [B, S, D] -> [B, S, H x K]
        return [project(self.query, shared), project(self.key, shared), project(self.value, hidden)]

    def call(self, hidden, mask, positions=None, at=None, documents=None, training=None):
        shared = self.shared_norm(project(self.shared, hidden))  # [B, S, D] -> [B, S, H x K]
        early = None if self.kind.needs_all_queries else at
        query = project(self.query, pick(shared, early))  # [B, S, H x K] -> [B, S, H, K]
        key, value = project(self.key, shared), project(self.value, hidden)
        drop = (lambda shares: self.dropout(shares, training=True)) if self.dropout.rate and training else None
        kernel = kernel_for(self.kind, hidden, documents, at, drop is not None)
        if kernel is not None:
            attended = kernel(query, key, value, positions)
        else:
            mask = pick(self.kind.restrict(mask, positions), early)
            attended = self._attend(query, key, value, mask, at, drop)
        read = self.narrow_norm(project(self.narrow, pick(hidden, at)))
        return self.norm(read + self.adapted(project(self.merge, attended), read))  # [B, S, H, K] -> [B, S, H x K]

    def _attend(self, query, key, value, mask, at, drop):
        if self.kind.attend is not None:
            return self.kind.attend(query, key, value, mask, at, drop=drop)
        return softmax_attention(query, key, value, mask, drop)


def _einsum(equation, sizes, bias_axes, name, dtype):
    """A dense layer of heads, with initial weights of its own."""
    shape, kernel = (None, *sizes), initializer()
    return keras.layers.EinsumDense(
        equation, shape, bias_axes=bias_axes, kernel_initializer=kernel, name=name, dtype=dtype
    )


class NarrowFeedForward(Sublayer):
    """Feed-forward pairs of narrow states, a projection to the width of the hidden states, and the sum with these.

    Args:
        width: B, of what comes in.
        intermediate_dim: F, the width inside each pair.
        pairs: how many there are.
        dropout: rate on the projection's output.
        activation: as in `FeedForward`.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `narrow` [B, S, H x K] and `before` [B, S, D], what came into the block. Returns [B, S, D].
    """

    def __init__(self, width, intermediate_dim, pairs, dropout=0.0, activation="gelu", name="feed_forward", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.width = width
        names = [*(f"pair_{i}" for i in range(pairs - 1)), "last"]
        norms = (Affine(name="norm", dtype=dtype) for _ in names)
        self.pairs = [
            FeedForward(intermediate_dim, 0.0, activation, norm=norm, name=name, dtype=dtype)
            for name, norm in zip(names, norms, strict=True)
        ]
        self.dropout = Dropout(dropout, name="dropout", dtype=dtype)
        self.norm = Affine(name="norm", dtype=dtype)

    def build(self, hidden_shape):
        for pair in self.pairs:
            pair.build((*hidden_shape[:-1], self.width))
        self.wide = keras.layers.Dense(
            hidden_shape[-1], kernel_initializer=initializer(), name="wide", dtype=self.dtype_policy
        )
        self.wide.build((*hidden_shape[:-1], self.width))
        self.norm.build(hidden_shape)

    @property
    def projections(self):
        """The matrices of all pairs, those of the first under "0/up" and "0/down"."""
        each = enumerate(self.pairs)
        return {f"{i}/{name}": matrix for i, pair in each for name, matrix in pair.projections.items()}

    @property
    def adding(self):
        """The matrix whose products are added to the hidden states."""
        return self.wide

    def call(self, narrow, before, training=None):
        for pair in self.pairs:
            narrow = pair(narrow, training=training)  # [B, S, H x K] -> [B, S, H x K]
        wide = self.dropout(project(self.wide, narrow), training=training)  # -> [B, S, D]
        return self.norm(before + self.adapted(wide, before))
