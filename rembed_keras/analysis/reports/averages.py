"""Benchmark averages: the mean over the scores of tasks.

A task's score is the mean of its metrics, as GLUE, SuperGLUE and XTREME define it, and a metric of several languages is
first averaged over them. XTREME's categories, and the averages in Chung et al. 2021, are computed from the same scores.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from rembed_keras.errors import UserError, did_you_mean

# {metric: value}, or {language: {metric: value}}
TaskScores = Mapping[str, float] | Mapping[str, Mapping[str, float]]

# the metrics whose mean is a task's score; GLUE's diagnostic set, AX-b and AX-g are not part of an average
GLUE = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("accuracy", "f1"),
    "mnli": ("accuracy_matched", "accuracy_mismatched"),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}
SUPERGLUE = {
    "boolq": ("accuracy",),
    "cb": ("accuracy", "f1"),
    "copa": ("accuracy",),
    "multirc": ("f1a", "exact_match"),
    "record": ("f1", "exact_match"),
    "rte": ("accuracy",),
    "wic": ("accuracy",),
    "wsc": ("accuracy",),
}
XTREME = {
    "xnli": ("accuracy",),
    "pawsx": ("accuracy",),
    "udpos": ("f1",),
    "panx": ("f1",),
    "xquad": ("f1", "exact_match"),
    "mlqa": ("f1", "exact_match"),
    "tydiqa": ("f1", "exact_match"),
    "bucc2018": ("f1",),
    "tatoeba": ("accuracy",),
}
XTREME_CATEGORIES = {
    "sentence_pair": ("xnli", "pawsx"),
    "structured": ("udpos", "panx"),
    "question_answering": ("xquad", "mlqa", "tydiqa"),
    "retrieval": ("bucc2018", "tatoeba"),
}
# the averages of Chung et al. 2021: without retrieval in tables 7 and 16, also without POS in tables 2 to 6
REMBERT_CATEGORIES = ("sentence_pair", "structured", "question_answering")
REMBERT_TASKS = ("xnli", "pawsx", "udpos", "panx", "xquad", "mlqa", "tydiqa")
REMBERT_ABLATION_TASKS = ("xnli", "pawsx", "panx", "xquad", "mlqa", "tydiqa")


def glue_average(scores: Mapping[str, TaskScores], tasks: Collection[str] | None = None) -> float:
    """The GLUE score: the mean of nine tasks; MNLI's two test sets are one of them.

    Args:
        scores: a task's metrics, {metric: value}; tasks and metrics that do not count are ignored. Those that do are in
            `GLUE`.
        tasks: the tasks to average instead of all nine; many papers exclude "wnli".

    Returns:
        Between 0 and 1 (a negative Matthews correlation can bring it below).

    Raises:
        UserError: for a task or a metric that is missing.

    >>> glue_average({"rte": {"accuracy": 0.7}, "mrpc": {"accuracy": 0.8, "f1": 0.9}}, tasks=["rte", "mrpc"])
    0.775
    """
    return _average(scores, GLUE, tasks)


def superglue_average(scores: Mapping[str, TaskScores], tasks: Collection[str] | None = None) -> float:
    """The SuperGLUE score: the mean of eight tasks.

    Args:
        scores: a task's metrics, {metric: value}; tasks and metrics that do not count are ignored. Those that do are in
            `SUPERGLUE`.
        tasks: the tasks to average instead of all eight.

    Returns:
        Between 0 and 1.

    Raises:
        UserError: for a task or a metric that is missing.

    >>> superglue_average({"copa": {"accuracy": 0.7}})
    Traceback (most recent call last):
    rembed_keras.errors.UserError: the average lacks task boolq; to average without it, name the tasks
    """
    return _average(scores, SUPERGLUE, tasks)


def xtreme_average(scores: Mapping[str, TaskScores], tasks: Collection[str] | None = None) -> float:
    """The XTREME score: the mean of nine tasks, of which each is the mean of its languages.

    Args:
        scores: a task's metrics, {metric: value} or {language: {metric: value}}; missing languages are not detected.
            Tasks and metrics that count are in `XTREME`, others are ignored.
        tasks: the tasks to average instead of all nine: `REMBERT_TASKS` gives the Avg_task of table 16 of Chung et
            al. 2021, `REMBERT_ABLATION_TASKS` the Avg of its tables 2 to 6.

    Returns:
        Between 0 and 1.

    Raises:
        UserError: for a task or a metric that is missing.

    >>> xnli = {"en": {"accuracy": 0.9}, "sw": {"accuracy": 0.7}}
    >>> xtreme_average({"xnli": xnli, "xquad": {"f1": 0.6, "exact_match": 0.4}}, tasks=["xnli", "xquad"])
    0.65
    """
    return _average(scores, XTREME, tasks)


def xtreme_categories(
    scores: Mapping[str, TaskScores], categories: Iterable[str] = tuple(XTREME_CATEGORIES)
) -> dict[str, float]:
    """The means of XTREME's kinds of tasks: the columns of its leaderboard, beside the mean of all tasks.

    Args:
        scores: as in `xtreme_average`.
        categories: some of `XTREME_CATEGORIES`.

    Returns:
        Means of the tasks of each, by category.

    Raises:
        UserError: for a task or a metric that is missing, or an unknown category.

    >>> xtreme_categories({"udpos": {"f1": 0.75}, "panx": {"f1": 0.65}}, ["structured"])
    {'structured': 0.7}
    """
    categories = list(categories)
    _check_known(categories, XTREME_CATEGORIES, "category")
    return {name: xtreme_average(scores, XTREME_CATEGORIES[name]) for name in categories}


def rembert_average(scores: Mapping[str, TaskScores]) -> float:
    """The mean of three categories of XTREME, without retrieval: the Avg of Chung et al. 2021, tables 7 and 16.

    A question answering task has a weight of one ninth, each of the others of one sixth.

    Args:
        scores: as in `xtreme_average`.

    Raises:
        UserError: for a task or a metric that is missing.
    """
    return float(np.mean(list(xtreme_categories(scores, REMBERT_CATEGORIES).values())))


def _average(scores, metrics: Mapping[str, Sequence[str]], tasks: Collection[str] | None) -> float:
    names = list(metrics if tasks is None else tasks)
    _check_known(names, metrics, "task")
    if not names:
        raise UserError("there are no tasks to average")
    for name in names:
        if name not in scores:
            advice = "; to average without it, name the tasks" if tasks is None else ""
            raise UserError(f"the average lacks task {name}{advice}")
    return float(np.mean([_task_score(name, scores[name], metrics[name]) for name in names]))


def _task_score(task, scores, metrics):
    by_language = {language: values for language, values in scores.items() if isinstance(values, Mapping)}
    if by_language and len(by_language) < len(scores):
        raise UserError(f"task {task} mixes scores of the task with scores by language")
    values = []
    for language, row in by_language.items() or [("", scores)]:
        place = f" in language {language}" if language else ""
        for metric in metrics:
            if metric not in row:
                raise UserError(
                    f"task {task} has no {metric}{place}, which its average needs{did_you_mean(metric, row)}"
                )
            values.append(row[metric])
    return np.mean(values)


def _check_known(names, known, kind):
    for name in names:
        if name not in known:
            raise UserError(f"there is no {kind} {name} in this average{did_you_mean(name, known)}")
