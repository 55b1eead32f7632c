"""What of a mixture changes at which step: sizes of batches, lengths of rows and weights of languages.

Where the length of rows changes, each language begins a new epoch, since slices of another length are other slices; no
text is read twice within an epoch before or after. Where only the rows of a batch or the weights change, each language
continues with its next row.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rembed_keras.data.pipeline.order import Interleaving
from rembed_keras.errors import UserError


class Phase(NamedTuple):
    """Steps whose batches have one shape.

    Attributes:
        first_step: from 0.
        last_step: the first step after it.
        batch_size: B.
        sequence_length: S.
        tokens_before: tokens of all steps before it.
    """

    first_step: int
    last_step: int
    batch_size: int
    sequence_length: int
    tokens_before: int

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a batch."""
        return self.batch_size * self.sequence_length


class Course(NamedTuple):
    """Steps whose batches have one shape and one weighting.

    Attributes:
        first_step: from 0.
        batch_size: B.
        sequence_length: S.
        weights: each language's share of the rows, float64 [N].
        interleaving: of the languages by these.
        slices: rows that each language has in an epoch, int64 [N].
        before: at which row each language begins, counted over all epochs, int64 [N].
    """

    first_step: int
    batch_size: int
    sequence_length: int
    weights: np.ndarray
    interleaving: Interleaving
    slices: np.ndarray
    before: np.ndarray

    def rows(self, step: int) -> np.ndarray:
        """How many rows each language has from the first step up to another, int64 [N]."""
        return self.interleaving.totals((step - self.first_step) * self.batch_size)


def by_step(value: Any) -> Mapping[int, Any]:
    """A schedule: values by their first step.

    >>> by_step(0.3), by_step({0: 0.3, 100: 0.1})
    ({0: 0.3}, {0: 0.3, 100: 0.1})
    """
    return value if isinstance(value, Mapping) else {0: value}


def at(value: Any, step: int) -> Any:
    """A schedule's value at a step.

    >>> at({0: 0.3, 100: 0.1}, 99), at(0.3, 99)
    (0.3, 0.3)
    """
    schedule = by_step(value)
    return schedule[max(first for first in schedule if first <= step)]


def check_schedules(batch_size: Any = 1, sequence_length: Any = 8, alpha: Any = 0, mask_rate: Any = 0) -> None:
    """Checks that what may be a schedule has a value from step 0 on; arguments as of `Mixture`.

    Raises:
        UserError: if one has not.
    """
    given = (
        ("alpha", alpha, "an exponent", "0: 0.7, 1000: 0.3"),
        ("mask_rate", mask_rate, "a share", "0: 0.3, 1000: 0.15"),
        ("BATCH_SIZE", batch_size, "a size", "0: 64, 1000: 16"),
        ("SEQUENCE_LENGTH", sequence_length, "a length", "0: 128, 1000: 512"),
    )
    for name, value, noun, example in given:
        steps = by_step(value)
        if 0 not in steps or not all(isinstance(step, int) and step >= 0 for step in steps):
            raise UserError(f"{name} is {value!r}; it must give {noun} from step 0 on, as in {{{example}}}")


def shapes(batch_size: Any, sequence_length: Any) -> list[tuple[int, int, int]]:
    """First step, B and S of each shape of a batch, in the order of steps.

    Args:
        batch_size: B, or a schedule.
        sequence_length: S, or a schedule.

    >>> shapes({0: 64, 900: 16}, {0: 128, 900: 512})
    [(0, 64, 128), (900, 16, 512)]
    """
    found: list[tuple[int, int, int]] = []
    for step in sorted({*by_step(batch_size), *by_step(sequence_length)}):
        shape = at(batch_size, step), at(sequence_length, step)
        if not found or found[-1][1:] != shape:
            found.append((step, *shape))
    return found


def courses(sizes: np.ndarray, batch_size: Any, sequence_length: Any, alpha: Any) -> list[Course]:
    """All courses of a run.

    Args:
        sizes: tokens of each language, int64 [N].
        batch_size: B, or a schedule.
        sequence_length: S, or a schedule.
        alpha: sampling exponent, or a schedule.
    """
    found: list[Course] = []
    for step in sorted({*by_step(batch_size), *by_step(sequence_length), *by_step(alpha)}):
        length = at(sequence_length, step)
        weights = sizes ** at(alpha, step) / np.sum(sizes ** at(alpha, step))
        slices, before = sizes // length, np.zeros(len(sizes), np.int64)
        if found:
            last = found[-1]
            before = last.before + last.rows(step)
            if length != last.sequence_length:
                before = -(-before // last.slices) * slices
        found.append(Course(step, at(batch_size, step), length, weights, Interleaving(weights), slices, before))
    return found


def until(parts: Sequence[Course], steps: int) -> Iterator[tuple[Course, int]]:
    """Yields the courses of the first so many steps, and where each ends."""
    ends = [*(part.first_step for part in parts[1:]), steps]
    for part, end in zip(parts, ends, strict=True):
        if part.first_step < steps or part is parts[0]:
            yield part, min(end, steps)
