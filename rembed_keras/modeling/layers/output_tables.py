"""The tables that words are scored with, as a kind of coupling has them."""

import keras

from rembed_keras.modeling.layers.tables import LookupTable


class OutputTables(keras.layers.Layer):
    """What the output has of its own, beside the input table if its coupling reads that.

    It holds no more variables than the coupling adds; those are dropped after pre-training with the head.

    Args:
        kind: of coupling; see `modeling.couplings`.
        token_table: the encoder's.
        embedding_dim: E_out.
        cutoffs: where the output's own bands begin; none by default.
        dtype: dtype or policy of the layer.

    Attributes:
        own: layers of the tables of its own, by name; each is an attribute of that name too.
    """

    def __init__(self, kind, token_table, embedding_dim, cutoffs=(), dtype=None):
        super().__init__(name=kind.name, dtype=dtype)
        bands = () if isinstance(token_table, LookupTable) else token_table.starts[1:]
        kind.check(token_table.output_dim, embedding_dim, cutoffs, bands)
        self.kind = kind
        self.token_table = token_table if kind.reads_input else None
        tables = kind.tables(token_table, embedding_dim, cutoffs, dtype)
        self._names = (*tables,)
        for name, table in tables.items():
            setattr(self, name, table)  # files of weights go by the names of attributes

    @property
    def own(self) -> dict:
        return {name: getattr(self, name) for name in self._names}

    def build(self, features_shape):
        for table in self.own.values():
            table.build()

    def scoring(self, features):
        """Pairs of features and rows; see `LookupTable.scoring`."""
        return self.kind.scoring(features, self.token_table, self.own)
