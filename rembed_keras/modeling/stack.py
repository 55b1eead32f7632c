"""The stack of blocks: which kind they are, which of them share weights, and a mix of all their outputs."""

import keras
from keras import ops

from rembed_keras.modeling.modern import GatedFeedForward, RotaryAttention
from rembed_keras.modeling.transformer import FeedForward, SelfAttention, TransformerBlock
from rembed_keras.sizes import groups_of_layers, shares_attention

BLOCKS = ("bert", "modern")
SHARING = ("none", "attention", "feed_forward", "all")


def make_blocks(config: dict, dtype=None, input_is_normed: bool = True, prefix: str = "") -> list[TransformerBlock]:
    """The blocks of an encoder, sublayers of a group being the same object where they are shared.

    Args:
        config: the encoder's arguments, all of them.
        dtype: dtype or policy of the layers.
        input_is_normed: whether what comes in is normed, so that attention of the first modern block, if it is no
            other's too, needs no norm.
        prefix: what the blocks' names begin with.
    """
    is_bert, sharing = config["block"] == "bert", config["layer_sharing"]
    rates = {"dropout": config["dropout"], "layer_norm_epsilon": config["layer_norm_epsilon"], "dtype": dtype}
    heads = config["num_heads"]
    head_dim = config["head_dim"] or config["hidden_dim"] // heads

    def attention(layer):
        if is_bert:
            return SelfAttention(heads, head_dim, **rates)
        # shared attention also reads what layers added, and has its norm wherever it is first used
        is_first = layer == 0 and input_is_normed and not shares_attention(config)
        return RotaryAttention(heads, head_dim, is_first=is_first, **rates)

    def feed_forward(layer):
        kind = FeedForward if is_bert else GatedFeedForward
        return kind(config["intermediate_dim"], activation=config["activation"], **rates)

    groups = groups_of_layers(config["num_layers"], config["layer_groups"])
    attentions = _shared(attention, groups, shares_attention(config))
    pairs = zip(attentions, _shared(feed_forward, groups, sharing in ("feed_forward", "all")), strict=True)
    return [TransformerBlock(*pair, name=f"{prefix}block_{i}", dtype=dtype) for i, pair in enumerate(pairs)]


def _shared(make, groups, is_shared):
    """A sublayer for each layer, made once for each group if it is shared."""
    if not is_shared:
        return [make(layer) for layer in range(len(groups))]
    made = {}
    for layer, group in enumerate(groups):
        if group not in made:
            made[group] = make(layer)
    return [made[group] for group in groups]


@keras.saving.register_keras_serializable(package="rembed_keras")
class ScalarMix(keras.layers.Layer):
    """A weighted sum of layers, with one learned weight each and a learned scale.

    Args:
        num_states: how many there are, L + 1 with the projected embeddings.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call argument: a list of arrays of one shape. Returns one of that shape; their mean, before anything is learned.
    Source: Peters et al. 2018, equation 1; used on encoders of many layers in Chadha and others' BERMo.

    >>> float(ScalarMix(2)([np.array([1.0]), np.array([3.0])])[0])
    2.0
    """

    def __init__(self, num_states, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.num_states = num_states

    def build(self, states_shape=None):
        self.weight = self.add_weight(shape=(self.num_states,), initializer="zeros", name="weight")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def compute_output_shape(self, states_shape):
        return states_shape[0]

    def call(self, states):
        shares = ops.softmax(self.weight) * self.scale
        return sum(ops.cast(shares[i], state.dtype) * state for i, state in enumerate(states))
