"""The two ends of the vocabulary: what a token looks up on the way in, what it is compared with on the way out.

These tables are where multilingual encoders spend most of their parameters, and the paper's whole point is that the
two need not be one. The input side is summed and normalised at its own width E_in, before any projection, so that a
narrow table costs V x E_in and nothing else. The output side is a table of any width E_out with a bias per word, or,
when coupled, a view of the input table. Source: Chung et al. 2021, sections 2 and 3 and footnote 3.
"""

import keras
from keras import ops

INITIALIZER_STDDEV = 0.02


def initializer() -> keras.initializers.Initializer:
    """Truncated normal of standard deviation 0.02, fresh each time: BERT's initial weights."""
    return keras.initializers.TruncatedNormal(stddev=INITIALIZER_STDDEV)


@keras.saving.register_keras_serializable(package="rembed_keras")
class LookupTable(keras.layers.Embedding):
    """An embedding table whose gradient is one row per word, however often the word occurs.

    Keras on TensorFlow hands optimizers one gradient row per *occurrence*; Adam then squares the rows before summing
    them, and norm clipping under-measures. Here rows of the same word are summed before anyone sees the gradient, as
    every other backend does, so that all backends take the same step.

    Args:
        input_dim: number of rows, V.
        output_dim: width of a row.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    >>> table = LookupTable(10, 4)
    >>> tuple(table(np.array([[1, 2, 1]])).shape)
    (1, 3, 4)
    """

    def __init__(self, input_dim, output_dim, name=None, dtype=None, **kwargs):
        kwargs.setdefault("embeddings_initializer", initializer())
        super().__init__(input_dim, output_dim, name=name, dtype=dtype, **kwargs)

    def call(self, inputs):
        ids = ops.cast(inputs, "int32")
        rows = self._merged_lookup(ids) if keras.config.backend() == "tensorflow" else ops.take(self.embeddings, ids, 0)
        return ops.cast(rows, self.compute_dtype)

    def _merged_lookup(self, ids):
        @ops.custom_gradient
        def lookup(table):
            def gradient(*upstream):
                flat = ops.reshape(upstream[-1], (-1, self.output_dim))  # [..., E] -> [N, E]
                return ops.segment_sum(flat, ops.reshape(ids, (-1,)), num_segments=self.input_dim)  # -> [V, E]

            return ops.take(table, ids, axis=0), gradient

        return lookup(ops.copy(self.embeddings))  # a tensor: custom gradients and variables do not mix


def document_positions(padding_mask):
    """Position of each token within its own document, from the documents' numbers.

    Args:
        padding_mask: int [B, S]; 0 for padding, documents of a packed row numbered 1, 2, 3, ... from the left.

    Returns:
        int [B, S]: a token's index in the row less the lengths of the documents before its own. With an ordinary
        0/1 mask that is simply the index.

    >>> np.asarray(document_positions(np.array([[1, 1, 2, 2, 2, 0]]))).tolist()
    [[0, 1, 0, 1, 2, 5]]
    """
    own, other = padding_mask[:, :, None], padding_mask[:, None, :]
    before = ops.logical_and(other > 0, other < own)  # [B, S, S]
    return ops.arange(ops.shape(padding_mask)[1], dtype="int32") - ops.sum(ops.cast(before, "int32"), axis=-1)


@keras.saving.register_keras_serializable(package="rembed_keras")
class InputEmbedding(keras.layers.Layer):
    """Token, segment and position embeddings, summed and normalised at width E_in.

    Args:
        vocabulary_size: rows of the token table, V.
        embedding_dim: E_in.
        max_sequence_length: rows of the position table.
        num_segments: rows of the segment table.
        dropout: rate applied after the norm.
        layer_norm_epsilon: the norm's epsilon.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `token_ids`, `segment_ids`, `padding_mask`, each int [B, S]. Returns [B, S, E_in].
    """

    def __init__(
        self,
        vocabulary_size,
        embedding_dim,
        max_sequence_length=512,
        num_segments=2,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        name=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.token = LookupTable(vocabulary_size, embedding_dim, name="token", dtype=dtype)
        self.position = LookupTable(max_sequence_length, embedding_dim, name="position", dtype=dtype)
        self.segment = LookupTable(num_segments, embedding_dim, name="segment", dtype=dtype)
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="norm", dtype=dtype)
        self.dropout = keras.layers.Dropout(dropout, name="dropout", dtype=dtype)

    def build(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        for table in (self.token, self.position, self.segment):
            table.build(token_ids_shape)
        self.norm.build((*token_ids_shape, self.token.output_dim))

    def compute_output_shape(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        return (*token_ids_shape, self.token.output_dim)

    def call(self, token_ids, segment_ids, padding_mask, training=None):
        # three times [B, S] -> [B, S, E_in]
        embedded = self.token(token_ids) + self.segment(segment_ids) + self.position(document_positions(padding_mask))
        return self.dropout(self.norm(embedded), training=training)


@keras.saving.register_keras_serializable(package="rembed_keras")
class OutputEmbedding(keras.layers.Layer):
    """Scores every word of the vocabulary: features times a table [V, E_out], plus a bias per word.

    Args:
        vocabulary_size: V.
        embedding_dim: E_out.
        tied_to: a `LookupTable` whose rows serve as the output embeddings too (coupled); None for a table of its own.
        name: the layer's name.
        dtype: dtype or policy of the layer; logits are float32 whatever it is.

    Call argument: features [..., E_out]. Returns logits [..., V] in float32.

    >>> tuple(OutputEmbedding(10, 4)(np.zeros((2, 3, 4), "float32")).shape)
    (2, 3, 10)
    """

    def __init__(self, vocabulary_size, embedding_dim, tied_to=None, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.tied_to = tied_to

    def build(self, input_shape):
        if self.tied_to is None:
            shape = (self.vocabulary_size, self.embedding_dim)
            self.table = self.add_weight(shape=shape, initializer=initializer(), name="table")
        self.bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="bias")

    def compute_output_spec(self, features):
        return keras.KerasTensor((*features.shape[:-1], self.vocabulary_size), dtype="float32")

    def call(self, features):
        table = ops.cast(
            self.table if self.tied_to is None else self.tied_to.embeddings,
            self.compute_dtype,
        )
        # [..., E_out] x [V, E_out] -> [..., V]
        return ops.cast(ops.matmul(features, ops.transpose(table)), "float32") + ops.cast(self.bias, "float32")
