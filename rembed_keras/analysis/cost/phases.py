"""What the phases of a pre-training cost, whose rows have different lengths."""

from collections.abc import Callable
from typing import Any, NamedTuple


class PhaseCost(NamedTuple):
    """Steps whose batches have one shape, and what they cost.

    Attributes:
        first_step: from 0.
        steps: how many.
        batch_size: B.
        sequence_length: S.
        training_flops: of all its steps, forward and backward, as the ledger counts them at this length.
    """

    first_step: int
    steps: int
    batch_size: int
    sequence_length: int
    training_flops: int

    @property
    def tokens(self) -> int:
        """Tokens of all its steps."""
        return self.steps * self.batch_size * self.sequence_length

    def to_json(self) -> dict:
        """As what JSON can say."""
        return {
            "first_step": self.first_step,
            "steps": self.steps,
            "batch_size": self.batch_size,
            "sequence_length": self.sequence_length,
            "tokens": self.tokens,
            "training_flops": self.training_flops,
        }


def phase_costs(shapes: list[tuple[int, int, int]], steps: int, count: Callable[[int], Any]) -> tuple[PhaseCost, ...]:
    """What each phase of a run costs.

    Args:
        shapes: first step, B and S of each, in the order of steps.
        steps: of the whole run.
        count: the ledger at a length of rows.
    """
    begun = [shape for shape in shapes if shape[0] < steps]
    ends = [*(first for first, _, _ in begun[1:]), steps]
    return tuple(
        PhaseCost(
            first, end - first, rows, length, (end - first) * rows * length * count(length).training_flops["total"]
        )
        for (first, rows, length), end in zip(begun, ends, strict=True)
    )
