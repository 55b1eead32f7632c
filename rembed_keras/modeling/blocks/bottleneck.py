"""The block of MobileBERT: attention and feed-forward pairs narrower than what they are added to.

A block is as wide outside as its neighbours and narrow inside, so that a deep encoder is small and its states can still
be compared, layer by layer, with those of a wide teacher. Source: Sun et al. 2020 (MobileBERT), sections 3.1 and 3.2.
"""

from types import MappingProxyType

from rembed_keras.errors import Count, UserError, check_counts, shortened
from rembed_keras.modeling.blocks.post_norm import PostNorm
from rembed_keras.modeling.cost import Config, Shape, Work, heads_of, inner_dim
from rembed_keras.modeling.sizes import MOST_LAYERS

PAIR = {"up": "intermediate.dense", "down": "output.dense", "norm": "output.LayerNorm"}


class Bottleneck(PostNorm):
    """Hidden states of width D are projected to B = H x K; attention, feed-forward pairs; and a projection back to D.

    Queries and keys are made of a second projection to B, values of the hidden states. Each part has its residual sum,
    which is scaled and shifted by feature instead of normed. B is the width of all heads together: `head_dim` says it.

    Args:
        pairs: feed-forward pairs, one after the other, each [B, F] and [F, B].

    Raises:
        UserError: for a number of pairs that is no positive whole number, or out of all reason.

    >>> from rembed_keras.modeling.cost import size_of
    >>> sizes = {"num_heads": 4, "hidden_dim": 512, "head_dim": 32, "intermediate_dim": 512}
    >>> size_of(Bottleneck().attention_shapes(sizes) + Bottleneck().feed_forward_shapes(sizes))
    842240
    """

    has_own_heads = True
    attention_outputs = 8
    feed_forward_kernels = 8
    usual_arguments = MappingProxyType({"activation": "relu"})
    huggingface_names = MappingProxyType(
        {
            "mobilebert": {
                "attention/narrow": "bottleneck.input.dense",
                "attention/narrow_norm": "bottleneck.input.LayerNorm",
                "attention/shared": "bottleneck.attention.dense",
                "attention/shared_norm": "bottleneck.attention.LayerNorm",
                "attention/query": "attention.self.query",
                "attention/key": "attention.self.key",
                "attention/value": "attention.self.value",
                "attention/merge": "attention.output.dense",
                "attention/norm": "attention.output.LayerNorm",
                **{f"feed_forward/last/{ours}": theirs for ours, theirs in PAIR.items()},
                **{f"feed_forward/pair_{{}}/{ours}": f"ffn.{{}}.{theirs}" for ours, theirs in PAIR.items()},
                "feed_forward/wide": "output.bottleneck.dense",
                "feed_forward/norm": "output.bottleneck.LayerNorm",
            }
        }
    )

    def __init__(self, pairs: Count = 4):
        check_counts({"the feed-forward pairs of blocks.Bottleneck": pairs})
        if pairs > MOST_LAYERS:
            said = f"the feed-forward pairs of blocks.Bottleneck are {shortened(pairs)}"
            raise UserError(f"{said}; they can be {MOST_LAYERS} at most")
        self.pairs = pairs
        self.feed_forward_kernels = 2 * pairs

    def attention(self, config: Config, kind, needs_norm: bool = True, dtype=None):
        """The attention sublayer, of [B, S, D]; what it gives is narrow."""
        from rembed_keras.modeling.blocks.bottleneck_layers import NarrowAttention

        return NarrowAttention(*heads_of(config), dropout=config["dropout"], kind=kind, dtype=dtype)

    def feed_forward(self, config: Config, dtype=None):
        """The feed-forward sublayer, of what attention gives and of what came into the block, [B, S, D]."""
        from rembed_keras.modeling.blocks.bottleneck_layers import NarrowFeedForward

        sizes = inner_dim(config), config["intermediate_dim"], self.pairs
        return NarrowFeedForward(*sizes, dropout=config["dropout"], activation=config["activation"], dtype=dtype)

    def attention_shapes(self, config: Config, needs_norm: bool = True) -> tuple[Shape, ...]:
        """Shapes of the attention sublayer's variables."""
        hidden, narrow, heads = config["hidden_dim"], inner_dim(config), heads_of(config)
        entry = ((hidden, narrow), (narrow,), (narrow,), (narrow,))  # with its scale and shift
        projections = tuple(shape for width in (narrow, narrow, hidden) for shape in ((width, *heads), heads))
        return (*entry, *projections, *entry, (*heads, narrow), (narrow,), (narrow,), (narrow,))

    def feed_forward_shapes(self, config: Config) -> tuple[Shape, ...]:
        """Shapes of the feed-forward sublayer's variables."""
        hidden, narrow, wide = config["hidden_dim"], inner_dim(config), config["intermediate_dim"]
        pair = ((narrow, wide), (wide,), (wide, narrow), (narrow,), (narrow,), (narrow,))
        return (*pair * self.pairs, (narrow, hidden), (hidden,), (hidden,), (hidden,))

    def work(self, config: Config, kind, length: int) -> Work:
        """What the block does with each token, S tokens being attended to."""
        hidden, narrow, wide = config["hidden_dim"], inner_dim(config), config["intermediate_dim"]
        pairs = Work(
            flops=4 * self.pairs * narrow * wide + 2 * narrow * hidden,
            needed_of_all=0,
            activations=self.pairs * (2 * narrow + 2 * wide) + narrow + hidden,
        )
        return self.projection_work(config, kind) + kind.work(config, length) + pairs

    def projection_work(self, config: Config, kind) -> Work:
        """Both projections to B, queries, keys, values, and the heads' outputs put together."""
        hidden, narrow = config["hidden_dim"], inner_dim(config)
        of_keys = 4 * hidden * narrow + 2 * narrow * narrow  # with values, and with what keys are made of
        return Work(
            flops=6 * hidden * narrow + 6 * narrow * narrow,
            needed_of_all=of_keys + 2 * narrow * narrow * kind.needs_all_queries,
            activations=hidden + 8 * narrow,
        )
