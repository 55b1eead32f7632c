"""What `study.json` keeps of runs whose folders are gone: of the study itself, and of others that ran the same arms."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rembed_keras.analysis.studies.definition import Measure
from rembed_keras.analysis.studies.plan import Plan
from rembed_keras.errors import UserError, shortened

ROWS = {"runs": "seed", "scores": "seed", "run_scores": "run_seed", "curves": "seed", "layers": "seed"}  # its seed


def definition_of(measure: Measure) -> dict[str, Any]:
    """A measure, as `study.json` has it: values of measures that are defined alike can stand side by side.

    Raises:
        UserError: for a measure with an attribute that JSON has no word for.
    """
    about = {"name": measure.name, "kind": type(measure).__name__} | _attributes(measure)
    for name, value in about.items():
        try:
            about[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError, RecursionError):
            raise UserError(
                f"measure {measure.name}: {shortened(value)} cannot be kept in study.json: let its {name} be text, a "
                "number, a list or a dictionary"
            ) from None
    return about


def _attributes(measure):
    """The attributes of an object, those of its slots too."""
    slots = [vars(kind).get("__slots__", ()) for kind in type(measure).__mro__]
    names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    found = {name: getattr(measure, name) for name in names if not name.startswith("__") and hasattr(measure, name)}
    return found | getattr(measure, "__dict__", {})


def finished_runs(record: Mapping) -> set[tuple[str, int]]:
    """Arm and seed of the runs that a record has, finished."""
    return {(row["arm"], row["seed"]) for row in record["runs"] if row["state"] == "finished"}


def known_runs(record: Mapping, plan: Plan) -> dict[str, Any]:
    """What another study's record says of runs that a plan has too, under the names of the plan's arms.

    An arm is the same if its resolved recipe is, by its checksum. It is left out if the other study did not read from
    it all that this one reads, for then it has to be run. Of several that are the same, the one with most runs counts.

    Args:
        record: of `record.read_record`.
        plan: the study that asks.
    """
    defined = {each.name: definition_of(each) for each in plan.study.measures}
    finished = Counter(arm for arm, seed in finished_runs(record) if seed in plan.study.seeds)
    names: dict[str, list[str]] = {}  # of the plan's arms, by the other study's name
    for arm in plan.arms:
        same = [row for row in record["arms"] if row["checksum"] == arm.checksum]
        read = [row for row in same if {*arm.measures} <= {*row["measures"]}]
        if read and all(defined[name] in record["measures"] for name in arm.measures):
            most = max(read, key=lambda row: finished[row["name"]])
            names.setdefault(most["name"], []).append(arm.name)
    found: dict[str, Any] = {"measures": record["measures"]}
    for key in ROWS:
        found[key] = [row | {"arm": name} for row in record.get(key, []) for name in names.get(row["arm"], ())]
    found["runs"] = [row | {"name": f"{row['arm']}-seed{row['seed']}"} for row in found["runs"]]
    return found


def check_all_stays(plan: Plan, record: Mapping | None) -> None:
    """Checks that a study writes again all that its `results` keep and that its runs' folders have no more.

    Args:
        plan: the study, before it writes `study.json`.
        record: what that says so far; None if it is not there.

    Raises:
        UserError: for runs, or values of a measure, that the study does not name and that would be lost.
    """
    if record is None or plan.study.results is None:
        return
    place, remedy = plan.results / "study.json", "bind another studies.Study.results, and this one as known_results"
    ours = plan.folder / "runs"
    gone = {
        (row["arm"], row["seed"]): row["name"]
        for row in record["runs"]
        if row["state"] == "finished" and not (ours / row["name"] / "finished.json").exists()
    }
    lost = [name for run, name in gone.items() if run not in {(each.arm, each.seed) for each in plan.runs}]
    if lost:
        raise UserError(f"{place} alone has run {lost[0]}, which the study does not name any more: {remedy}")
    scored = dict.fromkeys(row["measure"] for row in record["scores"] if (row["arm"], row["seed"]) in gone)
    for name in scored.keys() - {each.name for each in plan.study.measures}:
        raise UserError(f"{place} alone has values of measure {name}, which the study does not name any more: {remedy}")


def rows_of_gone_runs(plan: Plan) -> dict[str, Any]:
    """What was recorded of runs whose folders are gone; not of measures that were defined otherwise.

    Args:
        plan: the study.

    Returns:
        Lists of rows by what they are of, as in `study.json`; `runs` by their names.
    """
    gone = {(run.arm, run.seed) for run in plan.runs if run.is_recorded and not run.has_ended}
    defined = [definition_of(each) for each in plan.study.measures]
    found: dict[str, list] = {key: [] for key in ROWS}
    left, measured = gone, set()
    for record in plan.kept:
        there = gone & finished_runs(record)
        here, left = left & there, left - there
        same = {each["name"] for each in defined if each in record["measures"]}
        for key, seed in ROWS.items():
            if key != "scores":
                found[key] += [row for row in record.get(key, []) if (row["arm"], row[seed]) in here]
        # a measure that the first record of a run lacks is that of the next
        scores = [row for row in record["scores"] if (row["arm"], row["seed"]) in there and row["measure"] in same]
        found["scores"] += [row for row in scores if _value(row) not in measured]
        measured |= {_value(row) for row in scores}
    return found | {"runs": {row["name"]: row for row in found["runs"]}}


def _value(row):
    return row["arm"], row["seed"], row["measure"]
