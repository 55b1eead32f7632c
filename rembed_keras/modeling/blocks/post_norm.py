"""The encoder's blocks: BERT's, with the norm after each residual sum, and what every kind of block is made of.

A block is two sublayers, attention and feed-forward, each of which adds to the hidden states; sharing layers means that
several blocks hold the same sublayer. Attention and dense layers are Keras's own, so that LoRA, quantization and mixed
precision work on them. What is ours is who may look at whom: rows are packed with several documents, and a token
attends to its own document only.
"""

import math
from functools import partial

import keras
from keras import ops

from rembed_keras.errors import UserError
from rembed_keras.modeling.layers.tables import initializer

ACTIVATIONS = ("gelu", "gelu_tanh")


def activation_function(name):
    """GELU in the form that `name` asks for.

    Args:
        name: "gelu", with the error function, as in PyTorch's RemBERT; or "gelu_tanh", the approximation of the
            original TensorFlow code. The two differ by up to 5e-3 after 32 layers.

    Returns:
        A function from a tensor to a tensor of the same shape.

    Raises:
        ValueError: for any other name.

    >>> float(activation_function("gelu")(0.0))
    0.0
    """
    if name not in ACTIVATIONS:
        raise UserError(f"activation is {name!r}; it can be 'gelu' (exact) or 'gelu_tanh' (approximate)")
    return partial(keras.activations.gelu, approximate=True) if name == "gelu_tanh" else _gelu


def _gelu(x):
    """GELU by erf, as PyTorch's; by erfc, as Keras's, it takes XLA on CPUs three times as long to compute.

    Where x is negative 1 + erf(x) has few digits left, of half precision none: that is computed in float32.
    """
    x = ops.convert_to_tensor(x)
    wide = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    return ops.cast(0.5 * wide * (1.0 + ops.erf(wide * math.sqrt(0.5))), x.dtype)


def attention_mask(padding_mask):
    """Who may attend to whom in packed and padded rows.

    Args:
        padding_mask: int or bool [B, S]; 0 for padding, documents numbered 1, 2, 3, ...

    Returns:
        bool [B, S, S]: query i may look at key j when both are of one document. Padding is never looked at; a
        padding query looks at every real key, as in BERT, so that no softmax is empty.

    >>> np.asarray(attention_mask(np.array([[1, 2, 0]]))).astype(int).tolist()
    [[[1, 0, 0], [0, 1, 0], [1, 1, 0]]]
    """
    padding_mask = ops.cast(padding_mask, "int32")
    query, key = padding_mask[:, :, None], padding_mask[:, None, :]
    return ops.logical_and(key > 0, ops.logical_or(ops.equal(query, key), ops.equal(query, 0)))


def pick(values, at):
    """Values of some tokens: [B, S, ...] at int [B, P] -> [B, P, ...]; the values themselves if `at` is None.

    >>> ops.convert_to_numpy(pick(np.array([[5, 6, 7]]), np.array([[2, 0]]))).tolist()
    [[7, 5]]
    """
    if at is None:
        return values
    return ops.take_along_axis(values, ops.reshape(at, (*ops.shape(at), *[1] * (len(values.shape) - 2))), axis=1)


class Sublayer(keras.layers.Layer):
    """What adds to the hidden states: attention or a feed-forward pair. It may host an adapter.

    An adapter is a layer from [B, S, D] to [B, S, D] that changes what is added; there is none at first.
    """

    adapter: keras.layers.Layer | None = None

    @property
    def projections(self) -> dict[str, keras.layers.Layer]:
        """The matrices, by what they do: "query", "key", "value" and "output", or "up" and "down"."""
        raise NotImplementedError

    def host(self, adapter, hidden_shape) -> None:
        """Builds an adapter as a part of this sublayer, which is built already.

        Raises:
            UserError: if there is one.
        """
        if self.adapter is not None:
            raise UserError(f"{self.path} has an adapter already: a model takes adapters once")
        self._tracker.unlock()  # as Keras's own `enable_lora` adds to a layer that is built
        self.adapter = adapter
        self._tracker.lock()
        with keras.name_scope(self.name, caller=self):
            adapter.build(hidden_shape)

    def adapted(self, branch):
        """What is added to the hidden states, after the adapter if there is one; [B, S, D] -> [B, S, D]."""
        return branch if self.adapter is None else self.adapter(branch)


def project(dense, tokens):
    """What a dense layer makes of tokens, [B, S, ...] -> [B, S, ...].

    TensorFlow's gradient of its kernel is one matrix for each row, and then their sum: of one row it is one product.

    >>> dense = keras.layers.EinsumDense("bsd,dhk->bshk", (None, 4, 5))
    >>> tuple(project(dense, np.ones((2, 3, 8), "float32")).shape)
    (2, 3, 4, 5)
    """
    if keras.config.backend() != "tensorflow":
        return dense(tokens)
    made = dense(ops.reshape(tokens, (1, -1, *tokens.shape[2:])))
    return ops.reshape(made, (*ops.shape(tokens)[:2], *made.shape[2:]))


class Heads(keras.layers.MultiHeadAttention):
    """Keras's attention of [B, S, D] under a mask [B, S, S], with `project` for its dense layers."""

    def call(self, query, value, attention_mask, training=None):
        projections = ((self.query_dense, query), (self.key_dense, value), (self.value_dense, value))
        heads = (project(dense, tokens) for dense, tokens in projections)  # [B, S, D] -> [B, S, H, K]
        attended, _ = self._compute_attention(*heads, attention_mask=attention_mask, training=training)
        return project(self.output_dense, attended)


class SelfAttention(Sublayer):
    """BERT's attention: heads, dropout, the residual sum, and the norm after it.

    Args:
        num_heads: H.
        head_dim: width of a head.
        dropout: rate on attention probabilities and on the residual branch.
        layer_norm_epsilon: the norm's epsilon.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `hidden` [B, S, D], `mask` bool [B, S, S], `positions`, which it needs not; `at` int [B, P], the
    only tokens to compute, or None. Returns [B, S, D], or [B, P, D].
    """

    def __init__(self, num_heads, head_dim, dropout=0.0, layer_norm_epsilon=1e-12, name="attention", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.heads = Heads(
            num_heads, head_dim, dropout=dropout, kernel_initializer=initializer(), name="heads", dtype=dtype
        )
        self.dropout = keras.layers.Dropout(dropout, name="dropout", dtype=dtype)
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="norm", dtype=dtype)

    def build(self, hidden_shape):
        self.heads.build(hidden_shape, hidden_shape)
        self.norm.build(hidden_shape)

    @property
    def projections(self):
        """The matrices, by what they do."""
        heads = self.heads
        return {
            "query": heads.query_dense,
            "key": heads.key_dense,
            "value": heads.value_dense,
            "output": heads.output_dense,
        }

    def call(self, hidden, mask, positions=None, at=None, training=None):
        query, mask = pick(hidden, at), pick(mask, at)
        attended = self.heads(query, hidden, attention_mask=mask, training=training)  # [B, S, D]
        return self.norm(query + self.adapted(self.dropout(attended, training=training)))


class FeedForward(Sublayer):
    """BERT's feed-forward pair, the residual sum, and the norm after it.

    Args:
        intermediate_dim: F, the width between the two dense layers.
        dropout: rate on the residual branch.
        activation: "gelu" or "gelu_tanh".
        layer_norm_epsilon: the norm's epsilon.
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
        name="feed_forward",
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.up = keras.layers.Dense(intermediate_dim, kernel_initializer=initializer(), name="up", dtype=dtype)
        self.activation = activation_function(activation)
        self.dropout = keras.layers.Dropout(dropout, name="dropout", dtype=dtype)
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="norm", dtype=dtype)

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
        wide = self.activation(self.up(hidden))  # [B, S, D] -> [B, S, F]
        return self.norm(hidden + self.adapted(self.dropout(self.down(wide), training=training)))  # -> [B, S, D]


class TransformerBlock(keras.layers.Layer):
    """Attention, then feed-forward; both may be held by other blocks too, and then share their weights.

    Args:
        attention: a layer of `hidden`, `mask` and `positions`.
        feed_forward: a layer of `hidden`.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `hidden` [B, S, D], `mask` bool [B, S, S], `positions` int [B, S], `at` int [B, P] or None. Returns
    [B, S, D], or, if `at` says that no other tokens are needed, theirs, [B, P, D].
    Source: Devlin et al. 2019; 12D^2 + 13D parameters at F = 4D.

    >>> block = TransformerBlock(SelfAttention(num_heads=2, head_dim=4), FeedForward(intermediate_dim=32))
    >>> tuple(block(np.zeros((1, 3, 8), "float32"), np.ones((1, 3, 3), bool)).shape)
    (1, 3, 8)
    >>> block.count_params() == 12 * 8**2 + 13 * 8
    True
    """

    def __init__(self, attention, feed_forward, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.attention = attention
        self.feed_forward = feed_forward

    def build(self, hidden_shape, mask_shape=None, positions_shape=None, at_shape=None):
        for sublayer in (self.attention, self.feed_forward):
            if not sublayer.built:
                sublayer.build(hidden_shape)

    def compute_output_shape(self, hidden_shape, mask_shape=None, positions_shape=None, at_shape=None):
        return hidden_shape if at_shape is None else (*at_shape, hidden_shape[-1])

    def call(self, hidden, mask, positions=None, at=None, training=None):
        attended = self.attention(hidden, mask, positions, at=at, training=training)
        return self.feed_forward(attended, training=training)
