"""What each of several devices of JAX holds of a model: parameters, gradients, slots, and activations of a row.

Nothing here imports a framework. The meshes of `training.distributed` cut variables by the same rule, and a test holds
these bytes against those of arrays that are spread over devices.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rembed_keras.analysis.cost.ledger import Ledger
from rembed_keras.analysis.cost.precision import remembered_of, size_of_number, size_of_slot
from rembed_keras.analysis.reports.tables import Table
from rembed_keras.modeling.cost import Config, Entry, Shape, adam_slots

STRATEGIES = ("data_parallel", "model_parallel", "fully_sharded")


@dataclass(frozen=True)
class Held:
    """Bytes that each device holds under a strategy.

    Attributes:
        parameters: of all variables of the model.
        gradients: of those that are trained, after they are summed.
        slots: of the optimizer.
        activations: that a backward pass needs of the forward pass, of one row of S tokens; see `activations_of`.
    """

    parameters: int
    gradients: int
    slots: int
    activations: int

    @property
    def all(self) -> int:
        """What does not grow with the batch."""
        return self.parameters + self.gradients + self.slots

    def to_json(self) -> dict[str, int]:
        """The numbers by their names, as what JSON can say."""
        return asdict(self)


def activations_of(ledger: Ledger, encoder: Config, rematerialize: bool) -> float:
    """Numbers that a backward pass needs of the forward pass, per token of input.

    With `rematerialize` blocks keep what comes in, and what one of them computes is there at a time.

    Args:
        ledger: of the model.
        encoder: arguments of its encoder.
        rematerialize: whether blocks are computed once more for the backward pass.
    """
    if not rematerialize:
        return ledger.activations
    return encoder["hidden_dim"] * encoder["num_layers"] + ledger.activations / encoder["num_layers"]


def held_by_each(
    ledger: Ledger,
    devices: int,
    slots: Callable[[Sequence[Entry]], list[tuple[Shape, ...]]] = adam_slots,
    activations: float | None = None,
) -> dict[str, Held]:
    """What each of several devices holds, by the strategy that spreads a model over them.

    Parameters and slots are exact, but for a few scalars. Of gradients and activations compilers keep more or less, and
    what is gathered to be used, a block's variables at a time under `fully_sharded`, comes on top.

    Args:
        ledger: of the model.
        devices: how many there are.
        slots: shapes of what the optimizer remembers of each entry's variables; Adam's by default.
        activations: numbers a token that the backward pass needs of the forward pass; the ledger's by default.

    >>> sizes = {"vocabulary_size": 1000, "num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 32,
    ...          "input_embedding_dim": 8}
    >>> from rembed_keras import ledger
    >>> {name: each.parameters for name, each in held_by_each(ledger(sizes), devices=8).items()}
    {'data_parallel': 52576, 'model_parallel': 24576, 'fully_sharded': 6976}
    """
    entries = ledger.entries
    remembered = remembered_of(entries, slots, ledger.stored_in)
    of_a_token = (ledger.activations if activations is None else activations) * size_of_number(ledger.computed_in)

    def of(strategy, shapes, size=size_of_number):
        """Bytes of shapes of each entry."""
        return sum(
            size(entry.dtype or ledger.stored_in) * sum(_share(each, entry, devices, strategy) for each in own)
            for entry, own in zip(entries, shapes, strict=True)
        )

    return {
        strategy: Held(
            of(strategy, [entry.shapes for entry in entries]),
            of(strategy, [entry.trained_shapes for entry in entries]),
            of(strategy, remembered, size_of_slot),
            round(of_a_token * ledger.sequence_length),
        )
        for strategy in STRATEGIES
    }


def held_table(held: Mapping[str, Held], devices: int) -> Table:
    """What `held_by_each` counts, as a table.

    >>> held_table({"data_parallel": Held(8, 4, 16, 100)}, devices=2).rows
    [['data_parallel', '8', '4', '16', '28', '100']]
    """
    columns = ["STRATEGY", "parameters", "gradients", "slots", "these three", "activations of a row"]
    rows = [
        [name, *(f"{number:,}" for number in (each.parameters, each.gradients, each.slots, each.all, each.activations))]
        for name, each in held.items()
    ]
    return Table(f"Bytes of each of {devices} devices, by STRATEGY, on JAX", columns, rows, words=1)


def table_rows(ledger: Ledger) -> list[int]:
    """Rows of the tables of tokens, or of their bands, each number once."""
    return sorted({shape[0] for entry in ledger.entries for shape in entry.shapes[: entry.tables]})


def uneven_tables(ledger: Ledger, devices: int) -> list[str]:
    """A line for each table of tokens whose rows `model_parallel` and `fully_sharded` cannot spread over all devices.

    >>> sizes = {"vocabulary_size": 1002, "num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 32,
    ...          "input_embedding_dim": 8}
    >>> from rembed_keras import ledger
    >>> uneven_tables(ledger(sizes), devices=8)
    ['1,002 rows of a table of tokens are shared by 2 of 8 devices; 1,008 would be by all']
    """
    return [
        f"{rows:,} rows of a table of tokens are shared by {math.gcd(rows, devices)} of {devices} devices; "
        f"{-(-rows // devices) * devices:,} would be by all"
        for rows in table_rows(ledger)
        if rows % devices
    ]


def cut_of(shape: Shape, devices: int, is_table: bool = False) -> int | None:
    """Which dimension of a variable `fully_sharded` cuts: the first that most devices can share evenly.

    Args:
        shape: of the variable.
        devices: how many there are.
        is_table: whether it is a table of tokens, which is cut by rows.

    Returns:
        None for vectors and scalars, which stay whole, and for what no two devices can share evenly.

    >>> cut_of((30, 32), 8), cut_of((32, 32), 8), cut_of((32,), 8), cut_of((3, 5), 8)
    (1, 0, None, None)
    """
    if len(shape) < 2:
        return None
    parts = [math.gcd(size, devices) for size in (shape[:1] if is_table else shape)]
    return parts.index(max(parts)) if max(parts) > 1 else None


def _share(shape, entry, devices, strategy):
    """Numbers that each device has of a variable, or of a slot, which lies where a variable of its shape does."""
    is_table = shape in entry.shapes[: entry.tables]
    is_cut = strategy == "fully_sharded" or (strategy == "model_parallel" and is_table)
    cut = cut_of(shape, devices, is_table) if is_cut else None
    return math.prod(shape) // (1 if cut is None else math.gcd(shape[cut], devices))
