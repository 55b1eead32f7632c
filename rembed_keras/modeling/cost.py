"""What a part of a model costs: the terms in which every part brings its own entries to the ledger.

Parameters are exact, since an entry lists the shapes of its variables. FLOPs are those of matrix products, a
multiplication and an addition counting as two. Activations are the numbers that a backward pass needs of the forward
pass: operands of matrix products, and what goes into norms, activation functions and softmax; frameworks keep up to
half as much again, and rematerialisation less. Nothing here imports a framework, so that a model of any size is counted
at once and without building it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rembed_keras.modeling.sizes import band_sizes

Shape = tuple[int, ...]
BACKWARD = 2  # products of a backward pass for each of the forward pass
Config = Mapping[str, Any]  # arguments of an encoder or of a model, as `get_config` gives them


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: a part of a model.

    Attributes:
        name: the part.
        shapes: of its variables.
        flops: of a forward pass, per token of input.
        is_kept: whether it is part of the encoder that is kept after pre-training.
        in_paper: how many of its parameters the paper counts; all by default.
        is_trained: whether pre-training moves its variables, so that an optimizer has slots for them.
        activations: numbers kept for the backward pass, per token of input.
        spared: FLOPs of a forward pass, per token of input, that pre-training does not need: those of the pooler, and
            of the last block for tokens that are not predicted.
        frozen: FLOPs of a backward pass, per token of input, that pre-training does not need since what they would move
            is frozen.
        tables: how many of its variables, the first ones, are tables of tokens, or bands of one.
        dtype: of its variables, where that is not the encoder's.
        unreached: shapes of those of its variables that no gradient of the loss reaches.

    >>> Entry("head", ((4, 8), (8,)), flops=64, is_kept=False).parameters
    40
    """

    name: str
    shapes: tuple[Shape, ...]
    flops: int = 0
    is_kept: bool = True
    in_paper: int | None = None
    is_trained: bool = True
    activations: int = 0
    spared: int = 0
    frozen: int = 0
    tables: int = 0
    dtype: str | None = None
    unreached: tuple[Shape, ...] = ()

    @property
    def parameters(self) -> int:
        """How many parameters it has."""
        return size_of(self.shapes)

    @property
    def paper_parameters(self) -> int:
        """How many of its parameters the paper counts."""
        return self.parameters if self.in_paper is None else self.in_paper

    @property
    def trained_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the variables that pre-training moves."""
        moved = [*reversed(self.shapes)] if self.is_trained else []
        for shape in self.unreached if moved else ():
            moved.remove(shape)
        return tuple(reversed(moved))

    @property
    def trained_parameters(self) -> int:
        """How many of its parameters pre-training moves."""
        return size_of(self.trained_shapes)


@dataclass(frozen=True)
class Work:
    """What a block, or a part of it, does with each token; what two parts do is their sum.

    Attributes:
        flops: of a forward pass, per token.
        needed_of_all: the part of them that is needed of every token even where the block's output is wanted of a few
            only: keys and values.
        activations: numbers kept for the backward pass, per token.
        per_pick: FLOPs besides these of a token whose output is wanted, where that of a few is; by default the rest.
    """

    flops: float
    needed_of_all: float
    activations: float
    per_pick: float | None = None

    @property
    def of_a_pick(self) -> float:
        """`per_pick`, or the rest of the FLOPs."""
        return self.flops - self.needed_of_all if self.per_pick is None else self.per_pick

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.flops + other.flops,
            self.needed_of_all + other.needed_of_all,
            self.activations + other.activations,
            self.of_a_pick + other.of_a_pick,
        )


def adam_slots(entries: Iterable[Entry]) -> list[tuple[Shape, ...]]:
    """Shapes of what Adam remembers of each entry's variables: two numbers of each parameter that is trained.

    An optimizer says so, or otherwise, in a static method `ledger_slots`; one without it is built to be counted.
    """
    return [2 * entry.trained_shapes for entry in entries]


def named_apart(entries: Mapping[int, Entry | None]) -> dict[int, Entry]:
    """Entries of which no two have one name: those that come later under a name have a number after it.

    Args:
        entries: by a number; None is left out.

    >>> found = named_apart({0: Entry("distances", ((4, 8),)), 1: None, 2: Entry("distances", ((6, 8),))})
    >>> [(number, entry.name) for number, entry in found.items()]
    [(0, 'distances'), (2, 'distances 2')]
    """
    found: dict[int, Entry] = {}
    met = Counter[str]()
    for number, entry in entries.items():
        if entry is not None:
            met[entry.name] += 1
            again = f" {met[entry.name]}" if met[entry.name] > 1 else ""
            found[number] = replace(entry, name=f"{entry.name}{again}")
    return found


def size_of(shapes: Iterable[Shape]) -> int:
    """Number of parameters in variables of such shapes."""
    return sum(math.prod(shape) for shape in shapes)


def table_shapes(vocabulary_size: int, width: int, cutoffs: Sequence[int] = ()) -> tuple[Shape, ...]:
    """Shapes of a token table, with those of the projections of its bands; see `BandedTable`."""
    bands = band_sizes(vocabulary_size, width, cutoffs)
    return (*bands, *((narrow, width) for _, narrow in bands[1:]))


def table_flops(vocabulary_size: int, width: int, cutoffs: Sequence[int] = ()) -> int:
    """FLOPs per token of the projections of a token table's bands."""
    return sum(2 * narrow * width for _, narrow in band_sizes(vocabulary_size, width, cutoffs)[1:])


def inner_dim(config: Config) -> int:
    """Width of all attention heads together, H x K."""
    heads, head_dim = heads_of(config)
    return heads * head_dim


def heads_of(config: Config) -> tuple[int, int]:
    """Number of attention heads, H, and the width of one, K."""
    return config["num_heads"], config.get("head_dim") or config["hidden_dim"] // config["num_heads"]
