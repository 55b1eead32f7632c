"""Numbers that hold from one step on until another: what a recipe may give instead of one number.

The ledger reads them too, which counts without NumPy.
"""

from collections.abc import Mapping
from typing import Any

from rembed_keras.errors import UserError


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


def up_to(value: Any, steps: int) -> Any:
    """What a schedule says of the first so many steps.

    >>> up_to({0: 0.3, 100: 0.1}, 100), up_to(0.3, 100)
    ({0: 0.3}, 0.3)
    """
    return {first: value[first] for first in value if first < steps} if isinstance(value, Mapping) else value


def check_schedules(batch_size: Any = 1, sequence_length: Any = 8, alpha: Any = 0, mask_rate: Any = 0.15) -> None:
    """Checks what may be a schedule: that it has a value from step 0 on, and that its values are in range.

    Args:
        batch_size: as of `Mixture`.
        sequence_length: as of `Mixture`.
        alpha: as of `Mixture`.
        mask_rate: as of `Mixture`.

    Raises:
        UserError: if one has not, or a value is out of range.
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
    for knob, value, least in (("BATCH_SIZE", batch_size, 1), ("SEQUENCE_LENGTH", sequence_length, 8)):
        for size in by_step(value).values():
            if isinstance(size, bool) or not isinstance(size, int) or size < least:
                raise UserError(f"{knob} is {value!r}; it must be a whole number of at least {least}")
    for exponent in by_step(alpha).values():
        if not isinstance(exponent, int | float) or not 0 <= exponent <= 1:
            raise UserError(f"alpha is {exponent!r}; it must be from 0 (equal shares) to 1 (proportional to size)")
    for rate in by_step(mask_rate).values():
        if not isinstance(rate, int | float) or not 0 < rate < 1:
            raise UserError(f"mask_rate is {rate!r}; it must be greater than 0 and less than 1")


def check_shares(batch_size: Any, parts: int) -> None:
    """Checks that replicas and micro-batches share batches evenly.

    Args:
        batch_size: B, or a schedule.
        parts: how many parts there are of a batch, of all replicas together.

    Raises:
        UserError: naming the first size that they cannot share.
    """
    for step, size in by_step(batch_size).items():
        if size % parts:
            since = f" from step {step} on" if len(by_step(batch_size)) > 1 else ""
            raise UserError(
                f"BATCH_SIZE is {size}{since}, which {parts} replicas and micro-batches cannot share evenly"
            )


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
