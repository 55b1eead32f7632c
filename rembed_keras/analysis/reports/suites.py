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
        Averages of means over the seeds that did not fail, between 0 and 1.
    """
    owners = Counter(task for run in runs for task in {measure.task for measure in run.values})
    scores: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))  # system, task, language, metric
    for run in runs:
        for measure, systems in run.values.items():
            for system, languages in systems.items():
                for language, seeds in languages.items():
                    values = [value for value in seeds.values() if not math.isnan(value)]
                    if values and owners[measure.task] == 1:
                        is_mnli = measure.task == "mnli" and language in MNLI
                        part, metric = ("en", MNLI[language]) if is_mnli else (language, measure.metric)
                        scores[system][measure.task][part][metric] = float(np.mean(values))
    return {
        (suite, system): average(found)
        for system, found in scores.items()
        for suite, (tasks, average) in AVERAGES.items()
        if all(task in found for task in tasks)
    }
