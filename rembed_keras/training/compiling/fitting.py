"""What fits where a step does not: the nearest change of a recipe, counted in closed form by its ledger.

A chip holds parameters and slots, a gradient of each parameter, and what the backward pass needs of its micro-batch.
Numbers of the ledger are exact for the first two; of the rest compilers keep more or less, so this is a forecast, and
`rembed compile` of what it names is the proof.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rembed_keras.analysis.cost.ledger import Ledger
from rembed_keras.analysis.cost.precision import size_of_number
from rembed_keras.analysis.cost.shards import activations_of, table_rows
from rembed_keras.modeling.cost import Config, size_of

WIDE = 4  # bytes of a number of a slot, and of a sum of gradients


@dataclass(frozen=True)
class Plan:
    """How a step is laid out.

    Attributes:
        chips: how many share it.
        rows: of a batch, on all chips.
        strategy: "one_device", "data_parallel", "model_parallel" or "fully_sharded".
        micro_batches: parts of a batch, one after the other.
        rematerialize: whether blocks keep only what comes in.
    """

    chips: int
    rows: int
    strategy: str
    micro_batches: int = 1
    rematerialize: bool = False

    @property
    def spreads_tables(self) -> bool:
        """Whether chips share the rows of tables of tokens."""
        return self.strategy in ("model_parallel", "fully_sharded")

    def __str__(self) -> str:
        words = [f"STRATEGY={self.strategy}", f"{self.micro_batches} micro-batches"]
        return ", ".join([*words, *(["rematerialize"] if self.rematerialize else []), f"{self.chips} chips"])


@dataclass(frozen=True)
class Sizes:
    """What a plan is counted with.

    Attributes:
        tables: parameters of tables of tokens, which `model_parallel` spreads; `fully_sharded` all others too.
        rows: a number that divides the rows of each table, which chips share as evenly as that allows.
        others: all other parameters.
        table_slots: numbers that the optimizer remembers of the tables.
        other_slots: those of all others.
        activations: bytes a token that the backward pass needs of the forward pass.
        rematerialized: the same with `rematerialize`.
        layers: blocks.
        sequence_length: S.
        bytes_of_a_weight: and of a gradient of a micro-batch; sums of gradients and slots have 4 bytes a number.
    """

    tables: int
    rows: int
    others: int
    table_slots: int
    other_slots: int
    activations: float
    rematerialized: float
    layers: int
    sequence_length: int
    bytes_of_a_weight: int

    @classmethod
    def of(cls, ledger: Ledger, encoder: Config, bytes_of_a_number: int) -> "Sizes":
        """Those of a ledger.

        Args:
            ledger: of the model.
            encoder: arguments of its encoder.
            bytes_of_a_number: of an activation: 4 in float32, 2 in bfloat16.
        """
        tables = slots = 0
        for entry, own in zip(ledger.entries, ledger.slots, strict=True):
            if entry.tables:
                spread = size_of(entry.shapes[: entry.tables])  # a bias, or a band's projection, is whole on each chip
                tables, slots = tables + spread, slots + own * spread // entry.parameters
        return cls(
            tables,
            math.gcd(*table_rows(ledger)),
            ledger.total - tables,
            slots,
            sum(ledger.slots) - slots,
            activations_of(ledger, encoder, False) * bytes_of_a_number,
            activations_of(ledger, encoder, True) * bytes_of_a_number,
            encoder["num_layers"],
            ledger.sequence_length,
            size_of_number(ledger.stored_in),
        )

    def bytes_of(self, plan: Plan) -> float:
        """Bytes of a chip that a plan takes."""
        tables = math.gcd(self.rows, plan.chips) if plan.spreads_tables else 1
        others = plan.chips if plan.strategy == "fully_sharded" else 1
        weights = self.others / others + self.tables / tables
        slots = self.other_slots / others + self.table_slots / tables
        held = 2 * self.bytes_of_a_weight * weights + WIDE * slots  # with gradients
        if plan.micro_batches > 1:  # sums of gradients beside the gradients of a part
            held += WIDE * weights
        if others > 1:  # what of a block is gathered to be computed
            held += self.bytes_of_a_weight * self.others / self.layers
        tokens = plan.rows * self.sequence_length / plan.chips / plan.micro_batches
        return held + tokens * (self.rematerialized if plan.rematerialize else self.activations)


def nearest(plan: Plan, sizes: Sizes, used: float, room: float) -> Plan | None:
    """The nearest plan that should fit where one does not; None if none does on up to 64 times as many chips.

    Tried in this order: micro-batches, rematerialization, both, with tables spread too, with all else spread too; then
    twice as many chips. Where the closed form was too low for the plan that does not fit, it counts as too low by the
    same factor for others.

    Args:
        plan: that does not fit.
        sizes: that it is counted with.
        used: bytes of a chip that it takes by the compiler.
        room: bytes that a chip has.

    >>> sizes = Sizes(10**9, 10**6, 10**8, 2 * 10**9, 2 * 10**8, 1e6, 1.1e5, 10, 512, 4)
    >>> str(nearest(Plan(16, 64, "data_parallel"), sizes, 17e9, 8e9))
    'STRATEGY=model_parallel, 1 micro-batches, 16 chips'
    >>> str(nearest(Plan(16, 64, "model_parallel"), sizes, 9e9, 8e9))
    'STRATEGY=model_parallel, 4 micro-batches, 16 chips'
    """
    factor = max(1.0, used / sizes.bytes_of(plan))
    return next((each for each in _plans(plan) if each != plan and factor * sizes.bytes_of(each) <= room), None)


def _plans(plan) -> Iterator[Plan]:
    for times in (1, 2, 4, 8, 16, 32, 64):
        chips = plan.chips * times
        rows, rest = divmod(plan.rows, chips)
        if rest:
            return
        given = "data_parallel" if plan.strategy == "one_device" else plan.strategy
        strategies = dict.fromkeys([given, "model_parallel", "fully_sharded"]) if chips > 1 else ["one_device"]
        for strategy in strategies:
            for rematerialize in dict.fromkeys([plan.rematerialize, True]):
                for parts in _doubled(plan.micro_batches, rows):
                    yield replace(
                        plan, chips=chips, strategy=strategy, micro_batches=parts, rematerialize=rematerialize
                    )


def _doubled(parts, rows):
    """Numbers of micro-batches that rows can be cut into, each twice the one before."""
    while rows % parts == 0:
        yield parts
        parts *= 2
