"""Weights of losses that may change by step, and which losses count at all."""

from collections.abc import Mapping
from typing import Any

from rembed_keras.errors import UserError, is_within, shortened


def by_step(weight: Any, what: str) -> list[tuple[int, float]]:
    """A weight as [(step, number), ...], rising.

    Args:
        weight: a number, or numbers by the step from which they hold, the first from 0.
        what: has this weight, for messages.

    Raises:
        UserError: for what is no weight.

    >>> by_step({"10": 1.0, 0: 0.5}, "a weight")
    [(0, 0.5), (10, 1.0)]
    """
    pairs = weight.items() if isinstance(weight, Mapping) else [(0, weight)]
    given = [(int(step) if isinstance(step, str) and step.isdigit() else step, rate) for step, rate in pairs]
    are_good = all(is_within(step, "CountOrZero") and is_within(rate, "Rate") for step, rate in given)
    pairs = sorted(given) if are_good else []
    if not pairs or pairs[0][0] != 0:
        raise UserError(f"{what} is {shortened(weight)}; it must be at least 0, or such numbers by step from 0")
    return pairs


def counts(term: Any) -> bool:
    """Whether a loss term's weight is ever above 0; one that never counts costs nothing.

    Args:
        term: see `adaptation.terms.Term`; it has a `weight` and a `name`.

    Raises:
        UserError: for what is no weight.

    >>> from types import SimpleNamespace
    >>> counts(SimpleNamespace(weight={0: 0.0, 10: 0.5}, name="r_drop"))
    True
    """
    return any(weight for _, weight in by_step(term.weight, f"the weight of {term.name}"))


def weight_at(pairs, step):
    """The weight at a step, a scalar; the last where there is no step."""
    from keras import ops  # only here: recipes are checked without a framework

    weight = ops.cast(pairs[-1][1] if step is None else pairs[0][1], "float32")
    for start, rate in pairs[1:] if step is not None else ():
        weight = ops.where(step >= start, ops.cast(rate, "float32"), weight)
    return weight
