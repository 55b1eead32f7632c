"""How long a row an encoder reads: positions bound it only where there is a table of them."""

from rembed_keras.modeling.blocks.stack import has_position_table
from rembed_keras.modeling.cost import Config

LONGEST = 2**20  # tokens of a row, where no table of positions bounds it


def longest_row(config: Config) -> int:
    """How long a row an encoder takes: its table has so many positions; without one it is `LONGEST`.

    >>> longest_row({"num_layers": 1, "max_sequence_length": 64})
    64
    """
    return config.get("max_sequence_length", 512) if has_position_table(config) else LONGEST
