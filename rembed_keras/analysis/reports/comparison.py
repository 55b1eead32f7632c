"""Scores of runs as rows, and how two runs differ: by how much, how surely, and by how little they could.

A run is compared with another by the systems that both have, on the same examples and by the same seeds. Where it is
known how each example was answered, a difference must stand out from the chance in examples and in seeds; otherwise
from that in seeds alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rembed_keras.analysis.reports.power import smallest_accuracy_difference, smallest_seeds_difference
from rembed_keras.analysis.reports.results import BASELINES, Measure, Run
from rembed_keras.analysis.reports.significance import (
    Comparison,
    average_languages,
    holm,
    paired_bootstrap,
    paired_t,
    sign_flip_test,
    spread,
)
from rembed_keras.errors import UserError

LEVEL = 0.05
POWER = 0.8
MEAN = "mean"  # instead of a language
NOT_TOLD_APART = "not told apart"


@dataclass(frozen=True)
class ScoreRow:
    """The scores of one system of a run.

    Attributes:
        task: the task's name.
        metric: for example "accuracy".
        language: the language, or "mean" of several.
        languages: how many languages.
        least_n: examples in the language that has the fewest.
        most_n: examples in the language that has the most.
        run: the run's name.
        kept: parameters of the run's encoder; None if not known.
        dropped: parameters that existed only in its pre-training; None if not known.
        system: for example "pretrained".
        mean: over seeds that did not fail; NaN if all did.
        std: sample standard deviation over them; NaN for fewer than two.
        seeds: how many did not fail.
        failed: how many failed.
    """

    task: str
    metric: str
    language: str
    languages: int
    least_n: int
    most_n: int
    run: str
    kept: int | None
    dropped: int | None
    system: str
    mean: float
    std: float
    seeds: int
    failed: int


@dataclass(frozen=True)
class DifferenceRow:
    """How a run differs from another; NaN is what cannot be known.

    Attributes:
        task: the task's name.
        metric: for example "accuracy".
        language: the language, or "mean" of several.
        run: the run's name.
        against: the name of the run that it is compared with.
        system: the system that is compared.
        seeds: pairs of seeds of which neither failed.
        examples: different texts, where it is known how each was answered; else 0.
        difference: mean over the pairs, of the run less the other.
        low: lower end of the 95 % interval.
        high: upper end.
        p: two-sided.
        holm_p: adjusted for the rows of the table.
        sign_flip_p: two-sided, of the sign-flip test over seeds, as a check that assumes no distribution.
        visible: the smallest difference that would be found with a chance of 80 %, before adjustment.
        verdict: "better", "worse" or "not told apart".
    """

    task: str
    metric: str
    language: str
    run: str
    against: str
    system: str
    seeds: int
    examples: int
    difference: float
    low: float
    high: float
    p: float
    holm_p: float
    sign_flip_p: float
    visible: float
    verdict: str


def groups(languages: Iterable[str], each: bool) -> dict[str, list[str]]:
    """Which languages stand together in a row, by what to call them: all of them first.

    >>> groups(["fr", "de"], each=True)
    {'mean': ['de', 'fr'], 'de': ['de'], 'fr': ['fr']}
    >>> groups(["de"], each=True)
    {'de': ['de']}
    """
    names = sorted(languages)
    single = {name: [name] for name in names if each or len(names) == 1}
    return {MEAN: names, **single} if len(names) > 1 else single


def score_rows(run: Run, measure: Measure, languages: Sequence[str], language: str) -> list[ScoreRow]:
    """A row for each system of a run, baselines too; a baseline that was not tested in all the languages has none.

    Args:
        run: the run.
        measure: the task and its metric.
        languages: what to average over.
        language: what to call them.

    Raises:
        UserError: for a seed that was not scored in all languages.
    """
    rows = []
    sizes = [run.sizes[measure][name] for name in languages]
    for system, scores in run.values[measure].items():
        if system not in BASELINES or scores.keys() >= set(languages):
            found = spread([float(np.mean(values)) for values in run.by_seed(measure, system, languages).values()])
            rows.append(
                ScoreRow(
                    measure.task,
                    measure.metric,
                    language,
                    len(languages),
                    min(sizes),
                    max(sizes),
                    run.name,
                    run.kept,
                    run.dropped,
                    system,
                    found.mean,
                    found.std,
                    found.n,
                    found.failed,
                )
            )
    return rows


def compare(
    run: Run, other: Run, measure: Measure, system: str, languages: Sequence[str], language: str
) -> DifferenceRow:
    """Compares a system of two runs; the row is not yet judged, see `judge`.

    With predictions the interval and p are those of `paired_bootstrap`, over examples and seeds; without, those of
    `paired_t` over seeds. A system without seeds is set against every seed of the other.

    Args:
        run: the run.
        other: the run that it is compared with.
        measure: the task and its metric.
        system: the system.
        languages: what to average over.
        language: what to call them.

    Raises:
        UserError: for predictions that are not of the same examples.
    """
    mine, theirs = (each.by_seed(measure, system, languages) for each in (run, other))
    pairs = [(one, two) for one, two in _pairs(mine, theirs) if np.isfinite(mine[one] + theirs[two]).all()]
    gaps = np.array([np.subtract(mine[one], theirs[two]) for one, two in pairs])  # [K, L]
    examples = _examples(run, other, measure, system, pairs, languages) if pairs else None
    found = _test(gaps, examples)
    return DifferenceRow(
        task=measure.task,
        metric=measure.metric,
        language=language,
        run=run.name,
        against=other.name,
        system=system,
        seeds=len(pairs),
        examples=examples[0].shape[1] if examples else 0,
        difference=found.difference,
        low=found.low,
        high=found.high,
        p=found.p,
        holm_p=math.nan,
        sign_flip_p=sign_flip_test(gaps) if pairs else math.nan,
        visible=_visible(gaps, examples),
        verdict=NOT_TOLD_APART,
    )


def _test(gaps, examples):
    if examples:
        return paired_bootstrap(examples[0], examples[1], confidence=1 - LEVEL)
    return paired_t(gaps, confidence=1 - LEVEL) if len(gaps) else Comparison(*[math.nan] * 4)


def _visible(gaps, examples):
    """The smallest differences that the seeds and that the examples can see, as two sides of a right angle."""
    sides = []
    if len(gaps) > 1 and (std := float(gaps.mean(axis=1).std(ddof=1))) > 0:
        sides.append(smallest_seeds_difference(len(gaps), std, POWER, LEVEL))
    if examples:
        disagreement = float(np.mean(np.mean(examples[0] - examples[1], axis=0) ** 2))  # of answers that are 0 or 1
        sides.append(smallest_accuracy_difference(examples[0].shape[1], max(0.0, 1 - disagreement), POWER, LEVEL))
    return math.hypot(*sides) if sides else math.nan


def _pairs(mine, theirs):
    """The seeds of each that belong together."""
    if [*mine] == [None]:
        return [(None, seed) for seed in theirs]
    if [*theirs] == [None]:
        return [(seed, None) for seed in mine]
    return [(seed, seed) for seed in mine if seed in theirs]


def _examples(run, other, measure, system, pairs, languages):
    """The two systems' scores of examples, each [K, M]; None unless they are known of every seed and language."""
    sides: list[list[np.ndarray]] = [[], []]
    for pair in pairs:
        parts: list[list[float]] = [[], []]
        names, ids = [], []
        for language in languages:
            both = [
                each.examples(measure, system, seed, language) for each, seed in zip((run, other), pair, strict=True)
            ]
            if both[0] is None or both[1] is None:
                return None
            if both[0].keys() != both[1].keys():
                where = f"{measure.task} in {language}"
                raise UserError(f"{run.path} and {other.path} have answered other examples of {where}: evaluate again")
            texts = sorted(both[0])
            names += [language] * len(texts)
            ids += texts
            for part, answers in zip(parts, both, strict=True):
                part += [answers[text] for text in texts]
        for side, part in zip(sides, parts, strict=True):
            side.append(average_languages(np.array([part]), names, ids)[0])
    return np.stack(sides[0]), np.stack(sides[1])


def judge(rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    """Adjusts the p-values of a family of rows by Holm's procedure, and says what is told apart at the 5 % level."""
    tested = [index for index, row in enumerate(rows) if not math.isnan(row.p)]
    judged = [*rows]
    for index, adjusted in zip(tested, holm([rows[index].p for index in tested]), strict=True):
        word = "better" if rows[index].difference > 0 else "worse"
        judged[index] = replace(
            rows[index], holm_p=float(adjusted), verdict=word if adjusted < LEVEL else NOT_TOLD_APART
        )
    return judged
