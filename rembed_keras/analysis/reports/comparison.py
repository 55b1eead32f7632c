"""Scores of runs as rows, and differences of two runs: effect size, significance, and the detectable difference.

Runs are compared by the systems that both have, on the same examples and seeds. With predictions for each example, a
difference is tested against the variance of both examples and seeds; otherwise against that of seeds alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rembed_keras.analysis.reports.power import smallest_accuracy_difference, smallest_seeds_difference
from rembed_keras.analysis.reports.results import Measure, Run, is_baseline
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
NOT_SIGNIFICANT = "not significant"
NOT_TESTED = "not tested"  # there are neither predictions of several examples nor seeds whose differences vary


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
    """The difference of two runs; NaN stands for what cannot be computed.

    Attributes:
        task: the task's name.
        metric: for example "accuracy".
        language: the language, or "mean" of several.
        run: the run's name.
        against: the name of the run that it is compared with.
        system: the system that is compared.
        seeds: pairs of seeds of which neither failed.
        examples: different texts, if there are predictions for each; else 0.
        difference: mean over the pairs of seeds, of the run minus the other.
        low: lower end of the 95 % confidence interval.
        high: upper end.
        p: two-sided p-value.
        holm_p: p adjusted for the rows of the table.
        sign_flip_p: two-sided p-value of the sign-flip test over seeds, a check without distributional assumptions.
        detectable: the smallest true difference that is detected with a power of 80 %, before adjustment.
        verdict: "better", "worse", "not significant", or "not tested" where there is no p.
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
    detectable: float
    verdict: str


def groups(languages: Iterable[str], each: bool) -> dict[str, list[str]]:
    """The languages of each row, by the row's name: the mean of all first.

    >>> groups(["fr", "de"], each=True)
    {'mean': ['de', 'fr'], 'de': ['de'], 'fr': ['fr']}
    >>> groups(["de"], each=True)
    {'de': ['de']}

    A language whose code is the name of the mean has a row of its own:

    >>> groups(["mean", "de"], each=True)
    {'mean': ['de', 'mean'], 'de': ['de'], 'language mean': ['mean']}
    """
    names = sorted(languages)
    rows = {name: f"language {name}" if name == MEAN else name for name in names}
    single = {rows[name]: [name] for name in names if each or len(names) == 1}
    return {MEAN: names, **single} if len(names) > 1 else single


def score_rows(run: Run, measure: Measure, languages: Sequence[str], language: str) -> list[ScoreRow]:
    """A row for each system of a run, baselines included; a baseline that was not scored in all languages has none.

    Args:
        run: the run.
        measure: the task and its metric.
        languages: languages to average over.
        language: the row's name for them.

    Raises:
        UserError: for a seed that was not scored in all languages.
    """
    rows = []
    sizes = [run.sizes[measure][name] for name in languages]
    for system, scores in run.values[measure].items():
        if not is_baseline(system, run.values[measure]) or scores.keys() >= set(languages):
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


def apart(rows: Sequence[ScoreRow]) -> tuple[list[ScoreRow], list[ScoreRow]]:
    """Rows of what runs were made for, and rows of their baselines."""
    systems: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        systems.setdefault((row.run, row.task, row.metric), set()).add(row.system)
    split: tuple[list[ScoreRow], list[ScoreRow]] = [], []
    for row in rows:
        split[is_baseline(row.system, systems[row.run, row.task, row.metric])].append(row)
    return split


def compare(
    run: Run, other: Run, measure: Measure, system: str, languages: Sequence[str], language: str
) -> DifferenceRow:
    """Compares a system of two runs; p is not adjusted yet, see `adjusted`.

    With predictions the interval and p are those of `paired_bootstrap`, over examples and seeds; without, those of
    `paired_t` over seeds. A system without seeds is compared with every seed of the other.

    Args:
        run: the run.
        other: the run that it is compared with.
        measure: the task and its metric.
        system: the system.
        languages: languages to average over.
        language: the row's name for them.

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
        detectable=_visible(gaps, examples),
        verdict=NOT_TESTED,
    )


def _test(gaps, examples):
    if examples:
        return paired_bootstrap(examples[0], examples[1], confidence=1 - LEVEL)
    return paired_t(gaps, confidence=1 - LEVEL) if len(gaps) else Comparison(*[math.nan] * 4)


def _visible(gaps, examples):
    """The smallest detectable differences given the seeds and given the examples, added in quadrature."""
    sides = []
    if len(gaps) > 1 and (std := float(gaps.mean(axis=1).std(ddof=1))) > 0:
        sides.append(smallest_seeds_difference(len(gaps), std, POWER, LEVEL))
    if examples:
        # of answers that are 0 or 1; over 1 where those of a small language weigh more, as if there were fewer of all
        disagreement = float(np.mean(np.mean(examples[0] - examples[1], axis=0) ** 2))
        count = examples[0].shape[1] / max(1.0, disagreement)
        sides.append(smallest_accuracy_difference(count, max(0.0, 1 - disagreement), POWER, LEVEL))
    return math.hypot(*sides) if sides else math.nan


def _pairs(mine, theirs):
    """The pairs of seeds to compare."""
    if [*mine] == [None]:
        return [(None, seed) for seed in theirs]
    if [*theirs] == [None]:
        return [(seed, None) for seed in mine]
    return [(seed, seed) for seed in mine if seed in theirs]


def _examples(run, other, measure, system, pairs, languages):
    """The two systems' scores of examples, each [K, M]; None unless every seed and language has predictions."""
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
                raise UserError(f"{run.path} and {other.path} have predictions for different examples of {where}")
            texts = sorted(both[0])
            names += [language] * len(texts)
            ids += texts
            for part, answers in zip(parts, both, strict=True):
                part += [answers[text] for text in texts]
        for side, part in zip(sides, parts, strict=True):
            side.append(average_languages(np.array([part]), names, ids)[0])
    return np.stack(sides[0]), np.stack(sides[1])


def adjusted(rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    """Rows with p-values adjusted as a family by Holm's procedure, and verdicts at the 5 % level."""
    tested = [index for index, row in enumerate(rows) if not math.isnan(row.p)]
    found = [*rows]
    for index, p in zip(tested, holm([rows[index].p for index in tested]), strict=True):
        word = "better" if rows[index].difference > 0 else "worse"
        found[index] = replace(rows[index], holm_p=float(p), verdict=word if p < LEVEL else NOT_SIGNIFICANT)
    return found
