"""A block: BERT's, with a gain for each hidden feature in front of the feed-forward pair's residual sum."""

from collections.abc import Mapping
from types import MappingProxyType

import keras

from rembed_keras.modeling.blocks import PostNorm
from rembed_keras.modeling.layers.feed_forward import FeedForward


class ScaledFeedForward(FeedForward):
    """BERT's feed-forward pair, what it adds multiplied by a learned gain [D] that starts at `gain`."""

    def __init__(self, intermediate_dim, gain, **arguments):
        super().__init__(intermediate_dim, **arguments)
        self.first_gain = gain

    def build(self, hidden_shape):
        super().build(hidden_shape)
        self.gain = self.add_weight(
            shape=hidden_shape[-1:], initializer=keras.initializers.Constant(self.first_gain), name="gain"
        )

    def adapted(self, branch, read):
        return super().adapted(branch * self.gain, read)  # [B, S, D]


@keras.saving.register_keras_serializable(package="own_parts")
class LayerScale(PostNorm):
    """BERT's block with a gain on its feed-forward pair. Source: Touvron et al. 2021 (CaiT), section 2.1.

    >>> LayerScale(0.5).feed_forward_shapes({"hidden_dim": 4, "intermediate_dim": 8})[-1]
    (4,)
    """

    huggingface_names: Mapping[str, Mapping[str, str]] = MappingProxyType({})  # no such model has its graph

    def __init__(self, gain: float = 0.1):
        self.gain = gain

    def feed_forward(self, config, dtype=None):
        return ScaledFeedForward(
            config["intermediate_dim"],
            self.gain,
            activation=config["activation"],
            dropout=config["dropout"],
            layer_norm_epsilon=config["layer_norm_epsilon"],
            dtype=dtype,
        )

    def feed_forward_shapes(self, config):
        return (*super().feed_forward_shapes(config), (config["hidden_dim"],))

    def get_config(self):
        return {"gain": self.gain}
