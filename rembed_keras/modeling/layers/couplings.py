"""What the output embedding has to do with the input embedding: the decision that the paper is about.

Each coupling is a layer with one method, `scoring`, which says what the head's features are multiplied with. None
of them holds more than the variables that the coupling adds, and those are dropped after pre-training with the head.
"""

import keras
from keras import ops

from rembed_keras.modeling.layers.tables import LookupTable, make_table
from rembed_keras.modeling.sizes import check_coupling


class Coupled(keras.layers.Layer):
    """One table for both ends, as in BERT; with a width under the encoder's, as in ALBERT.

    Args:
        token_table: the encoder's; its width is the head's too.
        embedding_dim: E_out; must be E_in.
        cutoffs: must be empty: bands are those of the input.
        dtype: dtype or policy of the layer.
    """

    def __init__(self, token_table, embedding_dim, cutoffs=(), dtype=None):
        super().__init__(name="coupled", dtype=dtype)
        check_coupling("coupled", token_table.output_dim, embedding_dim, cutoffs)
        self.token_table = token_table

    def build(self, features_shape):
        pass

    def scoring(self, features):
        """Pairs of features and rows; see `LookupTable.scoring`."""
        return self.token_table.scoring(features)


class Decoupled(keras.layers.Layer):
    """Two tables of any two widths, as in RemBERT.

    Args:
        token_table: the encoder's; only its number of rows is used.
        embedding_dim: E_out, any width.
        cutoffs: where the output's own bands begin; none by default.
        dtype: dtype or policy of the layer.
    """

    def __init__(self, token_table, embedding_dim, cutoffs=(), dtype=None):
        super().__init__(name="decoupled", dtype=dtype)
        self.table = make_table(token_table.input_dim, embedding_dim, cutoffs, name="table", dtype=dtype)

    def build(self, features_shape):
        self.table.build()

    def scoring(self, features):
        """Pairs of features and rows; see `LookupTable.scoring`."""
        return self.table.scoring(features)


class GradientDisentangled(keras.layers.Layer):
    """The encoder's table, untouched by the output's gradient, plus a table of differences that starts at zero.

    What scoring wants of a word's vector and what reading wants pull in different directions; here each pulls at its
    own table, and the output still begins where the input is.

    Args:
        token_table: the encoder's; its width is the head's too.
        embedding_dim: E_out; must be E_in.
        cutoffs: must be empty.
        dtype: dtype or policy of the layer.

    Source: He et al. 2021 (DeBERTaV3), section 3.2, where generator and discriminator take the place of output and
    input.
    """

    def __init__(self, token_table, embedding_dim, cutoffs=(), dtype=None):
        super().__init__(name="gdes", dtype=dtype)
        check_coupling("gdes", token_table.output_dim, embedding_dim, cutoffs, _cutoffs_of(token_table))
        self.token_table = token_table
        self.difference = LookupTable(
            token_table.input_dim, embedding_dim, embeddings_initializer="zeros", name="difference", dtype=dtype
        )

    def build(self, features_shape):
        self.difference.build()

    def scoring(self, features):
        """Pairs of features and rows; see `LookupTable.scoring`."""
        ((_, shared),) = self.token_table.scoring(features)
        ((_, own),) = self.difference.scoring(features)
        return [(features, ops.stop_gradient(shared) + own)]


class Extended(keras.layers.Layer):
    """The encoder's table, and beside it columns of the output's own, which are dropped with the head.

    Args:
        token_table: the encoder's.
        embedding_dim: E_out, more than the width of the encoder's table.
        cutoffs: must be empty.
        dtype: dtype or policy of the layer.

    Source: Sun et al. 2020 (MobileBERT), the released code: its head is as wide as its blocks, its table a quarter.
    """

    def __init__(self, token_table, embedding_dim, cutoffs=(), dtype=None):
        super().__init__(name="extended", dtype=dtype)
        check_coupling("extended", token_table.output_dim, embedding_dim, cutoffs, _cutoffs_of(token_table))
        self.token_table = token_table
        own = embedding_dim - token_table.output_dim
        self.columns = LookupTable(token_table.input_dim, own, name="columns", dtype=dtype)

    def build(self, features_shape):
        self.columns.build()

    def scoring(self, features):
        """Pairs of features and rows; see `LookupTable.scoring`."""
        ((_, shared),) = self.token_table.scoring(features)
        ((_, own),) = self.columns.scoring(features)
        return [(features, ops.concatenate([shared, own], axis=-1))]  # [V, E_in] and [V, E_out - E_in]


def _cutoffs_of(token_table):
    return () if isinstance(token_table, LookupTable) else token_table.starts[1:]


COUPLINGS: dict[str, type[Coupled | Decoupled | Extended | GradientDisentangled]] = {
    "coupled": Coupled,
    "decoupled": Decoupled,
    "extended": Extended,
    "gdes": GradientDisentangled,
}
