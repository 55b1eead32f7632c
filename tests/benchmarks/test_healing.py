"""The benchmark of healing mixes no results, and refuses what it cannot measure before it does anything."""

import json

import numpy as np
import pytest

from benchmarks.compare import SHAPES, main
from benchmarks.healing import __main__ as healing
from benchmarks.healing import yardstick


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What the command line says, with results in a folder of the test's."""
    monkeypatch.chdir(tmp_path)

    def given(source, *words):
        monkeypatch.setattr("sys.argv", ["healing", source, "--out", "out", *words])
        return healing.arguments()

    return given


def test_a_folder_has_results_of_one_source_and_one_way_to_measure(asked):
    healing.check_settings(asked("one"))
    healing.check_settings(asked("one", "--widths", "32", "--seeds", "1", "--steps", "9"))  # other rows of the same
    for words, what in (
        (["other"], "out has results of source one, and not other: choose another --out"),
        (["one", "--rows", "8x64"], "out has results of rows 32x128, and not 8x64"),
        (["one", "--languages", "en", "de"], r"out has results of languages \['en'\], and not \['en', 'de'\]"),
        (["one", "--bindings", "DTYPE=bfloat16"], "out has results of bindings"),
    ):
        with pytest.raises(SystemExit, match=what):
            healing.check_settings(asked(*words))


def test_languages_that_are_not_there_and_too_few_sentences_are_refused(asked):
    assert healing.chosen_languages(asked("one", "--languages", "all"), ["de", "en"]) == ["de", "en"]
    with pytest.raises(SystemExit, match="--languages xx: the embedded help has de, en"):
        healing.chosen_languages(asked("one", "--languages", "xx"), ["de", "en"])
    with pytest.raises(SystemExit, match="--sentences 1 are fewer than the 2 languages"):
        healing.chosen_languages(asked("one", "--languages", "de", "en", "--sentences", "1"), ["de", "en"])


def test_in_one_language_halves_of_paragraphs_are_to_find_each_other():
    lines = ["To open a file choose Open", "The Basic IDE has a window of its own for each module"]
    assert yardstick.halves(lines) == (["The Basic IDE has a window"], ["of its own for each module"])
    rows = np.eye(4)
    assert yardstick.precision([(rows, rows)]) == 1
    assert yardstick.precision([(rows, rows), (rows, rows[::-1])]) == 0.5


def test_every_shape_can_be_compared(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr("benchmarks.compare.run", lambda case, count: steps.append(count) or {"error": "not run"})
    monkeypatch.setattr("benchmarks.compare.plot", lambda report, path: None)
    monkeypatch.setattr("sys.argv", ["compare", "--shapes", *SHAPES, "--rounds", "1", "--out", str(tmp_path)])
    main()
    assert len(steps) > len(SHAPES)


def test_what_has_a_row_is_not_measured_again_though_its_folder_is_gone(tmp_path):
    about = {"width": 32, "start": "scratch", "recipe": "heal_mlm", "steps": 9, "seed": 0}
    rows = [about | {"seed": seed, "kept": 2_000_000, "help": 0.5 + seed / 10, "topics": 0.25} for seed in (0, 1)]
    (tmp_path / "healing.json").write_text(json.dumps(rows))
    results = healing.Results(tmp_path, yardstick=None)
    assert about in results and about | {"seed": 2} not in results
    results.add(tmp_path / "gone", about)
    assert results.rows == rows
    assert healing.table(rows).splitlines()[2:] == [
        "| 32 | scratch | heal_mlm | 9 | 2 | 2.0M | 0.550 ±0.071 | 0.250 ±0.000 |"
    ]
    later = [rows[0] | {"width": 64, "retrieval": 0.75}, *rows]  # measured before there was retrieval
    assert healing.table(later).splitlines()[2:] == [
        "| 64 | scratch | heal_mlm | 9 | 1 | 2.0M | 0.500 | 0.750 | 0.250 |",
        "| 32 | scratch | heal_mlm | 9 | 2 | 2.0M | 0.550 ±0.071 | - | 0.250 ±0.000 |",
    ]
