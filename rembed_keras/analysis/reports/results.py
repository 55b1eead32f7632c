"""The results in a run's folder: scores, parameters, and predictions.

A stage writes `scores.json`, a list of `{task, language, metric, value, seed, n, system}`; `value` is null where the
training failed. `ledger.json` has the parameters. `predictions/<task>/<system>-seed<seed>.<language>.jsonl` has one
object per example, `{"id": …, "correct": …}`; it is optional.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rembed_keras.data.json_files import parse_json, read_json
from rembed_keras.errors import UserError

UNTRAINED = ("scratch", "untrained")  # encoders without pre-training: baselines of those that have it
ENCODERS = ("pretrained", "finetuned", *UNTRAINED)  # systems that have one
BASELINES = ("majority", "chance", "tfidf", "lexicon", "first", "mean", *UNTRAINED)
TYPES = {"task": str, "language": str, "metric": str, "value": int | float | None, "seed": int | None, "n": int}
SAME_VALUE = 1e-6  # a score and the mean over its examples differ by less


def is_baseline(system: str, systems: Collection[str]) -> bool:
    """Whether a system is a baseline among those that a run has scored alike.

    >>> is_baseline("scratch", ["majority", "scratch", "pretrained"]), is_baseline("scratch", ["majority", "scratch"])
    (True, False)

    So it is beside a baseline of one's own:

    >>> is_baseline("scratch", ["mine", "scratch"]), is_baseline("scratch", ["mine", "scratch", "pretrained"])
    (False, True)
    """
    has_trained = any(each in ENCODERS and each not in UNTRAINED for each in systems)
    return system in BASELINES and (system not in UNTRAINED or has_trained)


@dataclass(frozen=True)
class Measure:
    """What was measured: a task by a metric.

    Attributes:
        task: the task's name.
        metric: for example "accuracy".
    """

    task: str
    metric: str


@dataclass(frozen=True)
class Run:
    """The results of a run.

    Attributes:
        name: its name in the report.
        path: its folder.
        kept: parameters of its encoder; None without a ledger.
        dropped: parameters that existed only in pre-training; None without a ledger.
        values: the score by measure, system, language and seed; NaN where the training failed.
        sizes: the number of examples by measure and language.
    """

    name: str
    path: Path
    kept: int | None
    dropped: int | None
    values: dict[Measure, dict[str, dict[str, dict[int | None, float]]]]
    sizes: dict[Measure, dict[str, int]]

    def systems(self, measure: Measure) -> list[str]:
        """The systems of a measure that are not baselines."""
        found = self.values.get(measure, {})
        return [system for system in found if not is_baseline(system, found)]

    def by_seed(self, measure: Measure, system: str, languages: Sequence[str]) -> dict[int | None, list[float]]:
        """A system's scores in languages, in their order, by seed.

        Raises:
            UserError: for a seed that was not scored in one of them.
        """
        scores = self.values[measure][system]
        seeds = dict.fromkeys(seed for language in languages for seed in scores.get(language, {}))
        for seed in seeds:
            for language in languages:
                if seed not in scores.get(language, {}):
                    where = f"{measure.task} of {system}, seed {seed}, in {language}"
                    raise UserError(f"{self.path / 'scores.json'} has no score in {where}: evaluate again")
        return {seed: [scores[language][seed] for language in languages] for seed in seeds}

    def examples(self, measure: Measure, system: str, seed: int | None, language: str) -> dict[str, float] | None:
        """The score of each example's prediction.

        Returns:
            A score between 0 and 1 by id; None if there is no file, or it is of another metric, so that its mean is not
            the score.

        Raises:
            UserError: for a malformed file.
        """
        path = self.path / "predictions" / measure.task / f"{system}-seed{seed}.{language}.jsonl"
        if not path.is_file():
            return None
        answers = _read_answers(path)
        value = self.values[measure][system][language][seed]
        if len(answers) != self.sizes[measure][language]:
            return None
        return answers if math.isclose(sum(answers.values()) / len(answers), value, abs_tol=SAME_VALUE) else None


def read_run(path: str | Path, name: str | None = None) -> Run:
    """Reads the results of a run.

    Args:
        path: the run's folder.
        name: its name in the report; the folder's own by default.

    Raises:
        UserError: for a folder without scores or with malformed ones.
    """
    path = Path(path)
    file = path / "scores.json"
    if not file.is_file():
        raise UserError(f"{path} has no scores.json: name the folder of a run that was evaluated")
    rows = read_json(file, object)
    if not isinstance(rows, list) or not rows or not all(_is_score(row) for row in rows):
        raise UserError(f"{file} is not a list of scores: evaluate again")
    values: dict = {}
    sizes: dict = {}
    for row in rows:
        measure, language = Measure(row["task"], row["metric"]), row["language"]
        seeds = values.setdefault(measure, {}).setdefault(row["system"], {}).setdefault(language, {})
        where = f"{measure.task} in {language}"
        if row["seed"] in seeds:
            raise UserError(f"{file} has {where} twice for {row['system']}, seed {row['seed']}: evaluate again")
        seeds[row["seed"]] = math.nan if row["value"] is None or not math.isfinite(row["value"]) else row["value"]
        if sizes.setdefault(measure, {}).setdefault(language, row["n"]) != row["n"]:
            n = sizes[measure][language]
            raise UserError(f"{file} has both {n:,} and {row['n']:,} examples of {where}: evaluate again")
    kept, dropped = _read_parameters(path / "ledger.json")
    return Run(name or path.resolve().name, path, kept, dropped, values, sizes)


def _is_score(row):
    if not isinstance(row, dict) or not all(isinstance(row.get(key, ""), kind) for key, kind in TYPES.items()):
        return False
    return row.keys() >= {*TYPES, "system"} and isinstance(row["system"], str) and row["n"] > 0


def _read_parameters(path):
    if not path.is_file():
        return None, None
    ledger = read_json(path)
    counts = [ledger.get(key) for key in ("kept", "dropped")]
    if not all(isinstance(count, int) and count >= 0 for count in counts) or not counts[0]:
        raise UserError(f"{path} has no counts of kept and dropped parameters: remove it and run again")
    return counts


def _read_answers(path):
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    answers: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        name, correct = _read_answer(line)
        if name in answers or not 0 <= correct <= 1:
            raise UserError(f'{path}, line {number} needs a unique "id" and "correct" from 0 to 1: evaluate again')
        answers[name] = correct
    return answers


def _read_answer(line):
    try:
        row = parse_json(line, "an answer")
        return str(row["id"]), float(row["correct"])
    except (ValueError, KeyError, TypeError):
        return "", math.nan
