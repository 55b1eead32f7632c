"""The block of XLM-R XL and XXL: BERT's, with the norm before each sublayer. Source: Goyal et al. 2021, section 2."""

from types import MappingProxyType

from rembed_keras.modeling.blocks.post_norm import PostNorm
from rembed_keras.modeling.cost import Config, Shape, heads_of


class PreNormBert(PostNorm):
    """A norm, attention, the residual sum; a norm, a feed-forward pair, the residual sum; biases, and a position table.

    Embeddings have no norm: the first layer's is the first. The stack ends in a norm of its own.
    """

    norms_first = True
    norms_embeddings = False
    attention_outputs = 2
    usual_arguments = MappingProxyType({"layer_norm_epsilon": 1e-5})
    huggingface_names = MappingProxyType(
        {
            "xlm-roberta-xl": {
                "attention/norm": "attention.self_attn_layer_norm",
                "attention/heads/query": "attention.self.query",
                "attention/heads/key": "attention.self.key",
                "attention/heads/value": "attention.self.value",
                "attention/heads/attention_output": "attention.output.dense",
                "feed_forward/norm": "LayerNorm",
                "feed_forward/up": "intermediate.dense",
                "feed_forward/down": "output.dense",
            }
        }
    )

    def attention(self, config: Config, kind, needs_norm: bool = True, dtype=None):
        """The attention sublayer; it has a norm in every layer."""
        from rembed_keras.modeling.layers.attention import PreNormAttention

        heads = kind.heads(config, dtype)
        return PreNormAttention(*heads_of(config), kind=kind, heads=heads, **self.rates(config), dtype=dtype)

    def attention_shapes(self, config: Config, needs_norm: bool = True) -> tuple[Shape, ...]:
        """Shapes of the attention sublayer's variables, those of its norm first."""
        shapes = super().attention_shapes(config, needs_norm)
        return (*shapes[-2:], *shapes[:-2])

    def feed_forward(self, config: Config, dtype=None):
        """The feed-forward sublayer."""
        from rembed_keras.modeling.layers.feed_forward import PreNormFeedForward

        activation = config["activation"]
        return PreNormFeedForward(config["intermediate_dim"], activation=activation, **self.rates(config), dtype=dtype)
