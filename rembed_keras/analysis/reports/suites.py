"""The averages of GLUE, SuperGLUE and XTREME over finished runs, one run per task or one of all."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from rembed_keras.analysis.reports.averages import (
    GLUE,
    REMBERT_TASKS,
    SUPERGLUE,
    XTREME,
    glue_average,
    rembert_average,
    superglue_average,
    xtreme_average,
)
from rembed_keras.analysis.reports.results import Run
from rembed_keras.errors import UserError

DIAGNOSTIC = ("diagnostic", "AX-b", "AX-g")  # parts of MNLI and RTE that count in no average
MNLI = {"en": "accuracy_matched", "mismatched": "accuracy_mismatched"}  # two test sets that are one task
AVERAGES = {
    "GLUE": (GLUE, glue_average),
    "SuperGLUE": (SUPERGLUE, superglue_average),
    "XTREME": (XTREME, xtreme_average),
    "XTREME without retrieval, by category": (REMBERT_TASKS, rembert_average),
}


def suite_averages(runs: Sequence[Run]) -> dict[tuple[str, str], float]:
    """Averages by suite and system, for suites of which the runs together have every task.

    Args:
        runs: finished runs. A task that two of them have is ambiguous and in no average: GLUE and SuperGLUE each have
            an "rte".

    Returns:
        Averages of means over the seeds that did not fail, between 0 and 1; none of a suite that lacks a metric.
    """
    found = _averages(_scores(runs))
    return {name: value for name, value in found.items() if isinstance(value, float)}


def suite_notes(runs: Sequence[Run]) -> list[str]:
    """What a report says of suites of which the runs together have every task: an average, or why there is none.

    Args:
        runs: as in `suite_averages`.

    Returns:
        A line for each suite and system. Where tasks were scored in different numbers of languages it has those.
    """
    scores, notes = _scores(runs), []
    for (suite, system), value in _averages(scores).items():
        if not isinstance(value, float):
            notes.append(f"{suite}, {system}: no average: {value}.")
            continue
        sizes = {task: len(scores[system][task]) for task in AVERAGES[suite][0]}
        counts = ", ".join(f"{task} {size}" for task, size in sizes.items())
        among = f" of tasks in different numbers of languages: {counts}" if len({*sizes.values()}) > 1 else ""
        notes.append(f"{suite}, {system}: {100 * value:.1f} % on average{among}.")
    return notes


def _scores(runs):
    """Means over seeds by system, task, language and metric, of what counts in an average.

    As in tables, a seed that failed in one language has failed; a task of which every seed has is there without scores.
    """
    owners = Counter(task for run in runs for task in {measure.task for measure in run.values})
    scores: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for run in runs:
        for measure, systems in run.values.items():
            for system, languages in systems.items() if owners[measure.task] == 1 else ():
                counted = {language: seeds for language, seeds in languages.items() if language not in DIAGNOSTIC}
                failed = {seed for seeds in counted.values() for seed, value in seeds.items() if math.isnan(value)}
                for language, seeds in counted.items():
                    of_task = scores[system][measure.task]
                    if values := [value for seed, value in seeds.items() if seed not in failed]:
                        is_mnli = measure.task == "mnli" and language in MNLI
                        part, metric = ("en", MNLI[language]) if is_mnli else (language, measure.metric)
                        of_task[part][metric] = float(np.mean(values))
    return scores


def _averages(scores) -> dict[tuple[str, str], float | str]:
    """Averages by suite and system, or what they lack."""
    found: dict[tuple[str, str], float | str] = {}
    for system, tasks in scores.items():
        for suite, (names, average) in AVERAGES.items():
            if all(task in tasks for task in names):
                try:
                    found[suite, system] = average(tasks)
                except UserError as error:
                    found[suite, system] = str(error)
    return found
