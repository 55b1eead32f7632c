"""What of a mixture changes at which step: sizes of batches, lengths of rows and weights of languages.

Where the length of rows changes, each language begins a new epoch, since slices of another length are other slices; no
text is read twice within an epoch before or after. Where only the rows of a batch or the weights change, each language
continues with its next row.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rembed_keras.data.pipeline.order import Interleaving
from rembed_keras.data.pipeline.schedules import at, by_step


class Phase(NamedTuple):
    """Steps whose batches have one shape.

    Attributes:
        first_step: from 0.
        last_step: the first step after it.
        batch_size: B.
        sequence_length: S.
    """

    first_step: int
    last_step: int
    batch_size: int
    sequence_length: int

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
