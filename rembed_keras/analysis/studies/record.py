"""`study.json`: every score of every run, where it comes from, and the verdicts that follow.

It holds all that tables, figures and the page are made of, and the definition of the study, so that verdicts can be
derived again from it alone.
"""

import json
import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from rembed_keras import __version__
from rembed_keras.analysis.environment import commit
from rembed_keras.analysis.studies.definition import Direction, Hypothesis, Measure, Value, is_level
from rembed_keras.analysis.studies.kept import definition_of, rows_of_gone_runs
from rembed_keras.analysis.studies.measures import read_log, read_scores
from rembed_keras.analysis.studies.plan import Plan, PlannedRun
from rembed_keras.analysis.studies.verdicts import Verdict, derive, differing
from rembed_keras.data.json_files import check_rows, read_json
from rembed_keras.errors import UserError, first_line, shortened

FORMAT = 1
POINTS = 200  # of a curve, at most
CURVE = "pretrain", "loss"  # whose rows, which number
ROWS: Mapping[str, Mapping[str, Any]] = {  # what is read of the rows of a record
    "arms": {"name": str, "checksum": str, "measures": list},
    "measures": {"name": str},
    "runs": {"name": str, "arm": str, "seed": int, "state": str, "seconds": int | float},
    "scores": {"arm": str, "seed": int, "measure": str, "task": str, "language": str, "value": int | float, "n": int},
    "hypotheses": {
        **dict.fromkeys(("name", "arm", "against", "measure", "expected"), str), "smallest_effect": int | float
    },
    "verdicts": {
        "hypothesis": str, "verdict": str, "adjusted_p": int | float,
        **dict.fromkeys(("difference", "low", "high", "p", "detectable", "power"), int | float | None),
    },
}  # fmt: skip


def make_record(plan: Plan, seconds: Mapping[str, float], failures: Mapping[str, str]) -> dict[str, Any]:
    """What a study's folder comes to.

    Args:
        plan: the study.
        seconds: that each run has taken so far, by its name.
        failures: the last line of each run that failed, by its name.

    Returns:
        What `study.json` says.
    """
    study = plan.study
    finished = [run for run in plan.runs if run.has_ended]
    kept = rows_of_gone_runs(plan)
    scores = [row for run in finished for row in _measured(plan, run)] + kept["scores"]
    return {
        "format": FORMAT,
        "version": __version__,
        "commit": commit(),
        "machine": platform.machine(),
        "alpha": study.alpha,
        "hypotheses": [asdict(each) for each in study.hypotheses],
        "measures": [definition_of(each) for each in study.measures],
        "seeds": list(study.seeds),
        "arms": [
            asdict(planned) | {"recipe": arm.recipe, "bindings": [*arm.bindings]}
            for planned, arm in zip(plan.arms, study.arms, strict=True)
        ],
        "runs": [kept["runs"].get(run.name) or _run(run, seconds, failures) for run in plan.runs],
        "scores": scores,
        "run_scores": [
            *({"arm": run.arm, "run_seed": run.seed} | row for run in finished for row in read_scores(run.folder)),
            *kept["run_scores"],
        ],
        "curves": [{"arm": run.arm, "seed": run.seed, "points": _curve(run)} for run in finished] + kept["curves"],
        "layers": [
            *(
                {"arm": run.arm, "seed": run.seed, "known": read_json(run.folder / "layers.json")}
                for run in finished
                if (run.folder / "layers.json").exists()
            ),
            *kept["layers"],
        ],
        "verdicts": [verdict.to_json() for verdict in derive(study.hypotheses, scores, study.alpha)],
    }


def read_record(path: Path) -> dict[str, Any] | None:
    """What `study.json` says; None if it is not there.

    Raises:
        UserError: for a file that is damaged or of another version.
    """
    if not path.exists():
        return None
    record = read_json(path)
    kinds = dict.fromkeys(ROWS, list) | {"alpha": float}
    if record.get("format") != FORMAT or not all(isinstance(record.get(key), kind) for key, kind in kinds.items()):
        raise UserError(f"{path} is no study.json of this version of rembed_keras")
    for key, fields in ROWS.items():
        check_rows(record[key], fields, path, f"a row of its {key}")
    try:
        return record | {"run_scores": _rows(record.get("run_scores", []))}
    except (TypeError, KeyError, ValueError, AttributeError):
        raise UserError(f"{path} is malformed: its run_scores are not values by language") from None


def progress_of(record: Mapping | None) -> tuple[dict[str, float], dict[str, str]]:
    """What a record says of its runs, as `make_record` takes it.

    Args:
        record: of `read_record`.

    Returns:
        The seconds of each run, and the failure of each that failed, by their names.
    """
    runs = record["runs"] if record else []
    failures = {run["name"]: str(run.get("failure")) for run in runs if run["state"] == "failed"}
    return {run["name"]: run["seconds"] for run in runs}, failures


def to_text(record: Mapping[str, Any]) -> str:
    """What is written as `study.json`: a row a line, and in `run_scores` the languages of a score in one row.

    Args:
        record: of `make_record`.
    """
    packed = {**record, "run_scores": _by_language(record["run_scores"])}
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_lines(value)}" for key, value in packed.items()) + "\n}\n"


def _lines(value):
    if not isinstance(value, list):
        return json.dumps(value, default=str)
    return "[" + ",".join("\n " + json.dumps(row, default=str) for row in value) + "]"


def _by_language(rows):
    """Rows that differ in language alone, as one: `by_language` gives value and n of each."""
    found: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        shared = {name: row[name] for name in row.keys() - {"language", "value", "n"}}
        whole = found.setdefault(tuple(sorted(shared.items())), dict(sorted(shared.items())) | {"by_language": {}})
        whole["by_language"][row["language"]] = [row["value"], row["n"]]
    return [*found.values()]


def _rows(packed):
    rows = []
    for whole in packed:
        shared = {name: value for name, value in whole.items() if name != "by_language"}
        for language, (value, n) in whole["by_language"].items():
            rows.append(shared | {"language": language, "value": value, "n": n})
    return rows


def disagreements(path: Path) -> list[str]:
    """Derives the verdicts of a study again, from its stored scores alone.

    Args:
        path: its `study.json`.

    Returns:
        A line for each verdict that differs from the stored one, and for what stands there twice; none if all agree.

    Raises:
        UserError: for a file that cannot be read or is malformed.
    """
    record = read_record(path)
    if record is None:
        raise UserError(f"{path} is not there")
    try:
        if not is_level(record["alpha"]):
            raise ValueError(f"its alpha is {record['alpha']}")
        hypotheses = [_hypothesis(each) for each in record["hypotheses"]]
        stored = {each["hypothesis"]: Verdict(**each) for each in record["verdicts"]}
        derived = derive(hypotheses, record["scores"], record["alpha"])
    except (TypeError, KeyError, ValueError) as error:
        raise UserError(f"{path} is malformed: {first_line(error)}") from None
    found = _twice(record, path.name)
    for each in derived:
        there = stored.pop(each.hypothesis, None)
        if there is None:
            found.append(f"{each.hypothesis}: absent in {path.name}, {_said(each)} from its scores")
        elif fields := differing(each, there):
            stated, ours = _said(there), _said(each)
            if stated == ours:  # it is another number, or the last digits, in which they differ
                stated, ours = (_shown(verdict, fields) for verdict in (there, each))
            found.append(f"{each.hypothesis}: {stated} in {path.name}, {ours} from its scores")
    return [*found, *(f"{name}: {path.name} has a verdict on it, and no hypothesis" for name in stored)]


def _twice(record, file):
    """A line for each verdict, and each value of a run's measure, that is not the only one."""
    verdicts = Counter(row["hypothesis"] for row in record["verdicts"])
    values = Counter((row["arm"], row["seed"], row["measure"], row["language"]) for row in record["scores"])
    found = [f"{name}: {file} has {count} verdicts on it" for name, count in verdicts.items() if count > 1]
    for (arm, seed, measure, language), count in values.items():
        if count > 1:
            where = language or "no language"
            found.append(f"{arm}-seed{seed}: {file} has {count} values of measure {measure} in {where}")
    return found


def _hypothesis(fields):
    found = Hypothesis(**fields)
    if found.expected not in get_args(Direction):
        raise ValueError(f"hypothesis {found.name} expects {shortened(found.expected)}")
    return found


def _said(verdict):
    if verdict.difference is None:
        return verdict.verdict
    p = "none" if verdict.p is None else f"{verdict.p:.4g}"
    return f"{verdict.verdict} (difference {verdict.difference:.6g}, p {p}, adjusted {verdict.adjusted_p:.4g})"


def _shown(verdict, fields):
    return " and ".join(f"{name} is {getattr(verdict, name)!r}" for name in fields)


def _measured(plan: Plan, run: PlannedRun) -> list[dict]:
    rows = []
    for measure in plan.study.measures:
        task, metric = getattr(measure, "task", ""), getattr(measure, "metric", measure.name)
        about = {"arm": run.arm, "seed": run.seed, "measure": measure.name, "task": task, "metric": metric}
        for language, (value, n, failed) in _values(measure, run.folder).items():
            if math.isfinite(value):
                rows.append(about | {"language": language, "value": value, "n": n, "failed": failed})
    return rows


def _values(measure: Measure, folder: Path) -> dict[str, Value]:
    """What a measure, which may be one of a user's own, gives of a run."""
    given = measure.values(folder)
    try:
        found = {str(language): Value(*each) for language, each in given.items()}
        return {language: Value(float(value), int(n), int(failed)) for language, (value, n, failed) in found.items()}
    except (TypeError, ValueError, AttributeError):
        raise UserError(
            f"measure {measure.name}: its values of {folder} are {shortened(given)}; they must be by language, each "
            "(value, n), of how many examples"
        ) from None


def _run(run: PlannedRun, seconds, failures):
    state = "finished" if run.is_finished else "failed" if run.name in failures else "missing"
    environment, end = run.folder / "environment.json", run.folder / "finished.json"
    last = read_json(end).get("seconds_of_last_process", 0.0) if end.exists() else 0.0  # of a scheduler's run
    return {
        "name": run.name,
        "arm": run.arm,
        "seed": run.seed,
        "folder": str(run.folder),
        "command": list(run.command),
        "state": state,
        "failure": failures.get(run.name) if state == "failed" else None,
        "seconds": round(max(seconds.get(run.name, 0.0), last), 3),
        "environment": read_json(environment) if environment.exists() else None,
    }


def _curve(run: PlannedRun) -> Sequence[tuple[int, float]]:
    name, key = CURVE
    rows = [row for row in read_log(run.folder, name) if isinstance(row.get(key), float)]
    points = [(row["step"], row[key]) for row in rows if math.isfinite(row[key])]
    stride = math.ceil(len(points) / POINTS) or 1
    return points[(len(points) - 1) % stride :: stride] if points else []  # the last point is always there
