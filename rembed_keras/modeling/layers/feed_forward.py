"""Feed-forward sublayers: BERT's, with the norm last or first, and the gated one with the norm first."""

import keras
from keras import ops

from rembed_keras.modeling.layers.activation import activation_function
from rembed_keras.modeling.layers.draws import Dropout
from rembed_keras.modeling.layers.sublayer import Sublayer, project
from rembed_keras.modeling.layers.tables import initializer


class FeedForward(Sublayer):
    """BERT's feed-forward pair, the residual sum, and the norm after it.

    Args:
        intermediate_dim: F, the width between the two dense layers.
        dropout: rate on the residual branch.
        activation: "gelu", "gelu_tanh" or "relu".
        layer_norm_epsilon: the norm's epsilon.
        norm: another norm, a layer.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call argument: `hidden` [B, S, D]. Returns [B, S, D].
    """

    def __init__(
        self,
        intermediate_dim,
        dropout=0.0,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        norm=None,
        name="feed_forward",
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.up = keras.layers.Dense(intermediate_dim, kernel_initializer=initializer(), name="up", dtype=dtype)
        self.activation = activation_function(activation)
        self.dropout = Dropout(dropout, name="dropout", dtype=dtype)
        self.norm = norm or keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="norm", dtype=dtype)

    def build(self, hidden_shape):
        self.down = keras.layers.Dense(
            hidden_shape[-1], kernel_initializer=initializer(), name="down", dtype=self.dtype_policy
        )
        self.up.build(hidden_shape)
        self.down.build((*hidden_shape[:-1], self.up.units))
        self.norm.build(hidden_shape)

    @property
    def projections(self):
        """The matrices, by what they do."""
        return {"up": self.up, "down": self.down}

    def call(self, hidden, training=None):
        wide = self.activation(project(self.up, hidden))  # [B, S, D] -> [B, S, F]
        narrow = self.dropout(project(self.down, wide), training=training)  # -> [B, S, D]
        return self.norm(hidden + self.adapted(narrow, hidden))


class PreNormFeedForward(FeedForward):
    """The norm, the feed-forward pair, and the residual sum; arguments and calls are those of `FeedForward`."""

    def call(self, hidden, training=None):
        normed = self.norm(hidden)
        wide = self.activation(project(self.up, normed))  # [B, S, D] -> [B, S, F]
        narrow = self.dropout(project(self.down, wide), training=training)  # -> [B, S, D]
        return hidden + self.adapted(narrow, normed)


class GatedFeedForward(Sublayer):
    """A feed-forward pair over normed hidden states whose inner features are gated, added to what came in; no biases.

    Args:
        intermediate_dim: F, the width between the dense layers; the first is twice as wide, values and gates.
        dropout: rate on the residual branch.
        activation: "gelu", "gelu_tanh" or "relu".
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
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, center=False, name="norm", dtype=dtype)
        self.up = self._dense(2 * intermediate_dim, "up")
        self.activation = activation_function(activation)
        self.dropout = Dropout(dropout, name="dropout", dtype=dtype)

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
        normed = self.norm(hidden)
        values, gates = ops.split(project(self.up, normed), 2, axis=-1)  # [B, S, D] -> twice [B, S, F]
        narrow = self.dropout(project(self.down, self.activation(values) * gates), training=training)  # -> [B, S, D]
        return hidden + self.adapted(narrow, normed)
