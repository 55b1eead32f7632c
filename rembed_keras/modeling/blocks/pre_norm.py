"""The block of ModernBERT and mmBERT: the norm before each sublayer, rotary positions, GeGLU, no biases.

Positions are rotations of queries and keys, restarting with every document of a packed row, so there is no table of
positions and no longest text but the one that fits memory.
"""

from types import MappingProxyType

from rembed_keras.modeling.blocks.post_norm import PostNorm
from rembed_keras.modeling.cost import Config, Shape, Work, heads_of


class PreNorm(PostNorm):
    """A norm, attention with rotary positions, the residual sum; a norm, a gated feed-forward pair, the residual sum.

    Source: Warner et al. 2024 (ModernBERT); Su et al. 2021; Shazeer 2020.
    """

    has_position_table = False
    has_biases = False
    norms_first = True
    feed_forward_kernels = 3
    usual_arguments = MappingProxyType({"num_segments": 0, "layer_norm_epsilon": 1e-5})
    is_rotary = True
    attention_outputs = 1
    huggingface_names = MappingProxyType(
        {
            "modernbert": {
                "attention/norm": "attn_norm",
                "attention/query": "attn.Wqkv[0/3]",
                "attention/key": "attn.Wqkv[1/3]",
                "attention/value": "attn.Wqkv[2/3]",
                "attention/merge": "attn.Wo",
                "feed_forward/norm": "mlp_norm",
                "feed_forward/up": "mlp.Wi",
                "feed_forward/down": "mlp.Wo",
            }
        }
    )

    def attention(self, config: Config, kind, needs_norm: bool = True, dtype=None):
        """The attention sublayer, without its norm where what comes in is normed."""
        from rembed_keras.modeling.layers.attention import RotaryAttention

        return RotaryAttention(
            *heads_of(config),
            dropout=config["dropout"],
            layer_norm_epsilon=config["layer_norm_epsilon"],
            has_norm=needs_norm,
            kind=kind,
            dtype=dtype,
        )

    def feed_forward(self, config: Config, dtype=None):
        """The feed-forward sublayer."""
        from rembed_keras.modeling.layers.feed_forward import GatedFeedForward

        return GatedFeedForward(
            config["intermediate_dim"],
            dropout=config["dropout"],
            activation=config["activation"],
            layer_norm_epsilon=config["layer_norm_epsilon"],
            dtype=dtype,
        )

    def attention_shapes(self, config: Config, needs_norm: bool = True) -> tuple[Shape, ...]:
        """Shapes of the attention sublayer's variables."""
        hidden, (heads, head_dim) = config["hidden_dim"], heads_of(config)
        norm = ((hidden,),) if needs_norm else ()
        return (*norm, *((hidden, heads, head_dim),) * 3, (heads, head_dim, hidden))

    def feed_forward_shapes(self, config: Config) -> tuple[Shape, ...]:
        """Shapes of the feed-forward sublayer's variables; values and gates come from one kernel."""
        hidden, wide = config["hidden_dim"], config["intermediate_dim"]
        return (hidden,), (hidden, 2 * wide), (wide, hidden)

    def work(self, config: Config, kind, length: int) -> Work:
        """What the block does with each token, S tokens being attended to."""
        hidden, wide = config["hidden_dim"], config["intermediate_dim"]
        feed_forward = Work(flops=6 * hidden * wide, needed_of_all=0, activations=2 * hidden + 4 * wide)
        return self.projection_work(config, kind) + kind.work(config, length) + feed_forward
