"""What is said of scores, languages and trainings that finished runs lack."""

import json
from dataclasses import replace

import pytest

from rembed_keras.analysis.studies.definition import Arm, Hypothesis, Study
from rembed_keras.analysis.studies.kept import known_runs
from rembed_keras.analysis.studies.lacking import missing
from rembed_keras.analysis.studies.measures import LayerScore, Score
from rembed_keras.analysis.studies.plan import Plan, PlannedArm, PlannedRun
from rembed_keras.analysis.studies.record import make_record
from rembed_keras.analysis.studies.results.report import scores_table, verdicts_table

ARMS = ("wide", "one")


@pytest.fixture
def planned(tmp_path):
    """Plans a study of two arms and two seeds of which some runs are finished, with scores (language, seed, value)."""

    def plan(measure, scores, task="topics"):
        hypotheses = [Hypothesis("h", *ARMS, measure.name, "higher", 0.02)]
        runs = [PlannedRun(arm, seed, tmp_path / f"{arm}-seed{seed}", [], None) for seed in (0, 1) for arm in ARMS]
        for run in runs:
            if run.name in scores:
                run.folder.mkdir()
                about = {"task": task, "metric": "accuracy", "system": "pretrained", "n": 100}
                keys = ("language", "seed", "value")
                rows = [about | dict(zip(keys, row, strict=True)) for row in scores[run.name]]
                (run.folder / "scores.json").write_text(json.dumps(rows))
                (run.folder / "finished.json").write_text("{}")
        study = Study(str(tmp_path), [Arm(name, "a.gin") for name in ARMS], (0, 1), [measure], hypotheses)
        found = Plan(study, [PlannedArm(name, name, [measure.name], 1, 0) for name in ARMS], runs, [])
        return found, make_record(found, {}, {})

    return plan


def names():
    return [f"{arm}-seed{seed}" for arm in ARMS for seed in (0, 1)]


def test_trainings_that_failed_are_counted_where_their_mean_is(planned):
    good = [(language, seed, 0.5) for language in ("de", "fr") for seed in (0, 1, 2)]
    bad = [(language, seed, 0.9 if seed == 2 else None) for language, seed, _ in good]
    plan, record = planned(Score("m", "topics"), dict.fromkeys(names(), good) | {"wide-seed1": bad})
    assert {row["failed"] for row in record["scores"] if (row["arm"], row["seed"]) == ("wide", 1)} == {2}
    assert {row["failed"] for row in record["scores"] if (row["arm"], row["seed"]) != ("wide", 1)} == {0}
    assert missing(plan, record) == ["wide-seed1: 2 trainings failed; measure m is the mean of the others"]
    assert [row[-1] for row in scores_table(record).rows] == ["0.7 ±0.28 (2 failed)", "0.5 ±0"]
    old = record | {"scores": [{key: row[key] for key in row if key != "failed"} for row in record["scores"]]}
    assert missing(plan, old) == [] and scores_table(old).rows[0][-1] == "0.7 ±0.28"


def test_a_language_that_a_run_lost_is_named_with_the_run(planned):
    scores = {name: [("de", 0, 0.5), ("fr", 0, None if name == "one-seed0" else 0.6)] for name in names()}
    plan, record = planned(Score("m", "topics"), scores)
    assert missing(plan, record) == ["one-seed0: no value of measure m in fr, which other runs have: left out of 'h'"]
    table = verdicts_table(record)
    assert "left out, since not every run has them: fr" in table.rows[0][table.columns.index("note")]


@pytest.mark.parametrize("kind", [Score, LayerScore])
def test_languages_that_no_run_has_are_named(planned, kind):
    rows = [(language, 0, 0.5) for language in ("de", "en", "frr")]
    task = "topics" if kind is Score else "probe/topics/layer0"
    measure = kind("m", "topics", languages=["de", "frz"], without=["EN", "xx"])
    plan, record = planned(measure, dict.fromkeys(names(), rows), task)
    assert missing(plan, record) == [
        "measure m: no run has a score in frz; did you mean frr?",
        "measure m leaves out EN, which no run has a score in; did you mean en?",
    ]


def test_a_run_that_is_known_otherwise_elsewhere_is_named(planned):
    good = [("de", 0, 0.5), ("fr", 0, 0.25)]
    plan, record = planned(Score("m", "topics"), dict.fromkeys(names(), good))
    theirs = known_runs(record, plan) | {"place": "theirs"}
    assert missing(replace(plan, kept=[record, theirs]), record) == []
    rows = [row | {"value": row["value"] + 0.01 * (row["seed"] * (row["arm"] == "wide"))} for row in theirs["scores"]]
    assert missing(replace(plan, kept=[record, theirs | {"scores": rows}]), record) == [
        "wide-seed1: m in de is 0.5, and 0.51 in theirs: the same recipe and seed were run twice"
    ]
    assert missing(replace(plan, kept=[theirs | {"scores": rows, "measures": []}]), record) == []  # defined otherwise


def test_languages_are_compared_once_every_arm_has_a_run(planned):
    plan, record = planned(Score("m", "topics", languages=["de", "fr"]), {"wide-seed0": [("de", 0, 0.5)]})
    assert missing(plan, record) == []
