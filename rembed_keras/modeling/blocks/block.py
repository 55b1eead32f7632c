"""A transformer block: attention, then feed-forward."""

import inspect

import keras

from rembed_keras import compat
from rembed_keras.errors import UserError
from rembed_keras.modeling.gathering import gathering
from rembed_keras.modeling.layers.sublayer import PLACES, pick
from rembed_keras.modeling.saving.cloning import made_with_its_model


class TransformerBlock(keras.layers.Layer):
    """Attention, then feed-forward; both may be held by other blocks too, and then share their weights.

    Args:
        attention: a layer of `hidden`, `mask` and `positions`, and of `documents`, if its `call` has them.
        feed_forward: a layer of `hidden`, and of `before`, what came into the block, if its `call` has it.
        rematerialize: whether training keeps only `hidden` of what is computed here, and computes the rest once more
            for the gradient.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Raises:
        UserError: for what is no `Sublayer`; and, when it is built, for sublayers that draw random numbers where they
            would be computed once more.

    Call arguments: `hidden` [B, S, D], `mask` bool [B, S, S], `positions` int [B, S], `at` int [B, P] or None,
    `documents` int [B, S] or None. Returns [B, S, D], or, if `at` says that no other tokens are needed, theirs,
    [B, P, D].
    Source: Devlin et al. 2019; 12D^2 + 13D parameters at F = 4D.

    >>> from rembed_keras.modeling.layers.attention import SelfAttention
    >>> from rembed_keras.modeling.layers.feed_forward import FeedForward
    >>> block = TransformerBlock(SelfAttention(num_heads=2, head_dim=4), FeedForward(intermediate_dim=32))
    >>> tuple(block(np.zeros((1, 3, 8), "float32"), np.ones((1, 3, 3), bool)).shape)
    (1, 3, 8)
    >>> block.count_params() == 12 * 8**2 + 13 * 8
    True
    """

    get_config = made_with_its_model

    def __init__(self, attention, feed_forward, rematerialize=False, name=None, dtype=None):
        for sublayer in (attention, feed_forward):
            if not all(hasattr(sublayer, place) for place in PLACES):
                raise UserError(f"{type(sublayer).__name__} is no sublayer: derive it from layers.sublayer.Sublayer")
        super().__init__(name=name, dtype=dtype)
        self.attention = attention
        self.feed_forward = feed_forward
        self.rematerialize = rematerialize
        self.tells_documents = "documents" in inspect.signature(attention.call).parameters
        self.tells_before = "before" in inspect.signature(feed_forward.call).parameters

    def build(self, hidden_shape, mask_shape=None, positions_shape=None, at_shape=None, documents_shape=None):
        for sublayer in (self.attention, self.feed_forward):
            if not sublayer.built:
                sublayer.build(hidden_shape)
        if self.rematerialize and len(self.variables) > len(self.weights):  # states of random generators
            raise UserError("rematerialize needs blocks that draw no random numbers: the second pass draws others")

    def compute_output_shape(
        self, hidden_shape, mask_shape=None, positions_shape=None, at_shape=None, documents_shape=None
    ):
        return hidden_shape if at_shape is None else (*at_shape, hidden_shape[-1])

    def call(self, hidden, mask, positions=None, at=None, documents=None, training=None):
        told = {"documents": documents} if self.tells_documents else {}

        def apply(hidden):  # of one argument, as Keras's `remat` wants it
            attended = self.attention(hidden, mask, positions, at=at, **told, training=training)
            also = {"before": pick(hidden, at)} if self.tells_before else {}
            return self.feed_forward(attended, **also, training=training)

        if not (self.rematerialize and training):
            return gathering(self, apply)(hidden)

        def apply_again(hidden):  # losses that are added inside would be lost, or added twice
            applied, losses = compat.taking_losses(self, lambda: gathering(self, apply)(hidden))
            return applied, *losses

        applied, *losses = keras.remat(apply_again)(hidden)
        self.add_loss(losses)
        return applied
