"""Encoders without pre-training: baselines of those that have it, and results of their own where they are alone.

And baselines of a task of one's own, which no name tells.
"""

import json

import numpy as np

from rembed_keras.analysis.pages.run_page import run_page
from rembed_keras.analysis.reports.report import report
from rembed_keras.tasks.scores import Score
from rembed_keras.training.sinks.sink import final_numbers
from tests.analysis.reports.test_report import LANGUAGES, N, make, predict, row, write


def shown(run):
    table = report([run]).tables()[1]
    return table.columns, table.rows


def test_a_run_of_scratch_alone_is_reported(tmp_path):
    scores = [row("topics", "de", 0.6, seed, "scratch") for seed in (0, 1)]
    run = write(tmp_path / "run", [*scores, row("topics", "de", 0.25, None, "majority")], kept=None)
    columns, (cells,) = shown(run)
    assert "scratch" not in columns and "scratch" in report([run]).tables()[1].title
    assert cells[-3:] == ["60.0 ±0.0", "2", "25.0"]
    assert "topics, accuracy, scratch, %" in run_page(run)
    report([run]).write(tmp_path / "out")


def test_it_stands_beside_what_was_pretrained_in_the_same_run(tmp_path):
    systems = (("pretrained", 0.7), ("scratch", 0.6))
    both = write(tmp_path / "both", [row("topics", "de", value, 0, name) for name, value in systems], kept=None)
    columns, rows = shown(both)
    assert columns[-1] == "scratch" and [cells[-3:] for cells in rows] == [["70.0", "1", "60.0"]]
    assert "topics, accuracy, scratch, %" not in run_page(both)
    (both / "ledger.json").write_text('{"kept": 1000, "dropped": 2000}')
    alone = write(tmp_path / "alone", [row("topics", "de", 0.5, 0, "scratch")])
    scores, differences = report([both], [alone]).tables()[1:]
    where = scores.columns.index("score")
    assert [cells[where] for cells in scores.rows] == ["70.0", "50.0"] and len(differences.rows) == 1
    (found,) = report([both], [alone]).differences
    assert found.system == "scratch" and round(found.difference, 9) == 0.1


def test_scratch_is_a_result_beside_a_baseline_of_ones_own(tmp_path):
    scores = [row("topics", "de", 0.6, 0, "scratch"), row("topics", "de", 0.4, None, "length")]
    columns, rows = shown(write(tmp_path / "run", scores))
    assert "scratch" not in columns and [cells[columns.index("score")] for cells in rows] == ["60.0", "40.0"]


def test_retrieval_and_mining_from_scratch_are_results_too(tmp_path):
    rows = [row("tatoeba", language, 0.1, None, "scratch") for language in ("de", "fr")]
    rows += [row("topics", "de", 0.7, 0), row("topics", "de", 0.6, 0, "scratch")]
    _, cells = shown(write(tmp_path / "run", rows))
    assert sorted(each[0] for each in cells) == ["tatoeba", "topics"]
    scores = [Score(**each) for each in json.loads((tmp_path / "run/scores.json").read_text())]
    assert {*final_numbers(scores, [])} == {"final/tatoeba/accuracy/scratch", "final/topics/accuracy/pretrained"}


def test_a_baseline_of_ones_own_is_no_comparison_that_others_are_adjusted_for(tmp_path):
    runs = [make(tmp_path / name, {"topics": share}) for name, share in (("good", 0.7), ("plain", 0.5))]
    before = report(runs[:1], runs[1:]).differences
    for run in runs:
        rows = json.loads((run / "scores.json").read_text())
        for language in LANGUAGES:
            predict(run, "topics", None, language, np.arange(N) < 0.4 * N, "all labels")
            rows.append(row("topics", language, 0.4, None, "all labels"))
        write(run, rows)
    shown = report(runs[:1], runs[1:])
    assert [(each.system, each.holm_p) for each in shown.differences] == [(each.system, each.holm_p) for each in before]
    assert "all labels" in {each.system for each in shown.scores}
