"""The input embedding of BERT and RemBERT: the sum of three tables of one width, and a norm."""

from rembed_keras.modeling.cost import Config, Entry, Shape, table_flops, table_shapes
from rembed_keras.modeling.saving.arguments import arguments_of
from rembed_keras.modeling.sizes import band_sizes


class Summed:
    """Rows of token, position and segment tables of width E_in, their sum, and a norm if blocks have none first.

    A kind of input embedding has these methods and attributes.

    Args:
        positions: whether there is a table of positions; by default where neither blocks nor attention know them.

    Attributes:
        takes_projection: whether a projection to the width of the blocks may follow, into which a narrower table can be
            folded; if not, it gives states of that width itself.
        reads_neighbours: whether what it gives for a token depends on other tokens of the row.

    >>> from rembed_keras.modeling.blocks import PostNorm
    >>> sizes = {"vocabulary_size": 100, "input_embedding_dim": 8, "max_sequence_length": 16}
    >>> [entry.parameters for entry in Summed().entries(sizes, PostNorm(), has_positions=True)]
    [800, 160]
    """

    takes_projection = True
    reads_neighbours = False

    def __init__(self, positions: bool | None = None):
        self.positions = positions

    def has_positions(self, is_needed: bool) -> bool:
        """Whether there is a table of positions.

        Args:
            is_needed: whether neither blocks nor attention know positions.
        """
        return is_needed if self.positions is None else self.positions

    def is_normed(self, block) -> bool:
        """Whether what it gives is normed, so that the first norm of blocks with norms first is not needed."""
        return block.norms_embeddings

    def width(self, config: Config) -> int:
        """How wide what it gives is."""
        return config["input_embedding_dim"]

    def layer(self, config: Config, block, has_positions: bool, name: str, dtype=None):
        """The layer of `token_ids`, `segment_ids` and `padding_mask`, which has its token table as `token`.

        Args:
            config: an encoder's arguments, all of them.
            block: the kind of its blocks.
            has_positions: whether there is a table of positions.
            name: the layer's name.
            dtype: dtype or policy of the layer.
        """
        from rembed_keras.modeling.layers.embeddings import InputEmbedding

        return InputEmbedding(
            **table_arguments(config, has_positions),
            layer_norm_epsilon=config["layer_norm_epsilon"],
            has_bias=block.has_biases,
            has_norm=block.norms_embeddings,
            name=name,
            dtype=dtype,
        )

    def entries(self, config: Config, block, has_positions: bool) -> list[Entry]:
        """The ledger's entries: the token table, then the rest.

        Args:
            config: an encoder's arguments; those that are left out have its defaults.
            block: the kind of its blocks.
            has_positions: whether there is a table of positions.
        """
        width = config["input_embedding_dim"]
        norm = ((width,),) * (1 + block.has_biases) if block.norms_embeddings else ()
        others = (*small_tables(config, width, has_positions), *norm)
        return [
            token_entry(config),
            Entry("position, segment embeddings; norm", others, 0, activations=2 * width * bool(norm)),
        ]

    def get_config(self) -> dict:
        """The arguments that it was made with: those that it keeps under their names."""
        return arguments_of(self)

    @classmethod
    def from_config(cls, config: dict) -> "Summed":
        """A kind of such arguments."""
        return cls(**config)


def table_arguments(config: Config, has_positions: bool) -> dict:
    """Arguments of an encoder on which its tables depend, as layers of them take them."""
    return {
        "vocabulary_size": config["vocabulary_size"],
        "input_embedding_dim": config["input_embedding_dim"],
        "max_sequence_length": config["max_sequence_length"] if has_positions else 0,
        "num_segments": config["num_segments"],
        "dropout": config["dropout"],
        "cutoffs": config["input_cutoffs"],
    }


def token_entry(config: Config) -> Entry:
    """The entry of a token table, with the projections of its bands."""
    vocabulary, width, cutoffs = config["vocabulary_size"], config["input_embedding_dim"], config.get("input_cutoffs")
    is_frozen, of_bands = bool(config.get("freeze_input_embedding")), table_flops(vocabulary, width, cutoffs or ())
    return Entry(
        "input embedding",
        table_shapes(vocabulary, width, cutoffs or ()),
        of_bands,
        is_trained=not is_frozen,
        frozen=2 * of_bands * is_frozen,  # neither the rows nor the projections of the bands
        tables=len(band_sizes(vocabulary, width, cutoffs or ())),
    )


def small_tables(config: Config, width: int, has_positions: bool) -> tuple[Shape, ...]:
    """Shapes of the tables of positions and of segments."""
    rows = [config.get("max_sequence_length", 512)] * has_positions + [config.get("num_segments", 2)]
    return tuple((count, width) for count in rows if count)
