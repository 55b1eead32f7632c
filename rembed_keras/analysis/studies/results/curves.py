"""Which arms' losses can be drawn on one axis."""

import statistics
from collections.abc import Mapping, Sequence

OUTSIDE = 2.0  # how many times the highest loss of the arm in the middle an arm's lowest is, to be left out


def on_one_axis(found: Sequence[Mapping]) -> tuple[list[Mapping], str]:
    """Curves without those of arms whose loss is of another kind, beside which all others would lie flat.

    Replaced-token detection adds fifty times its own loss to that of its generator, for one.

    Args:
        found: with `arm` and `points`, pairs of a step and a loss.

    Returns:
        Those that can be drawn together, and a note that names the others; "" if there are none.

    >>> sums = {"arm": "sum", "points": [(1, 40.0), (2, 33.0)]}
    >>> others = [{"arm": name, "points": [(1, 9.0), (2, 5.0)]} for name in ("one", "two")]
    >>> shown, note = on_one_axis([sums, *others])
    >>> [each["arm"] for each in shown], note
    (['one', 'two'], 'not shown, a loss of another kind: sum, from 33')
    """
    losses: dict[str, list[float]] = {}
    for each in found:
        losses.setdefault(each["arm"], []).extend(loss for _, loss in each["points"])
    drawn = {arm: values for arm, values in losses.items() if values}
    if not drawn:
        return [], ""
    middle = statistics.median_low([max(values) for values in drawn.values()])
    outside = {arm: min(values) for arm, values in drawn.items() if min(values) > OUTSIDE * middle}
    said = ", ".join(f"{arm}, from {lowest:.3g}" for arm, lowest in outside.items())
    note = f"not shown, a loss of another kind: {said}" if said else ""
    return [each for each in found if each["arm"] not in outside], note
