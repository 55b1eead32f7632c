"""The two ends of the vocabulary: what a token looks up at the input, what it is compared with at the output.

These tables are where multilingual encoders spend most of their parameters, and the paper's whole point is that the
two need not be one. The input side is summed and normalised at its own width E_in, before any projection, so that a
narrow table costs V x E_in and nothing else. The output side is a table of any width E_out with a bias per word, or,
when coupled, a view of the input table. Source: Chung et al. 2021, sections 2 and 3 and footnote 3.
"""

import keras
from keras import ops

from rembed_keras.modeling.couplings.decoupled import Decoupled
from rembed_keras.modeling.documents import document_positions
from rembed_keras.modeling.heads.vocabulary_loss import score_tokens, vocabulary_losses
from rembed_keras.modeling.layers.draws import Dropout
from rembed_keras.modeling.layers.output_tables import OutputTables
from rembed_keras.modeling.layers.rows import BEYOND, check_rows
from rembed_keras.modeling.layers.tables import LookupTable, make_table
from rembed_keras.modeling.saving.cloning import made_with_its_model


def look_up_positions(table, padding_mask):
    """Rows of a table of positions, [B, S, E], for the tokens of documents; see `document_positions`.

    Padding takes the last row where there is none for it, as in a packed row that is longer than the table: a missing
    row would be NaN, of which attention's share of zero still spoils the gradient. A document that is longer than the
    table is refused; see `check_rows`.
    """
    positions, rows, length = document_positions(padding_mask), table.input_dim, padding_mask.shape[1]
    if length is None or length > rows:  # as rows may be that hold several documents
        positions = ops.where(ops.cast(padding_mask, "bool"), positions, ops.minimum(positions, rows - 1))
        positions = check_rows(positions, rows, BEYOND["position"], in_graphs=True)
    return table(positions)  # [B, S] -> [B, S, E]


@keras.saving.register_keras_serializable(package="rembed_keras")
class InputEmbedding(keras.layers.Layer):
    """Token, segment and position embeddings, summed and normalised at width E_in.

    Args:
        vocabulary_size: rows of the token table, V.
        input_embedding_dim: E_in.
        max_sequence_length: rows of the position table; 0 for no such table, where blocks know positions themselves.
        num_segments: rows of the segment table; 0 for no such table, and segment ids are then ignored.
        dropout: rate applied after the norm.
        layer_norm_epsilon: the norm's epsilon.
        cutoffs: where the token table's bands begin; none by default. See `BandedTable`.
        has_bias: whether the norm has one.
        has_norm: whether there is a norm.
        token: another token table than one of these arguments, which may be of another width.
        norm: another norm, a layer.
        projection: a dense layer that the sum is put through before its norm; none by default.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `token_ids`, `segment_ids`, `padding_mask`, each int [B, S]. Returns [B, S, E_in], or, with a
    projection, [B, S, D].
    """

    get_config = made_with_its_model

    def __init__(
        self,
        vocabulary_size,
        input_embedding_dim,
        max_sequence_length=512,
        num_segments=2,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        cutoffs=(),
        has_bias=True,
        has_norm=True,
        token=None,
        norm=None,
        projection=None,
        name=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.width = input_embedding_dim if projection is None else projection.units
        self.projection = projection
        self.token = token or make_table(vocabulary_size, input_embedding_dim, cutoffs, name="token", dtype=dtype)
        self.position: LookupTable | None = None
        self.segment: LookupTable | None = None
        if max_sequence_length:
            self.position = LookupTable(max_sequence_length, input_embedding_dim, name="position", dtype=dtype)
        if num_segments:
            self.segment = LookupTable(num_segments, input_embedding_dim, name="segment", dtype=dtype)
        self.norm = norm
        if norm is None and has_norm:
            self.norm = keras.layers.LayerNormalization(
                epsilon=layer_norm_epsilon, center=has_bias, name="norm", dtype=dtype
            )
        self.dropout = Dropout(dropout, name="dropout", dtype=dtype)

    def build(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        for table in (self.token, self.position, self.segment):
            if table is not None:
                table.build(token_ids_shape)
        if self.projection is not None:
            self.projection.build((*token_ids_shape, self.token.output_dim))
        if self.norm is not None:
            self.norm.build((*token_ids_shape, self.width))

    def compute_output_shape(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        return (*token_ids_shape, self.width)

    def call(self, token_ids, segment_ids, padding_mask, training=None):
        check_rows(token_ids, self.token.input_dim, BEYOND["token"])
        return self.finish(self.token(token_ids), segment_ids, padding_mask, training=training)

    def finish(self, embedded, segment_ids, padding_mask, training=None):
        """What it makes of the rows of tokens [B, S, E_in]: segments and positions are added, and the sum is normed."""
        dtype = self.compute_dtype  # tables may have others of their own
        embedded = ops.cast(embedded, dtype)
        if self.segment is not None:
            check_rows(segment_ids, self.segment.input_dim, BEYOND["segment"])
            embedded = embedded + ops.cast(self.segment(segment_ids), dtype)
        if self.position is not None:
            embedded = embedded + ops.cast(look_up_positions(self.position, padding_mask), dtype)
        if self.projection is not None:
            embedded = self.projection(embedded)  # [B, S, E_in] -> [B, S, D]
        normed = embedded if self.norm is None else self.norm(embedded)
        return self.dropout(normed, training=training)


@keras.saving.register_keras_serializable(package="rembed_keras")
class OutputEmbedding(keras.layers.Layer):
    """Scores every word of the vocabulary: features times the rows of a coupling, plus a bias per word.

    Args:
        token_table: the encoder's token table.
        output_embedding_dim: E_out.
        coupling: the kind of coupling, see `modeling.couplings`; `Decoupled` by default.
        cutoffs: where the bands of an output table of its own begin; none by default.
        name: the layer's name.
        dtype: dtype or policy of the layer; logits are float32 whatever it is.

    Call argument: features [..., E_out]. Returns logits [..., V] in float32.

    >>> tuple(OutputEmbedding(LookupTable(10, 2), 4)(np.zeros((2, 3, 4), "float32")).shape)
    (2, 3, 10)
    """

    def __init__(self, token_table, output_embedding_dim, coupling=None, cutoffs=(), name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.vocabulary_size = token_table.input_dim
        self.coupling = OutputTables(coupling or Decoupled(), token_table, output_embedding_dim, cutoffs, dtype=dtype)

    get_config = made_with_its_model

    def build(self, input_shape):
        self.coupling.build(input_shape)
        self.bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="bias")

    def compute_output_spec(self, features):
        return keras.KerasTensor((*features.shape[:-1], self.vocabulary_size), dtype="float32")

    def call(self, features):
        return score_tokens(self.coupling.scoring(features), self.bias)  # [..., E_out] -> [..., V]

    def losses(self, features, targets, weights, chunk_size, training=None, scale=1.0):
        """Losses of features [B, P, E_out] for words int [B, P], of which a chunk's logits alone exist at a time.

        Returns:
            The sum of the losses weighted by `weights` [B, P], the losses [B, P] and hits [B, P]; see
            `vocabulary_losses`.
        """
        shape = ops.shape(targets)
        flat = ops.reshape(features, (-1, features.shape[-1]))  # of rows TensorFlow's products are slow
        scoring = self.coupling.scoring(flat)
        pairs = [(ops.reshape(part, (*shape, part.shape[-1])), rows) for part, rows in scoring]  # -> [B, P, E]
        return vocabulary_losses(pairs, self.bias, targets, weights, chunk_size, bool(training), scale)
