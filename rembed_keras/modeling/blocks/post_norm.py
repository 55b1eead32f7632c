"""BERT's block: the norm after each residual sum. Source: Devlin et al. 2019."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rembed_keras.modeling.cost import Config, Shape, Work, heads_of, inner_dim
from rembed_keras.modeling.saving.arguments import arguments_of

BERT = {
    "attention/heads/query": "attention.self.query",
    "attention/heads/key": "attention.self.key",
    "attention/heads/value": "attention.self.value",
    "attention/heads/attention_output": "attention.output.dense",
    "attention/norm": "attention.output.LayerNorm",
    "feed_forward/up": "intermediate.dense",
    "feed_forward/down": "output.dense",
    "feed_forward/norm": "output.LayerNorm",
}
NAMES = {
    "bert": BERT,
    "albert": {
        "attention/heads/query": "attention.query",
        "attention/heads/key": "attention.key",
        "attention/heads/value": "attention.value",
        "attention/heads/attention_output": "attention.dense",
        "attention/norm": "attention.LayerNorm",
        "feed_forward/up": "ffn",
        "feed_forward/down": "ffn_output",
        "feed_forward/norm": "full_layer_layer_norm",
    },
    "distilbert": {
        "attention/heads/query": "attention.q_lin",
        "attention/heads/key": "attention.k_lin",
        "attention/heads/value": "attention.v_lin",
        "attention/heads/attention_output": "attention.out_lin",
        "attention/norm": "sa_layer_norm",
        "feed_forward/up": "ffn.lin1",
        "feed_forward/down": "ffn.lin2",
        "feed_forward/norm": "output_layer_norm",
    },
    "deberta-v2": BERT
    | {
        "attention/heads/query": "attention.self.query_proj",
        "attention/heads/key": "attention.self.key_proj",
        "attention/heads/value": "attention.self.value_proj",
    },
}


class PostNorm:
    """Attention and a feed-forward pair, each followed by its residual sum and a norm; biases, and a position table.

    A kind of block has these methods and attributes.

    Attributes:
        has_position_table: whether positions are embedded; if not, attention knows them.
        has_biases: whether dense layers and norms have biases, those outside the blocks too.
        norms_first: whether norms stand before sublayers, so that the stack ends in a norm of its own.
        feed_forward_kernels: how many [D, F] kernels the feed-forward sublayer has, for which F makes up.
        usual_arguments: of an encoder, that such blocks come with where they are proposed.
        is_rotary: whether attention turns queries and keys by its `rotary_base`.
        has_own_heads: whether it has no place for heads that a kind of attention brings.
        norms_embeddings: whether the sum of the embedding tables is normed.
        attention_outputs: how many of the attention sublayer's variables, the last ones of `attention_shapes`, queries,
            keys and values are not made with; 4 if a block does not say it, a matrix, its bias and the norm.
        huggingface_names: what models of Hugging Face's that have its graph call its layers, by ours, under the name of
            the family that names them so; `[i/n]` is the i-th part of n that are one array.

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
    is_rotary = False
    has_own_heads = False
    norms_embeddings = True
    huggingface_names: Mapping[str, Mapping[str, str]] = MappingProxyType(NAMES)

    def attention(self, config: Config, kind, needs_norm: bool = True, dtype=None):
        """The attention sublayer.

        Args:
            config: an encoder's arguments.
            kind: of attention; see `modeling.attention`.
            needs_norm: whether what comes in is not normed yet; only blocks with norms first ask.
            dtype: dtype or policy of the layer.
        """
        from rembed_keras.modeling.layers.attention import SelfAttention

        heads = kind.heads(config, dtype)
        return SelfAttention(*heads_of(config), kind=kind, heads=heads, **self.rates(config), dtype=dtype)

    def feed_forward(self, config: Config, dtype=None):
        """The feed-forward sublayer."""
        from rembed_keras.modeling.layers.feed_forward import FeedForward

        activation = config["activation"]
        return FeedForward(config["intermediate_dim"], activation=activation, **self.rates(config), dtype=dtype)

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

    def rates(self, config: Config) -> dict[str, float]:
        """The dropout rate and the epsilon of sublayers."""
        return {"dropout": config["dropout"], "layer_norm_epsilon": config["layer_norm_epsilon"]}

    def get_config(self) -> dict:
        """The arguments that it was made with: those that it keeps under their names."""
        return arguments_of(self)

    @classmethod
    def from_config(cls, config: dict) -> "PostNorm":
        """A kind of such arguments."""
        return cls(**config)
