"""What the phases of a pre-training cost, whose rows have different lengths."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from rembed_keras.data.pipeline.schedules import at, by_step


class PhaseCost(NamedTuple):
    """Steps whose batches have one shape, and what they cost.

    Attributes:
        first_step: from 0.
        steps: how many.
        batch_size: B.
        sequence_length: S.
        training_flops: of all its steps, forward and backward, as the ledger counts them at this length and at the
            mask rates of these steps.
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


def phase_costs(
    shapes: list[tuple[int, int, int]], steps: int, mask_rate: Any, count: Callable[[int, float], int], begin: int = 0
) -> tuple[PhaseCost, ...]:
    """What each phase of a run costs.

    Args:
        shapes: first step, B and S of each, in the order of steps.
        steps: of the whole run.
        mask_rate: share of the tokens that are predicted, or a schedule.
        count: training FLOPs of a token, of the length of its row and the mask rate.
        begin: the step from which they are counted.
    """
    begun = [shape for shape in shapes if shape[0] < steps]
    ends = [*(first for first, _, _ in begun[1:]), steps]
    found = []
    for (start, rows, length), end in zip(begun, ends, strict=True):
        first = max(start, begin)
        if first >= end:
            continue
        changes = sorted(step for step in by_step(mask_rate) if first < step < end)
        flops = sum(
            (until - since) * rows * length * count(length, at(mask_rate, since))
            for since, until in pairwise([first, *changes, end])
        )
        found.append(PhaseCost(first, end - first, rows, length, flops))
    return tuple(found)
