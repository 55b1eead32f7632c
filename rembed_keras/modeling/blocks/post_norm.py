"""BERT's block: the norm after each residual sum. Source: Devlin et al. 2019."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rembed_keras.modeling.cost import Config, Shape, Work, heads_of, inner_dim


class PostNorm:
    """Attention and a feed-forward pair, each followed by its residual sum and a norm; biases, and a position table.

    A kind of block has these methods and attributes.

    Attributes:
        has_position_table: whether positions are embedded; if not, attention knows them.
        has_biases: whether dense layers and norms have biases, those outside the blocks too.
        norms_first: whether norms stand before sublayers, so that the stack ends in a norm of its own.
        feed_forward_kernels: how many [D, F] kernels the feed-forward sublayer has, for which F makes up.
        usual_arguments: of an encoder, that such blocks come with where they are proposed.
        huggingface_families: which models of Hugging Face's have its graph; see `interop.names`.

    >>> from rembed_keras.modeling.cost import size_of
    >>> sizes = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 32}
    >>> size_of(PostNorm().attention_shapes(sizes) + PostNorm().feed_forward_shapes(sizes)) == 12 * 8**2 + 13 * 8
    True
    """

    has_position_table = True
    has_biases = True
    norms_first = False
    feed_forward_kernels = 2
    usual_arguments: Mapping[str, Any] = MappingProxyType({})
    huggingface_families: tuple[str, ...] = ("rembert", "bert", "xlm-roberta", "albert", "electra")

    def attention(self, config: Config, kind, needs_norm: bool = True, dtype=None):
        """The attention sublayer.

        Args:
            config: an encoder's arguments.
            kind: of attention; see `modeling.attention`.
            needs_norm: whether what comes in is not normed yet; only blocks with norms first ask.
            dtype: dtype or policy of the layer.
        """
        from rembed_keras.modeling.layers.attention import SelfAttention

        return SelfAttention(*heads_of(config), kind=kind, **_rates(config), dtype=dtype)

    def feed_forward(self, config: Config, dtype=None):
        """The feed-forward sublayer."""
        from rembed_keras.modeling.layers.feed_forward import FeedForward

        activation = config["activation"]
        return FeedForward(config["intermediate_dim"], activation=activation, **_rates(config), dtype=dtype)

    def attention_shapes(self, config: Config, needs_norm: bool = True) -> tuple[Shape, ...]:
        """Shapes of the attention sublayer's variables."""
        hidden, (heads, head_dim) = config["hidden_dim"], heads_of(config)
        projections = ((hidden, heads, head_dim), (heads, head_dim)) * 3  # query, key, value
        return (*projections, (heads, head_dim, hidden), (hidden,), (hidden,), (hidden,))

    def feed_forward_shapes(self, config: Config) -> tuple[Shape, ...]:
        """Shapes of the feed-forward sublayer's variables."""
        hidden, wide = config["hidden_dim"], config["intermediate_dim"]
        return (hidden, wide), (wide,), (wide, hidden), (hidden,), (hidden,), (hidden,)

    def work(self, config: Config, kind, length: int) -> Work:
        """What the block does with each token, S tokens being attended to."""
        hidden, wide = config["hidden_dim"], config["intermediate_dim"]
        feed_forward = Work(flops=4 * hidden * wide, needed_of_all=0, activations=2 * hidden + 2 * wide)
        return self.projection_work(config, kind) + kind.work(config, length) + feed_forward

    def projection_work(self, config: Config, kind) -> Work:
        """Queries, keys, values, and the heads' outputs put together."""
        hidden, inner = config["hidden_dim"], inner_dim(config)
        needed_of_all = (6 if kind.needs_all_queries else 4) * hidden * inner
        return Work(flops=8 * hidden * inner, needed_of_all=needed_of_all, activations=2 * hidden + 4 * inner)

    def get_config(self) -> dict:
        """The arguments that it was made with."""
        return {}

    @classmethod
    def from_config(cls, config: dict) -> "PostNorm":
        """A kind of such arguments."""
        return cls(**config)


def _rates(config):
    return {"dropout": config["dropout"], "layer_norm_epsilon": config["layer_norm_epsilon"]}
