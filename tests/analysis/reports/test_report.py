import csv
import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from rembed_keras import cli
from rembed_keras.analysis.reports.comparison import adjusted
from rembed_keras.analysis.reports.power import smallest_accuracy_difference, smallest_seeds_difference
from rembed_keras.analysis.reports.report import report
from rembed_keras.analysis.reports.significance import holm, paired_bootstrap, paired_t
from rembed_keras.errors import UserError

LANGUAGES = ("de", "en")
N = 200


def row(task, language, value, seed, system="pretrained", metric="accuracy", n=N):
    names = {"task": task, "language": language, "metric": metric, "system": system}
    return names | {"value": value, "seed": seed, "n": n}


def write(folder, rows, kept=1000, dropped=2000):
    folder.mkdir(exist_ok=True)
    (folder / "scores.json").write_text(json.dumps(rows))
    if kept:
        (folder / "ledger.json").write_text(json.dumps({"kept": kept, "dropped": dropped, "total": kept + dropped}))
    return folder


def predict(folder, task, seed, language, answers, system="pretrained"):
    file = folder / "predictions" / task / f"{system}-seed{seed}.{language}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"id": f"{language}-{number}", "correct": int(each)}) for number, each in enumerate(answers)]
    file.write_text("\n".join(rows) + "\n")
    return file


def answers_of(share, seed):
    return np.random.default_rng(seed).random(N) < share


def make(folder, shares, seeds=range(4), with_predictions=True, kept=1000):
    """A run with given accuracies of its tasks, and baselines."""
    rows = []
    for task, share in shares.items():
        for index, language in enumerate(LANGUAGES):
            for seed in seeds:
                right = answers_of(share, 10 * seed + index)
                rows.append(row(task, language, float(right.mean()), seed))
                if with_predictions:
                    predict(folder, task, seed, language, right)
            rows += [row(task, language, 0.25, None, "majority"), row(task, language, 0.5, None, "tfidf")]
    return write(folder, rows, kept)


@pytest.fixture
def good(tmp_path):
    return make(tmp_path / "good", {"topics": 0.7, "pairs": 0.5})


@pytest.fixture
def plain(tmp_path):
    return make(tmp_path / "plain", {"topics": 0.5, "pairs": 0.5})


def test_means_are_over_seeds_and_failures_are_counted(tmp_path):
    values = {("de", 0): 0.4, ("en", 0): 0.6, ("de", 1): 0.5, ("en", 1): 0.7, ("de", 2): None, ("en", 2): 0.9}
    rows = [row("topics", language, value, seed) for (language, seed), value in values.items()]
    run = write(tmp_path / "run", [*rows, row("topics", "de", 0.25, None, "majority")])
    shown = report([run], languages=True)
    mean, german, majority, english = shown.scores
    assert (mean.language, mean.languages, mean.seeds, mean.failed) == ("mean", 2, 2, 1)
    assert (mean.mean, mean.std) == pytest.approx((0.55, np.std([0.5, 0.6], ddof=1)))
    assert (german.language, german.failed, german.mean) == ("de", 1, pytest.approx(0.45))
    assert (majority.language, majority.system, majority.mean) == ("de", "majority", 0.25)
    assert (english.seeds, english.failed, english.mean) == (3, 0, pytest.approx(2.2 / 3))
    cells = shown.tables()[1].rows
    assert cells[0][-3:] == ["55.0 ±7.1", "1 of 3 failed", "-"]  # majority was not tested in all
    assert cells[1][-3:] == ["45.0 ±7.1", "1 of 3 failed", "25.0"]


def test_where_all_failed_nothing_is_averaged(tmp_path, plain):
    failed = [row(task, name, math.nan, 0) for task in ("topics", "pairs") for name in LANGUAGES]
    run = write(tmp_path / "run", failed)
    shown = report([run], [plain])
    table = shown.tables()[1]
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (cells["run"], cells["score"], cells["seeds"]) == ("run", "-", "1 of 1 failed")
    assert [(each.seeds, each.verdict) for each in shown.differences] == [(0, "not tested")] * 2
    shown.write(tmp_path / "out")


def test_runs_are_compared_over_seeds_and_examples(good, plain):
    topics, pairs = report([good], [plain]).differences
    gaps = []
    for share in (0.7, 0.5):
        seeds = [np.concatenate([answers_of(share, 10 * seed + index) for index in (0, 1)]) for seed in range(4)]
        gaps.append(np.array(seeds, float))
    by_hand = paired_bootstrap(*gaps)  # both languages have as many examples, so that the plain mean is theirs
    assert (topics.seeds, topics.examples) == (4, 2 * N)
    assert topics.difference == pytest.approx(by_hand.difference)
    assert (topics.low, topics.high) == pytest.approx((by_hand.low, by_hand.high), abs=0.005)
    assert (pairs.difference, pairs.p, pairs.verdict) == (0, 1, "not significant")
    assert topics.verdict == "better" and topics.holm_p == pytest.approx(min(1, 2 * topics.p))
    means = (gaps[0] - gaps[1]).mean(axis=1)
    disagreement = np.mean((gaps[0] - gaps[1]).mean(axis=0) ** 2)
    sides = smallest_seeds_difference(4, np.std(means, ddof=1)), smallest_accuracy_difference(2 * N, 1 - disagreement)
    assert topics.detectable == pytest.approx(math.hypot(*sides), rel=0.02)
    backwards = report([plain], [good]).differences[0]
    assert backwards.verdict == "worse" and backwards.difference == -topics.difference


def test_p_values_are_adjusted_over_tasks_and_separately_over_languages(good, plain, tmp_path):
    other = make(tmp_path / "other", {"topics": 0.6, "pairs": 0.45})
    found = report([good, other], [plain], languages=True).differences
    for rows in ([each for each in found if (each.language == "mean") is is_mean] for is_mean in (True, False)):
        assert len(rows) == (4 if rows[0].language == "mean" else 8)
        assert [each.holm_p for each in rows] == pytest.approx(holm([each.p for each in rows]))
        assert all((each.verdict == "not significant") == (each.holm_p >= 0.05) for each in rows)


def test_a_verdict_is_of_the_adjusted_p(good, plain):
    one = report([good], [plain]).differences[0]
    for p_values, verdicts in (
        ([0.01, 0.04], ["worse", "worse"]),
        ([0.03, 0.04], ["not significant"] * 2),
        ([0.02, 0.06], ["worse", "not significant"]),
    ):
        assert [each.verdict for each in adjusted([replace(one, p=p, difference=-0.1) for p in p_values])] == verdicts


def test_without_predictions_runs_are_compared_over_seeds(tmp_path):
    shares = {"topics": 0.7}
    runs = [
        make(tmp_path / name, {task: share + shift for task, share in shares.items()}, with_predictions=False)
        for name, shift in (("good", 0), ("plain", -0.2))
    ]
    found = report(runs[:1], runs[1:]).differences[0]
    means = np.array([[[answers_of(s, 10 * k + i).mean() for i in (0, 1)] for k in range(4)] for s in (0.7, 0.5)])
    by_hand = paired_t(means[0] - means[1])
    assert (found.p, found.low, found.examples) == (pytest.approx(by_hand.p), pytest.approx(by_hand.low), 0)
    assert found.sign_flip_p == 2 / 2**4


def test_only_pairs_of_which_neither_failed_are_compared(good, plain):
    rows = json.loads((plain / "scores.json").read_text())
    for each in rows:
        if each["seed"] == 2 and each["language"] == "en":
            each["value"] = None
    (plain / "scores.json").write_text(json.dumps([each for each in rows if each["seed"] != 3]))
    topics = report([good], [plain]).differences[0]
    expected = [
        np.mean([answers_of(share, 10 * seed + index).mean() for seed in (0, 1) for index in (0, 1)])
        for share in (0.7, 0.5)
    ]
    assert (topics.seeds, topics.difference) == (2, pytest.approx(expected[0] - expected[1]))


def test_one_seed_is_tested_over_examples_and_without_them_not_at_all(tmp_path):
    runs = [make(tmp_path / name, {"topics": share}, seeds=[0]) for name, share in (("a", 0.8), ("b", 0.5))]
    found = report(runs[:1], runs[1:]).differences[0]
    assert (found.seeds, found.examples, found.verdict) == (1, 2 * N, "better")
    for file in runs[0].rglob("*.jsonl"):
        file.unlink()
    found = report(runs[:1], runs[1:]).differences[0]
    assert math.isnan(found.p) and math.isnan(found.detectable) and found.verdict == "not tested"
    assert found.difference == pytest.approx(0.3, abs=0.05)


def test_a_system_without_seeds_is_compared_with_every_seed(tmp_path, plain):
    rows = [row("topics", name, 0.9, None) for name in LANGUAGES]
    run = write(tmp_path / "run", rows)
    for runs, verdict in (((run, plain), "better"), ((plain, run), "worse")):
        found = report(runs[:1], runs[1:]).differences[0]
        assert (found.seeds, found.verdict) == (4, verdict)


def test_all_is_written_and_can_be_read_again(good, plain, tmp_path):
    odd = good.rename(tmp_path / "100%_a|b&c")
    shown = report([odd], [plain], languages=True)
    shown.write(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.md", "report.tex", "report.png", "scores.csv", "differences.csv"}
    with open(tmp_path / "out/scores.csv", newline="") as file:
        scores = [*csv.DictReader(file)]
    assert len(scores) == 2 * 2 * 3 * 3  # runs, tasks, mean and languages, systems
    assert float(scores[0]["mean"]) == shown.scores[0].mean and scores[0]["run"] == "100%_a|b&c"
    assert [each["std"] for each in scores if each["system"] == "majority"] == [""] * 12
    with open(tmp_path / "out/differences.csv", newline="") as file:
        assert [float(each["p"]) for each in csv.DictReader(file)] == [each.p for each in shown.differences]
    latex = (tmp_path / "out/report.tex").read_text()
    assert r"100\%\_a\textbar{}b\&c" in latex and latex.count(r"\toprule") == latex.count(r"\bottomrule") == 3
    markdown = (tmp_path / "out/report.md").read_text()
    lines = [line for line in markdown.splitlines() if line.startswith("|") and "topics | de" in line]
    assert len(lines) == 3 and r"100%\_a\|b&c" in lines[0] and lines[2].endswith("| better |")
    assert (tmp_path / "out/report.png").read_bytes().startswith(b"\x89PNG")
    assert any(note.startswith("Scores are means") for note in markdown.splitlines())


def test_predictions_for_different_examples_are_not_compared(good, plain):
    file = good / "predictions/topics/pretrained-seed1.de.jsonl"
    file.write_text(file.read_text().replace('"de-0"', '"de-x"'))
    with pytest.raises(UserError, match="have predictions for different examples of topics in de"):
        report([good], [plain])


def test_runs_that_cannot_be_compared_are_refused(good, plain, tmp_path):
    rows = json.loads((plain / "scores.json").read_text())

    def other(name, rows, kept=1000):
        return write(tmp_path / name, rows, kept)

    refused = {
        "has 200 examples of topics in de and": other("n", [each | {"n": 201} for each in rows]),
        "in different languages": other("l", [each for each in rows if each["language"] == "de"]),
        "have no task in common": other("t", [row("others", "de", 0.5, 0)]),
        "has scored pretrained on topics and .* scratch": other("s", [row("topics", "de", 0.5, 0, "scratch")]),
        "k has no ledger.json, .* anyway with --unequal": other("k", rows, kept=None),
        "has no scores.json": tmp_path,
        "is named twice": good,
    }
    for message, run in refused.items():
        with pytest.raises(UserError, match=message):
            report([good], [run])
    (plain / "ledger.json").write_text('{"kept": "many"}')
    with pytest.raises(UserError, match="has no counts of kept and dropped parameters"):
        report([plain])
    assert report([tmp_path / "k"]).tables()[0].rows == [["k", "-", "-", "-"]]
    unknown = report([good], [tmp_path / "k"], unequal=True)
    assert unknown.differences and any(
        re.match(r"Unknown budgets: .*k has no ledger\.json", note) for note in unknown.notes
    )


@pytest.mark.parametrize(("kept", "is_same"), [(1050, True), (1051, False), (953, True), (952, False)])
def test_unequal_budgets_are_compared_on_request_only(kept, is_same, good, tmp_path):
    other = make(tmp_path / "other", {"topics": 0.5}, kept=kept)
    if is_same:
        assert not any("Unequal" in note for note in report([good], [other]).notes)
    else:
        with pytest.raises(UserError, match=f"good keeps 1,000 parameters and .*other {kept:,}: .* with --unequal"):
            report([good], [other])
        assert any(note.startswith("Unequal budgets") for note in report([good], [other], unequal=True).notes)
    assert len(report([good, other]).runs) == 2  # they may be shown side by side


def test_runs_of_one_name_are_named_by_their_paths(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        make(tmp_path / name / "run", {"topics": 0.5})
    names = [each.name for each in report([tmp_path / "a/run", tmp_path / "b/run"]).runs]
    assert names == [str(tmp_path / "a/run"), str(tmp_path / "b/run")]


def run_cli(arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["rembed", "report", *map(str, arguments)])
    cli.main()
    return capsys.readouterr().out


def test_the_command_shows_and_writes(good, plain, tmp_path, capsys, monkeypatch):
    out = run_cli([good, "--against", plain, "--out", tmp_path / "out", "--languages"], capsys, monkeypatch)
    assert "mean of 2" in out and "n.s." in out and "better" in out
    assert len([line for line in out.splitlines() if line.lstrip().startswith("topics  de")]) == 3
    assert (tmp_path / "out/report.md").exists()
    alone = run_cli([good], capsys, monkeypatch)
    assert "Differences" not in alone and "topics  de" not in alone and "70." in alone


def test_mistakes_cost_one_line_and_exit_code_2(good, plain, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    (plain / "ledger.json").write_text('{"kept": 2000, "dropped": 1}')
    mistakes = {
        f"{tmp_path} has no scores.json": [tmp_path],
        "these budgets are unequal": [good, "--against", plain],
        "Missing argument 'RUN...'": [],
        "file/x cannot be written: Not a directory": [good, "--out", tmp_path / "file/x"],
    }
    for message, arguments in mistakes.items():
        with pytest.raises(SystemExit) as exit_:
            run_cli(arguments, capsys, monkeypatch)
        err = capsys.readouterr().err
        assert exit_.value.code == 2 and message in err and err.count("\n") == 1
    assert "Unequal budgets" in run_cli([good, "--against", plain, "--unequal"], capsys, monkeypatch)


def test_reporting_loads_no_framework(good):
    code = (
        f"import sys; from rembed_keras import cli; sys.argv = ['rembed', 'report', {str(good)!r}]; cli.main();"
        " print([m for m in ('tensorflow', 'keras', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
