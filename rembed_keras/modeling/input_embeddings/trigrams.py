"""The input embedding of MobileBERT: a token is read with its neighbours, from a table a quarter as wide as the blocks.

Source: Sun et al. 2020 (MobileBERT), section 3.1, "embedding factorization".
"""

from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.input_embeddings.projected import Projected
from rembed_keras.modeling.input_embeddings.summed import small_tables, table_arguments, token_entry


class Trigrams(Projected):
    """Rows of the next token, of the token and of the one before, [3 E_in], projected to the width of the blocks, D.

    Position and segment tables of width D are added, and the sum is scaled and shifted by feature, not normed. What is
    beyond a document's end is zeros, in a packed row too, or the rows of padding where that follows, as in MobileBERT.

    >>> from rembed_keras.modeling.blocks import PostNorm
    >>> sizes = {"vocabulary_size": 100, "input_embedding_dim": 4, "hidden_dim": 8, "max_sequence_length": 16}
    >>> [entry.parameters for entry in Trigrams().entries(sizes, PostNorm(), has_positions=True)]
    [400, 160, 104]
    """

    reads_neighbours = True

    def is_normed(self, block) -> bool:
        """Whether what it gives is normed: it is not."""
        return False

    def layer(self, config: Config, block, has_positions: bool, name: str, dtype=None):
        """The layer."""
        from rembed_keras.modeling.input_embeddings.trigram_layer import TrigramEmbedding

        tables = table_arguments(config, has_positions)
        return TrigramEmbedding(hidden_dim=config["hidden_dim"], **tables, name=name, dtype=dtype)

    def entries(self, config: Config, block, has_positions: bool) -> list[Entry]:
        """The ledger's entries."""
        narrow, wide = config["input_embedding_dim"], config["hidden_dim"]
        others = (*small_tables(config, wide, has_positions), (wide,), (wide,))
        shapes, flops = ((3 * narrow, wide), (wide,)), 6 * narrow * wide
        frozen = flops * bool(config.get("freeze_input_embedding"))  # the gradient of the rows
        return [
            token_entry(config),
            Entry("position, segment embeddings; norm", others, 0, activations=wide),
            Entry("projection of trigrams", shapes, flops, activations=3 * narrow, frozen=frozen),
        ]
