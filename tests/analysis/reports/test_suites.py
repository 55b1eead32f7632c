import pytest

from rembed_keras.analysis.reports.averages import GLUE, XTREME
from rembed_keras.analysis.reports.report import report
from rembed_keras.analysis.reports.results import read_run
from rembed_keras.analysis.reports.suites import suite_averages, suite_notes
from rembed_keras.tasks.scores import Score, dump_scores, read_scores


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


def rewrite(folder, rows):
    (folder / "scores.json").write_text(dump_scores([Score(*row) for row in rows]))


def test_an_average_that_lacks_a_metric_is_no_error_and_says_what_it_lacks(tmp_path):
    folders = [*glue_runs(tmp_path)]
    rewrite(tmp_path / "mrpc", [("mrpc", "en", "accuracy", 0.5, 0, 10, "pretrained")])
    note = "GLUE, pretrained: no average: task mrpc has no f1 in language en, which its average needs."
    assert note in report(folders).notes
    assert suite_averages([read_run(folder) for folder in folders]) == {}


def test_a_seed_that_failed_in_one_language_has_failed_in_an_average_too(tmp_path):
    folder = xtreme(tmp_path / "run", {}, "f1").path
    found = read_scores(folder / "scores.json")
    others = [[each.task, each.language, each.metric, 0.5, 0, 10, "pretrained"] for each in found]
    second = [[*row[:3], 0.9, 1, *row[5:]] for row in others]
    lost = [[*row[:3], None if row[:2] == ["xnli", "de"] else row[3], *row[4:]] for row in second]
    rewrite(folder, [*others, *lost])
    whole, _ = suite_notes([read_run(folder)])
    assert whole == f"XTREME, pretrained: {100 * (0.5 + 8 * 0.7) / 9:.1f} % on average."
    rewrite(folder, lost)
    whole, _ = suite_notes([read_run(folder)])
    assert whole == "XTREME, pretrained: no average: task xnli has no accuracy, which its average needs."


def test_diagnostic_sets_are_in_no_average(tmp_path):
    folders = [*glue_runs(tmp_path)]
    values = {"en": 0.8, "mismatched": 0.6, "diagnostic": 0.1}
    rewrite(
        tmp_path / "mnli", [("mnli", part, "accuracy", value, 0, 10, "pretrained") for part, value in values.items()]
    )
    assert "GLUE, pretrained: 52.2 % on average." in report(folders).notes


def xtreme(folder, languages, bucc):
    rows = [
        (task, language, bucc if task == "bucc2018" else metric, 0.5, 0, 10, "pretrained")
        for task, metrics in XTREME.items()
        for language in languages.get(task, ["de", "en"])
        for metric in metrics
    ]
    return read_run(put(folder, rows))


def test_numbers_of_languages_are_said_where_they_differ(tmp_path):
    same, *_ = suite_notes([xtreme(tmp_path / "same", {}, "f1")])
    assert same == "XTREME, pretrained: 50.0 % on average."
    whole, without = suite_notes([xtreme(tmp_path / "other", {"xquad": ["en"], "tatoeba": ["de"]}, "f1")])
    assert whole == (
        "XTREME, pretrained: 50.0 % on average of tasks in different numbers of languages: xnli 2, pawsx 2, udpos 2, "
        "panx 2, xquad 1, mlqa 2, tydiqa 2, bucc2018 2, tatoeba 1."
    )
    assert without.endswith("xnli 2, pawsx 2, udpos 2, panx 2, xquad 1, mlqa 2, tydiqa 2.")


def test_development_data_of_bucc_is_in_no_average(tmp_path):
    whole, without = suite_notes([xtreme(tmp_path / "run", {}, "dev f1")])
    assert whole.startswith("XTREME, pretrained: no average: task bucc2018 has no f1 in language de")
    assert without == "XTREME without retrieval, by category, pretrained: 50.0 % on average."
