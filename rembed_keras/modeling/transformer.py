"""One block of the encoder: BERT's, with the norm after each residual sum.

Attention and dense layers are Keras's own, so that LoRA, quantization and mixed precision work on them. What is ours
is who may look at whom: rows are packed with several documents, and a token attends to its own document only.
"""

import keras
from keras import ops

from rembed_keras.errors import UserError
from rembed_keras.modeling.embeddings import initializer

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
    approximate = name == "gelu_tanh"
    return lambda x: keras.activations.gelu(x, approximate=approximate)


def attention_mask(padding_mask):
    """Who may attend to whom in packed and padded rows.

    Args:
        padding_mask: int [B, S]; 0 for padding, documents numbered 1, 2, 3, ...

    Returns:
        bool [B, S, S]: query i may look at key j when both are of one document. Padding is never looked at; a
        padding query looks at every real key, as in BERT, so that no softmax is empty.

    >>> np.asarray(attention_mask(np.array([[1, 2, 0]]))).astype(int).tolist()
    [[[1, 0, 0], [0, 1, 0], [1, 1, 0]]]
    """
    query, key = padding_mask[:, :, None], padding_mask[:, None, :]
    return ops.logical_and(key > 0, ops.logical_or(ops.equal(query, key), ops.equal(query, 0)))


@keras.saving.register_keras_serializable(package="rembed_keras")
class TransformerBlock(keras.layers.Layer):
    """Self-attention and a feed-forward pair, each added to its input and normalised after.

    Args:
        num_heads: H; must divide `hidden_dim`.
        hidden_dim: D, the width of input and output.
        intermediate_dim: F, the width between the two dense layers.
        dropout: rate on attention probabilities and on both residual branches.
        activation: "gelu" or "gelu_tanh".
        layer_norm_epsilon: epsilon of both norms.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `hidden` [B, S, D] and `mask` bool [B, S, S]. Returns [B, S, D].
    Source: Devlin et al. 2019; 12D^2 + 13D parameters at F = 4D.

    >>> block = TransformerBlock(num_heads=2, hidden_dim=8, intermediate_dim=32)
    >>> tuple(block(np.zeros((1, 3, 8), "float32"), np.ones((1, 3, 3), bool)).shape)
    (1, 3, 8)
    >>> block.count_params() == 12 * 8**2 + 13 * 8
    True
    """

    def __init__(
        self,
        num_heads,
        hidden_dim,
        intermediate_dim,
        dropout=0.0,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        name=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        kernel = {"kernel_initializer": initializer(), "dtype": dtype}
        self.attention = keras.layers.MultiHeadAttention(
            num_heads,
            hidden_dim // num_heads,
            dropout=dropout,
            name="attention",
            **kernel,
        )
        self.attention_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, name="attention_norm", dtype=dtype
        )
        self.intermediate = keras.layers.Dense(intermediate_dim, name="intermediate", **kernel)
        self.activation = activation_function(activation)
        self.output_dense = keras.layers.Dense(hidden_dim, name="output", **kernel)
        self.output_norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="output_norm", dtype=dtype)
        self.dropout = keras.layers.Dropout(dropout, name="dropout", dtype=dtype)

    def build(self, hidden_shape, mask_shape=None):
        self.attention.build(hidden_shape, hidden_shape)
        self.attention_norm.build(hidden_shape)
        self.intermediate.build(hidden_shape)
        self.output_dense.build((*hidden_shape[:-1], self.intermediate.units))
        self.output_norm.build(hidden_shape)

    def compute_output_shape(self, hidden_shape, mask_shape=None):
        return hidden_shape

    def call(self, hidden, mask, training=None):
        attended = self.attention(hidden, hidden, attention_mask=mask, training=training)  # [B, S, D]
        hidden = self.attention_norm(hidden + self.dropout(attended, training=training))
        wide = self.activation(self.intermediate(hidden))  # [B, S, D] -> [B, S, F]
        return self.output_norm(hidden + self.dropout(self.output_dense(wide), training=training))  # -> [B, S, D]
