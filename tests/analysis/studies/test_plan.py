"""What a study's plan shows before its runs: power and hours."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rembed_keras.analysis.reports.power import smallest_accuracy_difference, smallest_seeds_difference
from rembed_keras.analysis.studies.definition import Arm, Hypothesis, Study
from rembed_keras.analysis.studies.measures import Score
from rembed_keras.analysis.studies.plan import Plan, PlannedArm, PlannedRun, _points_of

DIFFERENCES = (0.1, 0.13, 0.08)


@pytest.fixture
def plan(tmp_path):
    hypotheses = [Hypothesis(name, "wide", "one", "found", "higher", 0.02) for name in ("first", "second")]
    arms = [Arm("wide", "a.gin"), Arm("one", "b.gin")]
    study = Study(str(tmp_path), arms, (0, 1, 2), [Score("found", "topics")], hypotheses)
    runs = [
        PlannedRun(arm.name, seed, Path(tmp_path, f"{arm.name}-seed{seed}"), [], None)
        for seed in study.seeds
        for arm in arms
    ]
    return Plan(study, [PlannedArm("wide", "", ["found"], 10, 7), PlannedArm("one", "", ["found"], 10, 0)], runs, [])


@pytest.fixture
def record():
    about = {"measure": "found", "task": "topics", "n": 500}
    scores = [
        about | {"arm": arm, "seed": seed, "language": language, "value": 0.5 + gain * (arm == "wide")}
        for seed, gain in enumerate(DIFFERENCES)
        for arm in ("wide", "one")
        for language in ("de", "fr")
    ]
    return {
        "scores": scores,
        "runs": [{"arm": "wide", "state": "finished", "seconds": each} for each in (360.0, 720.0, 360.0)],
    }


def row(table, index=0):
    return dict(zip(table.columns, table.rows[index], strict=True))


def test_arms_stand_side_by_side(plan, record):
    arms, _ = plan.tables(record)
    assert row(arms) == {
        "arm": "wide",
        "kept": "10",
        "dropped": "7",
        "total": "17",
        "finished": "0 of 3",
        "hours a run": "0.100",
    }
    assert row(arms, 1)["hours a run"] == "unknown"


def test_power_is_that_of_the_tests_that_will_be_made(plan, record):
    power = row(plan.tables(None)[1])
    assert power["detectable"] == f"{smallest_seeds_difference(3, 1.0, alpha=0.025):.2f} sd"
    assert (power["measured"], power["by examples"]) == ("-", "-")
    measured = row(plan.tables(record)[1])
    std = np.std(DIFFERENCES, ddof=1)
    assert measured["measured"] == f"{std * smallest_seeds_difference(3, 1.0, alpha=0.025):.3g}"
    points = 100 * smallest_accuracy_difference(500, 0.8, alpha=0.025)  # of 500 texts in two languages: they count once
    assert measured["by examples"] == f"{points:.2f} points, with 500 examples or more"
    assert _points_of(4, 0.025) == "none, with 4 examples or more"


def test_a_detectable_difference_is_detected_as_often_as_stated():
    """Simulated: paired t-tests of differences as large as is said to be detectable."""
    gaps = np.random.default_rng(0).normal(smallest_seeds_difference(3, 1.0, alpha=0.025), 1.0, (20_000, 3))
    p = stats.ttest_1samp(gaps, 0.0, axis=1).pvalue
    assert np.mean(p < 0.025) == pytest.approx(0.8, abs=0.01)


def test_hours_are_those_of_runs_that_are_left(plan, record):
    said = plan.hours(None)
    assert said.startswith("6 runs, 0 finished, 6 left; hours unknown")
    assert "0.30 hours" in plan.hours(record) and "those of one, unknown until one is finished" in plan.hours(record)
    for run in plan.runs[:2]:
        run.folder.mkdir()
        (run.folder / "finished.json").write_text("{}")
    assert plan.hours(record).startswith("6 runs, 2 finished, 4 left: 0.20 hours")
    for run in plan.runs[2:]:
        run.folder.mkdir()
        (run.folder / "finished.json").write_text("{}")
    assert plan.hours(record) == "6 runs, 6 finished, 0 left"
