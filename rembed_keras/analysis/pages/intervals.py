"""Scores of one run with their confidence intervals, and what its baselines score."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rembed_keras.analysis.reports.comparison import LEVEL, groups
from rembed_keras.analysis.reports.results import BASELINES, Measure, Run, is_baseline
from rembed_keras.analysis.reports.significance import average_languages, paired_bootstrap, paired_t


class Interval(NamedTuple):
    """A score with its 95 % confidence interval; NaN stands for what cannot be computed.

    Attributes:
        language: the language, or "mean" of several.
        mean: over seeds that did not fail.
        low: lower end.
        high: upper end.
        baselines: means of baselines by name.
    """

    language: str
    mean: float
    low: float
    high: float
    baselines: Mapping[str, float]


def intervals(run: Run, measure: Measure, system: str) -> list[Interval]:
    """The scores of a system, the mean of languages first.

    With predictions an interval is over examples and, of several seeds, over seeds too; without, over seeds. See
    `paired_bootstrap` and `paired_t`, which here compare with 0.

    Args:
        run: the run.
        measure: the task and its metric.
        system: for example "pretrained".

    Raises:
        UserError: for a seed that was not scored in all languages, and malformed predictions.
    """
    return [
        _interval(run, measure, system, names, language)
        for language, names in groups(run.sizes[measure], each=True).items()
        if run.values[measure][system].keys() >= set(names)
    ]


def _interval(run, measure, system, names, language):
    means = {seed: values for seed, values in run.by_seed(measure, system, names).items() if np.isfinite(values).all()}
    baselines = {}
    for other in BASELINES:
        if is_baseline(other, run.values[measure]) and run.values[measure].get(other, {}).keys() >= set(names):
            seeds = [np.mean(values) for values in run.by_seed(measure, other, names).values()]
            if np.isfinite(seeds).any():
                baselines[other] = float(np.nanmean(seeds))
    if not means:
        return Interval(language, math.nan, math.nan, math.nan, baselines)
    mean = float(np.mean([np.mean(values) for values in means.values()]))
    examples = _examples(run, measure, system, [*means], names)
    if examples is not None:
        found = paired_bootstrap(examples, np.zeros_like(examples), confidence=1 - LEVEL, least=0.0)
    else:
        found = paired_t(np.array([*means.values()]), confidence=1 - LEVEL)
    return Interval(language, mean, found.low, found.high, baselines)


def _examples(run: Run, measure: Measure, system: str, seeds: Sequence[int | None], names: Sequence[str]):
    """Scores of texts [K, M]; None unless every seed and language has predictions."""
    rows = []
    for seed in seeds:
        values: list[float] = []
        languages: list[str] = []
        ids: list[str] = []
        for name in names:
            answers = run.examples(measure, system, seed, name)
            if answers is None:
                return None
            values += [answers[text] for text in sorted(answers)]
            languages += [name] * len(answers)
            ids += sorted(answers)
        rows.append(average_languages(np.array([values]), languages, ids)[0])
    return np.stack(rows)
