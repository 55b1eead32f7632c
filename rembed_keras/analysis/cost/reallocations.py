"""What to do with an encoder that is there, for a budget: how narrow an input table, and how many layers.

For each number of layers the widest table within the budget is taken. They are ranked by what is lost without training:
layers first, and tables from where they get narrower than a quarter of the blocks, below which the vectors of an
encoder quickly stop being those that it had; see "Shrink your encoder". New layers cost nothing at first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.stack import check_narrowing, cut_arguments, input_embedding_of
from rembed_keras.modeling.cost import Config
from rembed_keras.modeling.saving.changes import CHANGED, KEYS
from rembed_keras.modeling.sizes import narrowed_arguments

STEP = 32  # of the widths that are tried
ENOUGH = 1 / 4  # width of a table over that of the blocks from which on little is lost
MOST = 2  # times the layers that there are
NEW_LAYERS = 0.02  # penalty for as many new layers as there are


@dataclass(frozen=True)
class Reallocation:
    """A proposal.

    Attributes:
        num_layers: L.
        input_embedding_dim: E_in.
        kept: parameters of the encoder then.
        penalty: what it is ranked by, the less the better.
    """

    num_layers: int
    input_embedding_dim: int
    kept: int
    penalty: float

    def options(self, config: Config) -> str:
        """Options of `rembed reallocate` that make it of an encoder of some arguments; empty if nothing changes."""
        wanted = {"input_embedding_dim": self.input_embedding_dim, "num_layers": self.num_layers}
        changed = (f"--{key.replace('_', '-')} {value}" for key, value in wanted.items() if config[key] != value)
        return " ".join(changed)


def reallocations(config: Config, kept: int, input_widths: Sequence[int] | None = None) -> list[Reallocation]:
    """Proposes what to make of an encoder, the best first.

    Args:
        config: its arguments.
        kept: the most parameters that it may have.
        input_widths: E_in to choose from; by default its own and, if its table can be narrowed, multiples of 32.

    Returns:
        A proposal for each number of layers that fits.

    Raises:
        UserError: if nothing fits, a width is wider than the encoder's or its table cannot be narrowed to it, its table
            is in bands, or it has quantized or added layers.

    >>> bert = {"vocabulary_size": 30522, "num_layers": 6, "num_heads": 12, "hidden_dim": 384,
    ...         "intermediate_dim": 1536, "input_embedding_dim": 384, "always_project": False}
    >>> best = reallocations(bert, 14_000_000)[0]
    >>> best.options(bert), best.kept
    ('--input-embedding-dim 96', 13811520)
    """
    if any(config.get(key) for key in KEYS if key != "frozen"):
        raise UserError(CHANGED)
    if config.get("input_cutoffs"):
        raise UserError("an encoder whose input table is in bands cannot be reallocated")
    widths = _widths(config, input_widths)
    found = []
    for layers in _depths(config):
        fitting = [(width, count) for width in widths if (count := _count(config, layers, width)) <= kept]
        if fitting:
            width, count = fitting[-1]
            found.append(Reallocation(layers, width, count, _penalty(config, layers, width)))
    if not found:
        least = min((_count(config, layers, widths[0]), layers) for layers in _depths(config))
        raise UserError(
            f"nothing fits in {kept:,} parameters: the least is {least[0]:,}, {least[1]} layers and a table of width "
            f"{widths[0]}"
        )
    return sorted(found, key=lambda each: (each.penalty, -each.num_layers))


def _widths(config, wanted):
    """Widths, rising, that `rembed reallocate` can give the input table of an encoder."""
    own = config["input_embedding_dim"]
    if wanted is None:
        can_narrow = input_embedding_of(config).takes_projection
        return [*(range(STEP, own, STEP) if can_narrow else ()), own]
    widths = sorted({*wanted})
    if widths != [own]:
        check_narrowing(config)
    wrong = [width for width in widths if not 2 <= width <= own]
    if wrong:
        raise UserError(f"an input table of width {wrong[0]} cannot be made of this one; it allows 2 to {own}")
    return widths


def _depths(config):
    """Numbers of layers that `rembed reallocate` can give an encoder."""
    layers = config["num_layers"]
    may_share = config.get("layer_sharing", "none") != "none"
    return [layers] if may_share or config.get("scalar_mix") else [*range(1, MOST * layers + 1)]


def _count(config, layers, width):
    own = cut_arguments(config, range(min(layers, config["num_layers"])))  # of which those that are new are copies
    made = narrowed_arguments(own, width) if width < config["input_embedding_dim"] else own
    return ledger({**made, "num_layers": layers}).kept


def _penalty(config, layers, width):
    depth, narrowest = layers / config["num_layers"], ENOUGH * config["hidden_dim"]
    lost = 1 - depth if depth < 1 else NEW_LAYERS * (depth - 1)
    is_narrowed = width < config["input_embedding_dim"]
    return lost + (max(math.log2(narrowest / width), 0.0) / 2 if is_narrowed else 0.0)


def table(found: Sequence[Reallocation], config: Config):
    """Proposals as a `rich.table.Table`, with the options of `rembed reallocate` that make each."""
    from rich import box
    from rich.table import Table

    caption = "Ranked by layers that stay, and tables of at least a quarter of the blocks' width"
    shown = Table(title="Reallocations, the best first", caption=caption, box=box.SIMPLE)
    for column in ("L", "E_in", "kept", "of the encoder"):
        shown.add_column(column, justify="right", no_wrap=True)
    shown.add_column("options", no_wrap=True)
    before = ledger(config).kept
    for one in found:
        cells = (str(one.num_layers), str(one.input_embedding_dim), f"{one.kept / 1e6:,.1f}M")
        shown.add_row(*cells, f"{one.kept / before:.0%}", one.options(config) or "(as it is)")
    return shown
