"""Significance of scores: spread over seeds, paired tests, correction for multiple comparisons.

Scores vary with the examples in the test set and with the seed of training. Tests are paired, since systems are scored
on the same examples and trained with the same seeds. The seed is the unit: scores of one model in many languages are
not independent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EXACT_UNITS = 16  # up to here all sign patterns are enumerated
ROUNDING = 1e-12  # sums in another order differ by less
BLOCK = 2**22  # counts drawn at once


@dataclass(frozen=True)
class Spread:
    """Scores over seeds.

    Attributes:
        mean: of the runs that did not fail; NaN if all did.
        std: sample standard deviation of them; NaN for fewer than two.
        n: how many did not fail.
        failed: how many failed.
    """

    mean: float
    std: float
    n: int
    failed: int


@dataclass(frozen=True)
class Comparison:
    """A difference of two systems.

    Attributes:
        difference: mean of the first less mean of the second.
        low: lower end of the confidence interval.
        high: upper end.
        p: two-sided p-value of no difference.
    """

    difference: float
    low: float
    high: float
    p: float


def spread(values: Sequence[float | None]) -> Spread:
    """Mean and sample standard deviation over seeds; failed runs are counted separately.

    Args:
        values: a score per seed; None or NaN for a failed run.

    >>> spread([0.5, 0.7, None])
    Spread(mean=0.6, std=0.1414..., n=2, failed=1)
    """
    numbers = np.array([math.nan if value is None else value for value in values], float)
    whole = numbers[np.isfinite(numbers)]
    mean = float(whole.mean()) if len(whole) else math.nan
    std = float(whole.std(ddof=1)) if len(whole) > 1 else math.nan
    return Spread(mean, std, len(whole), len(numbers) - len(whole))


def average_languages(scores: np.ndarray, languages: Sequence[str], ids: Sequence[str]) -> np.ndarray:
    """One value per text from scores in several languages, such that the mean over texts is the mean over languages.

    Examples with one id are translations of one text, are easy or hard together, and count as one. A text's value is
    the mean over languages plus the number of texts times the text's share of the deviations from the languages' means.
    With one language the values are the scores themselves.

    Args:
        scores: [K, N], of K seeds on N examples.
        languages: the language of each example, [N].
        ids: the id of each example's text, shared by its translations, [N].

    Returns:
        [K, M], where M is the number of different ids, in sorted order.

    >>> average_languages(np.array([[1.0, 0.0, 1.0]]), ["de", "de", "fr"], ["a", "b", "a"])
    array([[1. , 0.5]])
    """
    _, language = np.unique(languages, return_inverse=True)
    texts, text = np.unique(ids, return_inverse=True)
    sizes = np.bincount(language)
    rows = []
    for row in np.asarray(scores, float):
        means = np.bincount(language, row) / sizes
        deviations = (row - means[language]) / (len(sizes) * sizes[language])
        rows.append(means.mean() + len(texts) * np.bincount(text, deviations))
    return np.stack(rows)


def paired_bootstrap(
    scores: np.ndarray,
    others: np.ndarray,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
    least: float = -1.0,
) -> Comparison:
    """Compares two systems on the same examples, by resampling the examples.

    Differences are averaged over seeds, then N examples are drawn with replacement. With several seeds each resample is
    also shifted by the standard error over seeds times a draw of Student's t with K - 1 degrees of freedom, since
    resampling a few seeds would underestimate their spread. The interaction of seeds and examples is counted twice,
    which is conservative. With one seed the result is about these two models only. No p-value is below that of a sign
    test in which all N examples agree: resamples of a few examples that agree would never say otherwise.

    Where the difference is the same on all examples, resamples have no spread. The interval then reaches as far as the
    mean would if the share of examples that differ otherwise were the largest of which N examples show none: the upper
    end of the exact binomial interval for 0 of N, about 3.7 / N. If one system is right on all N and the other on none,
    it holds 0 just where that sign test is not significant.

    Args:
        scores: between 0 and 1, of the first system, [N] or, of K seeds, [K, N].
        others: of the second, on the same examples and from the same seeds, of the same shape.
        resamples: how many to draw.
        confidence: of the percentile interval.
        seed: of the draws.
        least: the smallest that a difference can be, if not -1: 0 where a system is compared with none.

    Returns:
        The comparison; of one example the interval and p are NaN.

    Raises:
        ValueError: for shapes that differ.

    Source: Efron and Tibshirani 1993, chapter 13; Koehn 2004 for paired systems; Clopper and Pearson 1934 for 0 of N,
    and Hanley and Lippman-Hand 1983, "If nothing goes wrong, is everything all right?", for what it says.

    >>> right, others = np.tile([1.0, 0.0, 1.0, 1.0], 50), np.tile([1.0, 0.0, 1.0, 0.0], 50)
    >>> result = paired_bootstrap(right, others)
    >>> result.difference, bool(0.15 < result.low < 0.25 < result.high < 0.35), bool(result.p < 0.001)
    (0.25, True, True)
    """
    if np.shape(scores) != np.shape(others):
        raise ValueError(f"scores have shape {np.shape(scores)} and the others {np.shape(others)}")
    gaps = np.atleast_2d(np.asarray(scores, float) - np.asarray(others, float))
    difference, count = float(gaps.mean()), gaps.shape[1]
    if count == 1:
        return Comparison(difference, math.nan, math.nan, math.nan)
    generator, of_examples = np.random.default_rng(seed), gaps.mean(axis=0)
    means = _resampled_means(of_examples, resamples, generator)
    if len(gaps) > 1:
        error = gaps.mean(axis=1).std(ddof=1) / math.sqrt(len(gaps))
        means += error * generator.standard_t(len(gaps) - 1, resamples)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    if np.ptp(of_examples) < ROUNDING:
        unseen = 1 - ((1 - confidence) / 2) ** (1 / count)
        low = max(low - unseen * (difference - least), least)
        high = min(high + unseen * (1 - difference), 1.0)
    tail = 1 + min(np.sum(means <= ROUNDING), np.sum(means >= -ROUNDING))
    p = max(float(2 * tail / (1 + resamples)), 2.0 ** (1 - count))
    return Comparison(difference, float(low), float(high), min(1.0, p))


def _resampled_means(numbers, resamples, generator):
    """Bootstrap means: how often each distinct number is drawn with replacement is multinomial."""
    values, counts = np.unique(numbers, return_counts=True)
    at_once = max(1, BLOCK // len(values))
    sizes = [min(at_once, resamples - start) for start in range(0, resamples, at_once)]
    shares = counts / len(numbers)
    return np.concatenate([generator.multinomial(len(numbers), shares, size) @ values for size in sizes]) / len(numbers)


def paired_t(differences: np.ndarray, confidence: float = 0.95) -> Comparison:
    """Compares two systems over seeds by a paired t-test, for the given examples.

    Args:
        differences: of K seeds, [K] or, in L languages, [K, L]; languages are averaged within a seed.
        confidence: of the interval.

    Returns:
        The comparison; with one seed, or equal differences of all seeds, the interval and p are NaN.

    >>> paired_t([0.01, 0.03, 0.02])
    Comparison(difference=0.02, low=-0.0048..., high=0.0448..., p=0.0741...)
    """
    from scipy import stats  # a second and a half of import, which most commands do without

    units = _units(differences)
    mean = float(units.mean())
    error = float(units.std(ddof=1)) / math.sqrt(len(units)) if len(units) > 1 else 0.0
    if error < ROUNDING:
        return Comparison(mean, math.nan, math.nan, math.nan)
    reach = error * stats.t.ppf((1 + confidence) / 2, len(units) - 1)
    p = 2 * stats.t.sf(abs(mean) / error, len(units) - 1)
    return Comparison(mean, float(mean - reach), float(mean + reach), float(p))


def sign_flip_test(differences: np.ndarray, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of a paired permutation test, by flipping the signs of differences.

    All sign patterns are enumerated for up to 16 units, and `resamples` random ones drawn for more. With K seeds the
    smallest p is 2 / 2^K: 0.0625 for five.

    Args:
        differences: of K seeds, [K] or, in L languages, [K, L]. A seed's languages flip together, as they are of one
            model; pass `differences.ravel()` only if each is of a model of its own.
        resamples: how many random patterns.
        seed: of these.

    >>> sign_flip_test([0.01, 0.03, 0.02])
    0.25
    """
    units = _units(differences)
    if len(units) <= EXACT_UNITS:
        patterns = np.arange(2 ** len(units))[:, None] >> np.arange(len(units)) & 1
        return float(np.mean(_reaches(patterns, units)))
    patterns = np.random.default_rng(seed).integers(2, size=(resamples, len(units)))
    return float((1 + np.sum(_reaches(patterns, units))) / (1 + resamples))


def _reaches(patterns, units):
    return np.abs((1 - 2 * patterns) @ units) >= abs(units.sum()) - ROUNDING


def _units(differences):
    return np.asarray(differences, float).reshape(len(differences), -1).mean(axis=1)  # [K] or [K, L] -> [K]


def holm(p_values: Sequence[float]) -> np.ndarray:
    """P-values adjusted by Holm's step-down procedure, which controls the family-wise error rate.

    Args:
        p_values: [T], one per task.

    Returns:
        [T], in the given order: none below its p-value, none above 1, with the same ranking.

    Source: Holm 1979.

    >>> holm([0.01, 0.04, 0.03]).round(2)
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p_values, float)
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted
