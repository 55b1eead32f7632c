"""Today's block: the norm before each sublayer, rotary positions, a gated feed-forward pair, no biases.

It is the block of ModernBERT and mmBERT with global attention in every layer, here to be given RemBERT's allocation of
embeddings. Positions are rotations of queries and keys, restarting with every document of a packed row, so there is no
table of positions and no longest text but the one that fits memory.
"""

import math

import keras
from keras import ops

from rembed_keras.modeling.blocks.post_norm import Sublayer, activation_function, pick, project
from rembed_keras.modeling.layers.tables import initializer


def rotate(x, positions, base=10_000.0):
    """Turns pairs of features by angles that grow with a token's position: rotary positions.

    Args:
        x: [B, S, H, K], K even; feature i is turned together with feature i + K / 2.
        positions: int [B, S].
        base: the slowest pair turns once in 2 pi times about this many tokens.

    Returns:
        As x. The product of two tokens' features depends on their positions by the difference alone.

    Source: Su et al. 2021.

    >>> x = np.ones((1, 2, 1, 4), "float32")
    >>> bool(np.allclose(rotate(x, np.array([[0, 1]]))[0, 0], x[0, 0]))
    True
    """
    half = x.shape[-1] // 2
    speeds = ops.exp(ops.arange(half, dtype="float32") * (-math.log(base) / half))  # [K / 2]
    angles = ops.cast(positions, "float32")[:, :, None, None] * speeds  # [B, S, 1, K / 2]
    cosine, sine = ops.cast(ops.cos(angles), x.dtype), ops.cast(ops.sin(angles), x.dtype)
    left, right = x[..., :half], x[..., half:]
    return ops.concatenate([left * cosine - right * sine, right * cosine + left * sine], axis=-1)


def _norm(epsilon, name, dtype):
    return keras.layers.LayerNormalization(epsilon=epsilon, center=False, name=name, dtype=dtype)


class RotaryAttention(Sublayer):
    """Attention over normed hidden states with rotary positions, added to what came in; no biases.

    Args:
        num_heads: H.
        head_dim: width of a head, even.
        dropout: rate on the residual branch.
        layer_norm_epsilon: the norm's epsilon.
        is_first: whether what comes in is normed already, so that there is no norm here.
        rotary_base: see `rotate`.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `hidden` [B, S, D], `mask` bool [B, S, S], `positions` int [B, S]; `at` int [B, P], the only
    tokens to compute, or None. Returns [B, S, D], or [B, P, D].
    """

    def __init__(
        self,
        num_heads,
        head_dim,
        dropout=0.0,
        layer_norm_epsilon=1e-5,
        is_first=False,
        rotary_base=10_000.0,
        name="attention",
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.rotary_base = rotary_base
        self.norm = None if is_first else _norm(layer_norm_epsilon, "norm", dtype)
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
        self.dropout = keras.layers.Dropout(dropout, name="dropout", dtype=dtype)

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

    def call(self, hidden, mask, positions=None, at=None, training=None):
        normed = hidden if self.norm is None else self.norm(hidden)
        query = project(self.query, pick(normed, at))  # [B, S, D] -> [B, S, H, K]
        query = rotate(query, pick(positions, at), self.rotary_base)
        key = rotate(project(self.key, normed), positions, self.rotary_base)
        attended = ops.dot_product_attention(query, key, project(self.value, normed), mask=pick(mask, at)[:, None])
        merged = self.dropout(project(self.merge, attended), training=training)  # [B, S, H, K] -> [B, S, D]
        return pick(hidden, at) + self.adapted(merged)


class GatedFeedForward(Sublayer):
    """A feed-forward pair over normed hidden states whose inner features are gated, added to what came in; no biases.

    Args:
        intermediate_dim: F, the width between the dense layers; the first is twice as wide, values and gates.
        dropout: rate on the residual branch.
        activation: "gelu" or "gelu_tanh".
        layer_norm_epsilon: the norm's epsilon.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call argument: `hidden` [B, S, D]. Returns [B, S, D]. Source: Shazeer 2020.
    """

    def __init__(
        self, intermediate_dim, dropout=0.0, activation="gelu", layer_norm_epsilon=1e-5, name="feed_forward", dtype=None
    ):
        super().__init__(name=name, dtype=dtype)
        self.intermediate_dim = intermediate_dim
        self.norm = _norm(layer_norm_epsilon, "norm", dtype)
        self.up = self._dense(2 * intermediate_dim, "up")
        self.activation = activation_function(activation)
        self.dropout = keras.layers.Dropout(dropout, name="dropout", dtype=dtype)

    def _dense(self, units, name):
        return keras.layers.Dense(
            units, use_bias=False, kernel_initializer=initializer(), name=name, dtype=self.dtype_policy
        )

    def build(self, hidden_shape):
        self.norm.build(hidden_shape)
        self.up.build(hidden_shape)
        self.down = self._dense(hidden_shape[-1], "down")
        self.down.build((*hidden_shape[:-1], self.intermediate_dim))

    @property
    def projections(self):
        """The matrices, by what they do."""
        return {"up": self.up, "down": self.down}

    def call(self, hidden, training=None):
        values, gates = ops.split(self.up(self.norm(hidden)), 2, axis=-1)  # [B, S, D] -> twice [B, S, F]
        narrow = self.dropout(self.down(self.activation(values) * gates), training=training)  # -> [B, S, D]
        return hidden + self.adapted(narrow)
