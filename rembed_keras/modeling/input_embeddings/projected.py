"""The input embedding of DeBERTa where its table is narrow: tables are summed, projected to the blocks' width, normed.

Source: He et al. 2021 (DeBERTa), the released code.
"""

from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.input_embeddings.summed import Summed, small_tables, table_arguments, token_entry


class Projected(Summed):
    """As `Summed`, of which the sum of width E_in is projected without a bias, and then normed at width D.

    >>> from rembed_keras.modeling.blocks import PostNorm
    >>> sizes = {"vocabulary_size": 100, "input_embedding_dim": 4, "hidden_dim": 8, "max_sequence_length": 16}
    >>> [entry.parameters for entry in Projected().entries(sizes, PostNorm(), has_positions=True)]
    [400, 88, 32]
    """

    takes_projection = False

    def is_normed(self, block) -> bool:
        """Whether what it gives is normed: it is, whatever blocks follow."""
        return True

    def width(self, config: Config) -> int:
        """How wide what it gives is."""
        return config["hidden_dim"]

    def layer(self, config: Config, block, has_positions: bool, name: str, dtype=None):
        """The layer."""
        import keras

        from rembed_keras.modeling.layers.embeddings import InputEmbedding
        from rembed_keras.modeling.layers.tables import initializer

        dense = {"use_bias": False, "kernel_initializer": initializer(), "dtype": dtype}
        return InputEmbedding(
            **table_arguments(config, has_positions),
            layer_norm_epsilon=config["layer_norm_epsilon"],
            projection=keras.layers.Dense(config["hidden_dim"], name="projection", **dense),
            name=name,
            dtype=dtype,
        )

    def entries(self, config: Config, block, has_positions: bool) -> list[Entry]:
        """The ledger's entries."""
        narrow, wide = config["input_embedding_dim"], config["hidden_dim"]
        added, flops = small_tables(config, narrow, has_positions), 2 * narrow * wide
        frozen = flops * bool(config.get("freeze_input_embedding") and not added)  # the gradient of the rows
        return [
            token_entry(config),
            Entry("position, segment embeddings; norm", (*added, (wide,), (wide,)), 0, activations=2 * wide),
            Entry("projection before the norm", ((narrow, wide),), flops, activations=narrow, frozen=frozen),
        ]
