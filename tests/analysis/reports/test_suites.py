import pytest

from rembed_keras.analysis.reports.averages import GLUE
from rembed_keras.analysis.reports.report import report
from rembed_keras.analysis.reports.results import read_run
from rembed_keras.analysis.reports.suites import suite_averages
from rembed_keras.tasks.scores import Score, dump_scores


def put(folder, rows):
    folder.mkdir()
    (folder / "scores.json").write_text(dump_scores([Score(*row) for row in rows]))
    return folder


def glue_runs(tmp_path):
    """One run per task, all metrics 0.5 but those of MNLI, and one failed seed."""
    for task, metrics in GLUE.items():
        rows = [(task, "en", metric, 0.5, seed, 10, "pretrained") for metric in metrics for seed in (0, 1)]
        if task == "mnli":
            rows = [
                ("mnli", "en", "accuracy", 0.8, 0, 10, "pretrained"),
                ("mnli", "mismatched", "accuracy", 0.6, 0, 10, "pretrained"),
                ("mnli", "en", "accuracy", None, 1, 10, "pretrained"),
                ("mnli", "mismatched", "accuracy", None, 1, 10, "pretrained"),
            ]
        yield put(tmp_path / task, rows)


def test_glue_is_averaged_over_nine_runs(tmp_path):
    runs = [read_run(folder) for folder in glue_runs(tmp_path)]
    assert suite_averages(runs) == {("GLUE", "pretrained"): pytest.approx((8 * 0.5 + 0.7) / 9)}
    assert suite_averages(runs[1:]) == {}
    twice = read_run(put(tmp_path / "other", [("rte", "en", "accuracy", 1.0, 0, 10, "pretrained")]))
    assert suite_averages([*runs, twice]) == {}, "which of two is meant?"
    assert "GLUE, pretrained: 52.2 % on average." in report([run.path for run in runs]).notes
