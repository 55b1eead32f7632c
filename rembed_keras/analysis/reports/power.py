"""Statistical power: how small a difference a test set and a number of seeds can detect.

A result that is not significant says little without it: below these differences, "not significant" is to be expected of
systems that do differ.
"""

import math
from collections.abc import Callable

ROUNDING = 1e-12  # sums in another order differ by less
CERTAIN = 10  # times the critical t, or 1, in deviations: a difference of a power of 1 in float64


def accuracy_power(n: float, difference: float, agreement: float, alpha: float = 0.05) -> float:
    """Power of McNemar's test for a true difference in accuracy of two systems on the same examples.

    Args:
        n: how many examples.
        difference: of the accuracies; no more than the share on which the systems disagree.
        agreement: share of the examples that both get right or both get wrong.
        alpha: two-sided level.

    Raises:
        ValueError: for a difference larger than the disagreement.

    Source: Connor 1987; Card et al. 2020, "With Little Power Comes Great Responsibility", section 4.

    >>> round(accuracy_power(1000, 0.04, agreement=0.8), 2)
    0.81
    """
    from scipy import stats  # a second and a half of import, which most commands do without

    disagreement = 1 - agreement
    if abs(difference) > disagreement + ROUNDING:
        raise ValueError(f"systems that agree on {agreement:.1%} cannot differ by {abs(difference):.1%}")
    if disagreement < ROUNDING:
        return 0.0
    level = stats.norm.isf(alpha / 2) * math.sqrt(disagreement)
    scale = math.sqrt(max(disagreement - difference**2, ROUNDING))
    shifts = (abs(difference) * math.sqrt(n), -abs(difference) * math.sqrt(n))
    return float(sum(stats.norm.sf((level - shift) / scale) for shift in shifts))


def smallest_accuracy_difference(n: float, agreement: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest difference in accuracy that n examples can detect; see `accuracy_power`.

    Args:
        n: how many examples.
        agreement: share of the examples that both systems get right or wrong. Where it leaves no detectable
            difference, the least sufficient disagreement is assumed, all of it in favour of one system.
        power: the probability to detect it.
        alpha: two-sided level.

    Returns:
        Between 0 and 1; infinity if no difference can be detected.

    >>> round(smallest_accuracy_difference(1000, agreement=0.8), 3)
    0.04
    """
    return _least(lambda gap: accuracy_power(n, gap, min(agreement, 1 - gap), alpha), power, 1.0)


def seeds_power(k: int, difference: float, std: float, alpha: float = 0.05) -> float:
    """Power of a paired t-test over k seeds for a true mean difference: the noncentral t distribution.

    Args:
        k: how many pairs of seeds; at least two.
        difference: the true one.
        std: standard deviation of the differences; an estimate from a few seeds is rough.
        alpha: two-sided level.

    >>> round(seeds_power(5, 0.02, std=0.01), 2)
    0.91
    """
    from scipy import stats

    critical = float(stats.t.isf(alpha / 2, k - 1))
    if difference == 0:
        return alpha  # where scipy's noncentral F may give less than nothing
    if abs(difference) >= CERTAIN * max(critical, 1.0) * std:
        return 1.0
    # T^2 is noncentral F, whose tails stay finite where scipy's noncentral t does not
    return float(stats.ncf.sf(critical**2, 1, k - 1, k * (difference / std) ** 2))


def smallest_seeds_difference(k: int, std: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest mean difference that k paired seeds can detect; see `seeds_power`.

    Returns:
        In units of `std`; infinity for one seed.

    >>> round(smallest_seeds_difference(5, std=0.01), 4)
    0.0168
    """
    from scipy import stats

    if k < 2:
        return math.inf
    most = CERTAIN * max(float(stats.t.isf(alpha / 2, k - 1)), 1.0)
    return std * _least(lambda gap: seeds_power(k, gap, 1.0, alpha), power, most)


def _least(power_of: Callable[[float], float], power: float, most: float) -> float:
    from scipy import optimize

    if power_of(0.0) >= power:  # at a level as high as the power
        return 0.0
    if power_of(most) < power:
        return math.inf
    return float(optimize.brentq(lambda gap: power_of(gap) - power, 0.0, most, xtol=ROUNDING))
