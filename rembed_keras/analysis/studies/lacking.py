"""What the runs of a study lack, said while there is time to mend it: values, languages, trainings that failed.

And which of them other studies have otherwise, for two results of one recipe and seed are not one run.
"""

from collections.abc import Iterator, Mapping

from rembed_keras.analysis.studies.kept import definition_of
from rembed_keras.analysis.studies.measures import by_layer, read_log, read_scores
from rembed_keras.analysis.studies.plan import Plan
from rembed_keras.analysis.studies.verdicts import lacking
from rembed_keras.errors import did_you_mean


def missing(plan: Plan, record: Mapping) -> list[str]:
    """What finished runs should have and have not, a line each.

    Args:
        plan: the study.
        record: of `record.make_record`.

    Returns:
        Lines on measures without a value, on trainings that failed behind a value, on languages that some runs lack,
        on languages that a measure names and no run has, and on runs that known results have with other values.
    """
    return [
        *_without_value(plan, record),
        *_failed(record),
        *_lost_languages(plan, record),
        *_unknown_languages(plan, record),
        *_known_otherwise(plan, record),
    ]


def _without_value(plan, record) -> Iterator[str]:
    have = {(row["arm"], row["seed"], row["measure"]) for row in record["scores"]}
    measures, defined = {arm.name: arm.measures for arm in plan.arms}, {each.name: each for each in plan.study.measures}
    for run in plan.runs:
        for name in measures[run.arm] if run.is_finished else ():
            if (run.arm, run.seed, name) in have:
                continue
            lost = f"has no value of measure {name}"
            if run.has_ended:
                yield f"{run.name}: {run.folder} {lost}{_near(run, defined[name])}"
            else:
                yield f"{run.name}: {run.folder} is not here, and what is kept of it {lost} as it is defined now"


def _near(run, measure):
    """What the run has that the measure may mean: it names a metric of scores, or a key of a log."""
    metric, key = getattr(measure, "metric", None), getattr(measure, "key", None)
    known = [row["metric"] for row in read_scores(run.folder)] if metric else []
    known += [name for row in read_log(run.folder, getattr(measure, "run", "pretrain")) for name in row] if key else []
    name = metric or key
    return "" if name is None or name in known else f": there is no {name}{did_you_mean(name, dict.fromkeys(known))}"


def _failed(record) -> Iterator[str]:
    for (arm, seed, measure), count in failed_trainings(record).items():
        trainings = "1 training" if count == 1 else f"{count} trainings"
        yield f"{arm}-seed{seed}: {trainings} failed; measure {measure} is the mean of the others"


def failed_trainings(record: Mapping) -> dict[tuple[str, int, str], int]:
    """How many trainings failed behind a value, by arm, seed and measure, where any did.

    Args:
        record: what `study.json` says.
    """
    found: dict[tuple[str, int, str], int] = {}
    for row in record["scores"]:
        if count := row.get("failed", 0):
            place = row["arm"], row["seed"], row["measure"]
            found[place] = max(count, found.get(place, 0))  # a training that failed has no score in any language
    return found


def _lost_languages(plan, record) -> Iterator[str]:
    for hypothesis in plan.study.hypotheses:
        for (arm, seed), languages in lacking(hypothesis, record["scores"]).items():
            yield (
                f"{arm}-seed{seed}: no value of measure {hypothesis.measure} in {', '.join(languages)}, which other "
                f"runs have: left out of {hypothesis.name!r}"
            )


def _unknown_languages(plan, record) -> Iterator[str]:
    """Lines on languages that are named, once every arm with the measure has a finished run."""
    ended = {run.arm for run in plan.runs if run.is_finished}
    for measure in plan.study.measures:
        arms = {arm.name for arm in plan.arms if measure.name in arm.measures}
        known = _languages(measure, record)
        if not known or not arms <= ended:
            continue
        named = [name for name in getattr(measure, "languages", None) or () if name not in known]
        for name in named:
            yield f"measure {measure.name}: no run has a score in {name}{did_you_mean(name, known)}"
        for name in getattr(measure, "without", ()):
            if name not in known and (near := did_you_mean(name, known)):
                yield f"measure {measure.name} leaves out {name}, which no run has a score in{near}"


def _languages(measure, record) -> list[str]:
    """Languages of the scores that a measure of scores is about, whichever of them it names."""
    task, metric, system = (getattr(measure, name, "") for name in ("task", "metric", "system"))
    return sorted({
        row["language"]
        for row in record["run_scores"]
        if (row["metric"], row["system"]) == (metric, system)
        and (row["task"] == task or row["task"].startswith(f"{by_layer(str(task))}/layer"))
    })  # fmt: skip


def _known_otherwise(plan, record) -> Iterator[str]:
    """A line for each run that known results have too, by the first value in which they differ."""
    ours = {_key(row): row["value"] for row in record["scores"]}
    for known in plan.kept:
        same = {each.name for each in plan.study.measures if definition_of(each) in known["measures"]}
        said: set[tuple[str, int]] = set()
        for row in known["scores"] if "place" in known else ():  # the study's own results have none
            value, run = ours.get(_key(row), row["value"]), (row["arm"], row["seed"])
            if row["measure"] not in same or value == row["value"] or run in said:
                continue
            said.add(run)
            where = f" in {row['language']}" if row["language"] else ""
            yield (
                f"{row['arm']}-seed{row['seed']}: {row['measure']}{where} is {value:.9g}, and {row['value']:.9g} in "
                f"{known['place']}: the same recipe and seed were run twice"
            )


def _key(row):
    return row["arm"], row["seed"], row["measure"], row["language"]
