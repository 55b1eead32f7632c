"""Verdicts on hypotheses, derived from scores alone.

A hypothesis is tested by the differences of its two arms, paired by seed and language. The seed is the unit: scores of
one model in many languages are not independent, so languages are averaged within a seed and a paired t-test is made
over seeds. P-values are adjusted by Holm's procedure over all hypotheses of a study. Then a hypothesis is

* supported, if the difference is significant and of the expected sign,
* contradicted, if it is significant and of the other sign,
* too close to call otherwise, with the power that was had: an interval, and the effect that could have been detected.

A hypothesis without two pairs of seeds counts in the correction, with a p-value of 1.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from rembed_keras.analysis.reports.power import seeds_power, smallest_seeds_difference
from rembed_keras.analysis.reports.significance import ROUNDING, Comparison, holm, paired_t
from rembed_keras.analysis.studies.definition import Hypothesis

SUPPORTED, CONTRADICTED, TOO_CLOSE = "supported", "contradicted", "too close to call"
NO_PAIR = "no seed has a score of both arms"
NO_LANGUAGE = "no language has a score in every run: "
LEFT_OUT = "left out, since not every run has them: "
SAME = 1e-6  # relative difference of numbers that were derived twice, perhaps by another version of a library


@dataclass(frozen=True)
class Verdict:
    """What became of a hypothesis.

    Attributes:
        hypothesis: its name.
        verdict: "supported", "contradicted" or "too close to call".
        difference: mean of `arm` less mean of `against`; None without a pair of seeds.
        low: lower end of the interval of the difference, not adjusted; None if there is none.
        high: upper end.
        p: two-sided p-value; None if there is none.
        adjusted_p: after Holm's procedure.
        detectable: the smallest true difference that is detected with a power of 80 %, at the level of Holm's first
            step; None if none is.
        power: for a true difference as small as the hypothesis's smallest effect; None if unknown.
        seeds: how many pairs of seeds.
        languages: how many languages; 1 for a measure without.
        note: what else there is to say.
    """

    hypothesis: str
    verdict: str
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    adjusted_p: float
    detectable: float | None
    power: float | None
    seeds: int
    languages: int
    note: str = ""

    def to_json(self) -> dict:
        """The fields."""
        return asdict(self)


def derive(hypotheses: Sequence[Hypothesis], scores: Iterable[Mapping], alpha: float = 0.05) -> list[Verdict]:
    """Verdicts on all hypotheses of a study.

    Args:
        hypotheses: of the study.
        scores: rows with `arm`, `seed`, `measure`, `language` and `value`.
        alpha: two-sided level of all tests together; intervals cover 1 - alpha, each for itself.

    >>> rows = [
    ...     {"arm": arm, "seed": seed, "measure": "loss", "language": "", "value": 5 + (arm == "a") + seed / 10**4}
    ...     for arm in "ab" for seed in range(3)
    ... ]
    >>> rows[0]["value"] += 0.01
    >>> derive([Hypothesis("h", "a", "b", "loss", "higher", 0.1)], rows)[0].verdict
    'supported'
    """
    rows, count = list(scores), len(hypotheses)
    gaps = [differences(each, rows) for each in hypotheses]
    found = [_compared(each, 1 - alpha) for each in gaps]
    adjusted = holm([1.0 if math.isnan(each.p) else each.p for each in found])
    verdicts = [
        _verdict(each, gap, comparison, float(p), alpha, count)
        for each, gap, comparison, p in zip(hypotheses, gaps, found, adjusted, strict=True)
    ]
    return [_with_left_out(each, lacking(about, rows)) for each, about in zip(verdicts, hypotheses, strict=True)]


def differences(hypothesis: Hypothesis, scores: Iterable[Mapping]) -> np.ndarray:
    """Differences of the two arms of a hypothesis, [seeds, languages].

    Seeds count that both arms have, and languages that all of these runs have.
    """
    return np.array([row for _, row in _paired(hypothesis, scores)[1]])


def by_language(hypothesis: Hypothesis, scores: Iterable[Mapping], alpha: float = 0.05) -> dict[str, Comparison]:
    """The difference in each language, with an interval over seeds, which is NaN for fewer than two."""
    languages, rows = _paired(hypothesis, scores)
    gaps = np.array([row for _, row in rows])
    return {language: paired_t(gaps[:, index], 1 - alpha) for index, language in enumerate(languages) if len(gaps)}


def differing(one: Verdict, other: Verdict) -> list[str]:
    """The fields in which two verdicts differ, numbers beyond rounding.

    Args:
        one: a verdict.
        other: another, or one that does not say which languages are left out, as those of earlier versions.
    """
    note = other.note if other.note == _without_languages(one.note) else one.note
    theirs = asdict(other)
    return [name for name, value in asdict(replace(one, note=note)).items() if not _agree(value, theirs[name])]


def _agree(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=SAME, abs_tol=ROUNDING)
    return one == other


def lacking(hypothesis: Hypothesis, scores: Iterable[Mapping]) -> dict[tuple[str, int], list[str]]:
    """Languages that a run of a pair lacks and another run has, by arm and seed; a verdict leaves them out.

    Args:
        hypothesis: of the study.
        scores: as in `derive`.
    """
    ours, theirs, seeds = _pairs(hypothesis, scores)
    runs = {
        (arm, seed): values[seed]
        for seed in seeds
        for arm, values in ((hypothesis.arm, ours), (hypothesis.against, theirs))
    }
    every = {language for values in runs.values() for language in values}
    return {run: sorted(every - values.keys()) for run, values in runs.items() if every - values.keys()}


def _pairs(hypothesis, scores):
    """Values by seed and language of both arms, and the seeds that both have."""
    values: dict[str, dict[int, dict[str, float]]] = {hypothesis.arm: {}, hypothesis.against: {}}
    for row in scores:
        if row["measure"] == hypothesis.measure and row["arm"] in values:
            values[row["arm"]].setdefault(row["seed"], {})[row["language"]] = row["value"]
    ours, theirs = values[hypothesis.arm], values[hypothesis.against]
    return ours, theirs, sorted(ours.keys() & theirs.keys())


def _paired(hypothesis, scores):
    """Languages, and (seed, differences by language) of each pair."""
    ours, theirs, seeds = _pairs(hypothesis, scores)
    of_all = [set(runs[seed]) for seed in seeds for runs in (ours, theirs)]
    languages = sorted(set.intersection(*of_all)) if of_all else []
    if not languages:
        return [], []
    return languages, [(seed, [ours[seed][name] - theirs[seed][name] for name in languages]) for seed in seeds]


def _compared(gaps, confidence):
    return paired_t(gaps, confidence) if len(gaps) else Comparison(*[math.nan] * 4)


def _verdict(hypothesis, gaps, comparison, adjusted_p, alpha, count):
    seeds, languages = gaps.shape if len(gaps) else (0, 0)
    verdict = Verdict(hypothesis.name, TOO_CLOSE, None, None, None, None, adjusted_p, None, None, seeds, languages)
    if not seeds:
        return replace(verdict, note=NO_PAIR)
    verdict = replace(verdict, difference=comparison.difference)
    if math.isnan(comparison.p):
        why = "with one seed nothing can be said" if seeds == 1 else "the difference is the same from all seeds"
        return replace(verdict, note=why)
    std, effect = float(gaps.mean(axis=1).std(ddof=1)), hypothesis.smallest_effect
    detectable = smallest_seeds_difference(seeds, std, alpha=alpha / count)
    sign = 1 if hypothesis.expected == "higher" else -1
    called = (SUPPORTED if sign * comparison.difference > 0 else CONTRADICTED) if adjusted_p < alpha else TOO_CLOSE
    return replace(
        verdict,
        verdict=called,
        low=comparison.low,
        high=comparison.high,
        p=comparison.p,
        detectable=detectable if math.isfinite(detectable) else None,
        power=seeds_power(seeds, effect, std, alpha / count),
        note=_note(called, comparison, sign, effect),
    )


def _with_left_out(verdict, lost):
    languages = ", ".join(sorted({language for each in lost.values() for language in each}))
    if not languages:
        return verdict
    if not verdict.seeds:
        return replace(verdict, note=NO_LANGUAGE + languages)
    return replace(verdict, note="; ".join(filter(None, [verdict.note, LEFT_OUT + languages])))


def _without_languages(note):
    """A note as it was before it named languages."""
    return NO_PAIR if note.startswith(NO_LANGUAGE) else note.partition(LEFT_OUT)[0].removesuffix("; ")


def _note(verdict, comparison, sign, effect):
    most = max(sign * comparison.low, sign * comparison.high)
    if verdict == SUPPORTED and most < effect:
        return f"the effect is smaller than {effect:g}, the smallest worth seeing"
    if verdict == TOO_CLOSE and most < effect:
        return f"an effect of {effect:g} as expected is outside the interval"
    return ""
