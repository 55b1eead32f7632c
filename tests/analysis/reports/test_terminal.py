"""Where a line is short no word is broken, and nothing in square brackets is lost.

`tests/recipes/test_recipes.py` prints the tables of every study.
"""

import io
from pathlib import Path

import pytest
from rich.console import Console

from rembed_keras import config
from rembed_keras.analysis.reports.tables import Table
from rembed_keras.analysis.reports.terminal import Whole
from rembed_keras.tasks.scores import Score, table

ROOT = Path(__file__).parents[3]


def printed(table, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(table.rich())
    return console.file.getvalue()


def words(table):
    return {word for row in table.rows for cell in row for word in cell.split()}


def test_a_wide_table_is_a_list_of_rows():
    table = Table("Scores", ["run", "a_long_name_of_a_metric"], [["a_run_of_a_long_name", "57.4"]], words=1)
    assert [line.rstrip() for line in printed(table, 30).splitlines()] == [
        "Scores",
        "",
        "a_run_of_a_long_name",
        "  a_long_name_of_a_metric:",
        "  57.4",
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_the_ledger_keeps_all_digits(width):
    """Rich cuts a number that its column is too narrow for."""
    ledger = config.ledger_of(config.load(str(ROOT / "recipes/rembert.gin")))
    console = Console(file=io.StringIO(), width=width)
    console.print(Whole(ledger.table()))
    shown = console.file.getvalue()
    for number in (ledger.kept, ledger.dropped, ledger.total, *ledger.flops.values(), *ledger.optimizer_bytes.values()):
        assert f"{number:,}" in shown
    assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize("width", [66, 70, 80, 90])
def test_scores_keep_all_words(width):
    """Rich takes as much of each wide column, and so cut names where all words had room."""
    systems = ["pretrained", "scratch", "tfidf", "majority", "untrained"]
    rows = [
        Score("topics", language, "accuracy", value, seed, 500, system)
        for language in ("en", "zh-Hant")
        for system in systems
        for seed, value in enumerate((0.5, 0.73, None))
    ]
    console = Console(file=io.StringIO(), width=width)
    console.print(Whole(table(rows, "topics", systems, "en", ())))
    shown = console.file.getvalue()
    assert all(word in shown for word in (*systems, "zh-Hant", "61.5", "±16.3", "failed)")) and "…" not in shown
    assert max(map(len, shown.splitlines())) <= width


def test_what_is_in_brackets_is_printed():
    table = Table("[bold] knobs", ["knob"], [["[@methods.Biases()]"]], words=1)
    assert "[@methods.Biases()]" in printed(table, 80) and "[bold]" in printed(table, 80)
