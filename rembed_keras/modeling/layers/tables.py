"""Tables of word vectors, which can be read in both directions: rows of ids, and scores of features.

A plain table gives every word the same width. A banded one sorts the vocabulary by frequency into bands and gives each
band a fraction of the width of the one before, so that rare words, of which there are many, cost little. Either serves
at the input, at the output, or, when they are coupled, at both.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from rembed_keras.modeling.saving.filling import is_blank
from rembed_keras.modeling.sizes import NARROW, band_sizes

INITIALIZER_STDDEV = 0.02


def initializer() -> keras.initializers.Initializer:
    """Truncated normal of standard deviation 0.02, BERT's initial weights; zeros for `blank` ones."""
    return keras.initializers.Zeros() if is_blank() else keras.initializers.TruncatedNormal(stddev=INITIALIZER_STDDEV)


def drawn(shape: Sequence[int], seed: int) -> np.ndarray:
    """Initial weights as `initializer` draws them, the same on every backend each time.

    >>> values = drawn((50, 20), seed=0)
    >>> float(abs(values).max()) <= 2 * INITIALIZER_STDDEV, values.dtype.name
    (True, 'float32')
    """
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape, np.float32)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = generator.standard_normal(int(beyond.sum()), np.float32)
    return values * np.float32(INITIALIZER_STDDEV)


def make_table(vocabulary_size, embedding_dim, cutoffs=(), name=None, dtype=None):
    """A `LookupTable`, or, if there are cutoffs, a `BandedTable`.

    Args:
        vocabulary_size: V.
        embedding_dim: width of the most frequent words.
        cutoffs: where bands begin; see `BandedTable`.
        name: the layer's name.
        dtype: dtype or policy of the layer.
    """
    if cutoffs:
        return BandedTable(vocabulary_size, embedding_dim, cutoffs, name=name, dtype=dtype)
    return LookupTable(vocabulary_size, embedding_dim, name=name, dtype=dtype)


@keras.saving.register_keras_serializable(package="rembed_keras")
class LookupTable(keras.layers.Embedding):
    """An embedding table whose gradient is one row per word, however often the word occurs.

    Keras on TensorFlow hands optimizers one gradient row per *occurrence*; Adam then squares the rows before summing
    them, and norm clipping under-measures. Here rows of the same word are summed before anyone sees the gradient, as
    every other backend does, so that all backends take the same step. They are summed in float32: bfloat16 would stop
    at some hundreds of the thousands of masks, or first segments, of a batch.

    Args:
        input_dim: number of rows, V.
        output_dim: width of a row.
        embeddings_initializer: of the rows; BERT's by default.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    >>> table = LookupTable(10, 4)
    >>> tuple(table(np.array([[1, 2, 1]])).shape)
    (1, 3, 4)
    """

    def __init__(self, input_dim, output_dim, embeddings_initializer=None, name=None, dtype=None, **kwargs):
        super().__init__(
            input_dim, output_dim, embeddings_initializer or initializer(), name=name, dtype=dtype, **kwargs
        )

    def call(self, inputs):
        ids = ops.cast(inputs, "int32")
        is_narrow = keras.backend.standardize_dtype(self.embeddings.dtype) in NARROW
        if keras.config.backend() == "tensorflow":
            rows = self._merged_lookup(ids, is_narrow)
        else:  # whose gradient is summed in the dtype of what is read
            rows = ops.take(ops.cast(self.embeddings, "float32") if is_narrow else self.embeddings, ids, axis=0)
        return ops.cast(rows, self.compute_dtype)

    def _merged_lookup(self, ids, is_narrow):
        @ops.custom_gradient
        def lookup(table):
            def gradient(*upstream):
                flat = ops.reshape(upstream[-1], (-1, self.output_dim))  # [..., E] -> [N, E]
                flat = ops.cast(flat, "float32") if is_narrow else flat
                total = ops.segment_sum(flat, ops.reshape(ids, (-1,)), num_segments=self.input_dim)  # -> [V, E]
                return ops.cast(total, table.dtype)

            return ops.take(table, ids, axis=0), gradient

        return lookup(ops.copy(self.embeddings))  # a tensor: custom gradients and variables do not mix

    def quantize(self, mode=None, type_check=True, config=None):
        """As Keras's, which leaves subclasses aside: they might read `embeddings` as numbers. This one does not."""
        options = {} if config is None else {"config": config}  # which Keras 3.10 has not
        super().quantize(mode, type_check=False, **options)

    def quantized_call(self, *inputs, **options):
        """As Keras's, whose rows have the scales' dtype instead of that which is computed in."""
        return ops.cast(super().quantized_call(*inputs, **options), self.compute_dtype)

    def scoring(self, features):
        """What features [..., E] are multiplied with to score all words: a list of one pair (features, rows [V, E])."""
        if self.quantization_mode is not None:
            rows = self(ops.arange(self.input_dim, dtype="int32"))  # what stands in the table has yet to be scaled
            return [(features, rows)]
        return [(features, ops.cast(self.embeddings, self.compute_dtype))]


@keras.saving.register_keras_serializable(package="rembed_keras")
class BandedTable(keras.layers.Layer):
    """An embedding table whose rare words have narrow rows.

    The vocabulary, sorted by frequency as SentencePiece's unigram vocabularies are, is cut into bands. Rows of band i
    are `factor**i` times narrower than those of the first and are projected to its width, without a bias. All words
    are scored, as by a plain table: this is no hierarchical softmax.

    Args:
        input_dim: number of words, V.
        output_dim: E, the width of what a word looks up, and of the first band's rows.
        cutoffs: ids at which the bands after the first begin, rising.
        factor: how many times narrower each band is than the one before.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Source: Baevski and Auli 2019, section 3; Grave et al. 2017.

    >>> table = BandedTable(100, 8, cutoffs=(10, 40), factor=2)
    >>> tuple(table(np.array([[1, 12, 99]])).shape)
    (1, 3, 8)
    >>> table.count_params() == 10 * 8 + 30 * 4 + 60 * 2 + 4 * 8 + 2 * 8
    True
    """

    def __init__(self, input_dim, output_dim, cutoffs, factor=4, name=None, dtype=None, **kwargs):
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.input_dim, self.output_dim, self.factor = input_dim, output_dim, factor
        self.starts = (0, *cutoffs)
        sizes = band_sizes(input_dim, output_dim, cutoffs, factor)
        self.bands = [LookupTable(rows, width, name=f"band_{i}", dtype=dtype) for i, (rows, width) in enumerate(sizes)]
        self.projections = [
            keras.layers.Dense(
                output_dim, use_bias=False, kernel_initializer=initializer(), name=f"projection_{i}", dtype=dtype
            )
            for i in range(1, len(sizes))
        ]

    def build(self, input_shape=None):
        for band in self.bands:
            band.build(input_shape)
        for band, projection in zip(self.bands[1:], self.projections, strict=True):
            projection.build((None, band.output_dim))

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.output_dim)

    def call(self, inputs):
        ids = ops.cast(inputs, "int32")
        found = 0.0
        for i, (start, band) in enumerate(zip(self.starts, self.bands, strict=True)):
            own = ids - start
            rows = band(ops.clip(own, 0, band.input_dim - 1))  # [...] -> [..., E / factor^i]
            rows = self.projections[i - 1](rows) if i else rows  # -> [..., E]
            is_here = ops.logical_and(own >= 0, own < band.input_dim)
            found = found + rows * ops.cast(is_here, rows.dtype)[..., None]
        return found

    def scoring(self, features):
        """Pairs (features [..., E / factor^i], rows) of the bands in order; their products, joined, score all words."""
        pairs = self.bands[0].scoring(features)
        for band, projection in zip(self.bands[1:], self.projections, strict=True):
            pairs += band.scoring(ops.matmul(features, ops.transpose(self._matrix(band, projection))))  # -> [..., E_i]
        return pairs

    def _matrix(self, band, projection):
        """The matrix [E / factor^i, E] of a band's projection; of a quantized one, what it makes of unit vectors."""
        if projection.quantization_mode is None:
            return ops.cast(projection.kernel, self.compute_dtype)
        return projection(ops.eye(band.output_dim, dtype=self.compute_dtype))

    def get_config(self):
        return super().get_config() | {
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "cutoffs": [*self.starts[1:]],
            "factor": self.factor,
        }
