"""What studies measure: scores and logged numbers of finished runs.

A measure of one's own is a class with `name`, `is_made_by` and `values`, in a package named by `--allow-import`; see
`definition.Measure`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rembed_keras.analysis.studies.definition import Value
from rembed_keras.data.json_files import check_rows, read_json, read_whole_lines
from rembed_keras.errors import Count

SCORE_NOTHING = ("prepare", "pretrain", "evaluation", "finetune", "submit", "tabulate", "trace_retrieval")
ROW: Mapping[str, Any] = {  # what is read of a row of scores
    **dict.fromkeys(("task", "language", "metric", "system"), str), "value": int | float | None, "n": int
}  # fmt: skip


@dataclass(frozen=True)
class Logged:
    """A number that a stage logs, at its end: the mean of the last rows of the log.

    Attributes:
        name: in hypotheses and tables.
        run: whose rows: "pretrain"; "evaluation" for what was held out; or another value of `run` in `metrics.jsonl`.
        key: which number.
        rows: how many of the last rows that have the number are averaged.
        by_language: whether to read `KEY/LANGUAGE` of each language instead, as in "loss/de". KEY is then one that is
            logged itself: "retrieval/udhr" has languages, and "retrieval" has texts.
    """

    name: str
    run: str = "pretrain"
    key: str = "loss"
    rows: Count = 1
    by_language: bool = False

    @property
    def advice(self) -> str:
        """What a recipe has to set that does not log it; "" where nothing else is to be said."""
        return "set EVAL_EVERY" if self.run == "evaluation" else ""

    def is_made_by(self, stages: Mapping[str, Sequence[str] | None]) -> bool:
        """Whether a run has the stage that logs it."""
        return self.run.split("/")[0] in stages

    def values(self, run: Path) -> dict[str, Value]:
        """The mean of the last finite numbers, by language if there are any."""
        numbers = defaultdict(list)
        for row in read_log(run, self.run):
            for language, value in self._numbers(row).items():
                if _is_finite(value):
                    numbers[language].append(value)
        last = {language: each[-self.rows :] for language, each in sorted(numbers.items())}
        return {language: Value(sum(each) / len(each), len(each)) for language, each in last.items()}

    def _numbers(self, row):
        """What a row has of the key, by language if there are any."""
        if self.key not in row:
            return {}
        if not self.by_language:
            return {"": row[self.key]}
        if f"{self.key}/weight" in row:  # of an objective of several, whose numbers are not of languages
            return {}
        split = {name.rpartition("/"): value for name, value in row.items()}
        return {language: value for (key, _, language), value in split.items() if key == self.key}


@dataclass(frozen=True)
class Score:
    """A score of `scores.json`; the models that a run fine-tuned from several seeds are averaged.

    Models whose training failed are counted, and not averaged.

    Attributes:
        name: in hypotheses and tables.
        task: for example "topics" or "retrieval/help".
        metric: for example "accuracy".
        system: what was scored.
        languages: those that count; all by default.
        without: languages that do not count, for example the one of fine-tuning.
    """

    name: str
    task: str
    metric: str = "accuracy"
    system: str = "pretrained"
    languages: Sequence[str] | None = None
    without: Sequence[str] = ()

    def is_made_by(self, stages: Mapping[str, Sequence[str] | None]) -> bool:
        """Whether a stage scores the task, or may."""
        scoring = [(stage, tasks) for stage, tasks in stages.items() if may_score(stage)]
        return any(tasks is None or _is_scored(self.task, stage, tasks) for stage, tasks in scoring)

    def values(self, run: Path) -> dict[str, Value]:
        """The score by language; languages in which every training failed are left out."""
        numbers, sizes, failed = defaultdict(list), {}, Counter[str]()
        for row in read_scores(run):
            counts = self.languages is None or row["language"] in self.languages
            if (row["task"], row["metric"], row["system"]) != (self.task, self.metric, self.system) or not counts:
                continue
            if row["language"] in self.without:
                continue
            if not _is_finite(row["value"]):
                failed[row["language"]] += 1
                continue
            numbers[row["language"]].append(row["value"])
            sizes[row["language"]] = row["n"]
        return {
            language: Value(sum(each) / len(each), sizes[language], failed[language])
            for language, each in sorted(numbers.items())
        }


@dataclass(frozen=True)
class LayerScore:
    """The score of a frozen probe of one layer, or another score by layer, in `scores.json`.

    Attributes:
        name: in hypotheses and tables.
        task: of the probe, for example "topics", or of parallel text, "retrieval/help".
        layer: which: 0 is the embeddings; -1 the last, however many an arm has, and so on.
        metric: for example "accuracy".
        system: what was scored.
        languages: those that count; all by default.
        without: languages that do not count, for example the one that the probe was fitted on.

    >>> LayerScore("others", "topics", without=["en"]).layer
    -1
    """

    name: str
    task: str
    layer: int = -1
    metric: str = "accuracy"
    system: str = "pretrained"
    languages: Sequence[str] | None = None
    without: Sequence[str] = ()

    def is_made_by(self, stages: Mapping[str, Sequence[str] | None]) -> bool:
        """Whether a run probes the task, or may."""
        return "probe" in stages and (stages["probe"] is None or self.task in stages["probe"])

    def values(self, run: Path) -> dict[str, Value]:
        """The score by language; none if the run has no such layer."""
        stem = f"{by_layer(self.task)}/layer"
        rows = [row for row in read_scores(run) if row["system"] == self.system]
        layers = {row["task"] for row in rows if row["task"].startswith(stem)}
        count = len(layers)
        layer = self.layer + count if self.layer < 0 else self.layer
        if not 0 <= layer < count:
            return {}
        found = Score(self.name, f"{stem}{layer}", self.metric, self.system, self.languages, self.without)
        return found.values(run)


def may_score(stage: str) -> bool:
    """Whether a stage of this name writes scores of its tasks, or may.

    >>> may_score("evaluate"), may_score("finetune")
    (True, False)
    """
    return stage not in SCORE_NOTHING


def _is_scored(task, stage, tasks):
    """Whether a stage scores a task, of those that it names: a probe scores each layer of them."""
    if stage != "probe":
        return task in tasks
    stem, _, layer = task.rpartition("/layer")
    return layer.isdecimal() and stem in map(by_layer, tasks)


def by_layer(task: str) -> str:
    """What precedes `/layerN` where a task is scored by layer.

    >>> by_layer("topics"), by_layer("retrieval/help")
    ('probe/topics', 'retrieval/help')
    """
    return task if task.startswith("retrieval/") else f"probe/{task}"


def read_log(run: Path, name: str) -> list[dict]:
    """Rows of a run's log that were written whole, of one of its trainings."""
    return [row for row in read_whole_lines(run / "metrics.jsonl") if row.get("run") == name]


def read_scores(run: Path) -> list[dict]:
    """Rows of a run's `scores.json`; none if it is not there.

    Raises:
        UserError: for a file that is damaged.
    """
    path = run / "scores.json"
    rows = read_json(path, list) if path.exists() else []
    check_rows(rows, ROW, path)
    return rows


def _is_finite(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
