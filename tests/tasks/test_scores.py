import numpy as np
import pytest
from rich.console import Console

from rembed_keras.analysis.reports.terminal import Whole
from rembed_keras.errors import UserError
from rembed_keras.tasks.scores import Score, dump_scores, read_scores, table


def test_scores_come_back(tmp_path):
    measured = Score("topics", "de", "accuracy", 0.5, 0, 10, "pretrained")
    scores = [measured, Score("topics", "de", "accuracy", 0.25, None, 10, "tfidf")]
    (tmp_path / "scores.json").write_text(dump_scores(scores))
    assert read_scores(tmp_path / "scores.json") == scores
    assert read_scores(tmp_path / "none.json") == []


@pytest.mark.parametrize("content", ['[{"task": "topics"', '{"task": "topics"}', '[{"task": "topics"}]', "[3]"])
def test_damaged_scores_are_said_in_one_line(content, tmp_path):
    path = tmp_path / "scores.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"scores\.json is not (JSON|a JSON array|a list of scores)"):
        read_scores(path)


def shown(scores, **options):
    console = Console(width=120)
    with console.capture() as printed:
        console.print(table(scores, "topics", ["pretrained", "tfidf"], "en", **options))
    return printed.get()


def test_means_leave_the_trained_language_out_and_seeds_show_their_deviation():
    values = {("en", 0): 0.9, ("en", 1): 0.9, ("de", 0): 0.5, ("de", 1): 0.6, ("xx", 0): 0.1, ("xx", 1): 0.1}
    scores = [
        Score("topics", name, "accuracy", value, seed, 10, "pretrained") for (name, seed), value in values.items()
    ]
    text = shown(scores, seen=["en", "de"])
    assert f"55.0 ±{np.std([50, 60], ddof=1):.1f}" in text
    assert "mean of 1 seen" in text and "en minus mean of 2" in text
    assert "mean of 1 unseen" in text and "10.0 ±0.0" in text
    assert "xx" not in text
    rows = [line for line in text.splitlines() if "│" in line]
    assert rows[0].split("│")[1].strip() == "en"
    assert rows[0].split("│")[-2].strip() == "-"  # no tfidf score


def first_cells(text):
    return [line.split("│")[1].strip() for line in text.splitlines() if "│" in line]


def in_languages(*names, n=10):
    return [Score("topics", name, "accuracy", 0.5, 0, n, "pretrained") for name in names]


@pytest.mark.parametrize("width", [120, 20])
def test_names_are_shown_as_they_are(width):
    scores = [Score("a[/b]", name, "f1[micro]", 0.5, 0, 10, "pretrained") for name in ("de[old]", "en")]
    console = Console(width=width)
    with console.capture() as printed:
        console.print(Whole(table(scores, "a[/b]", ["pretrained"], "de[old]", seen=[])))
    text = " ".join(printed.get().split())
    assert text.startswith("a[/b]: f1[micro], %") and "de[old] minus mean of 1" in text


def test_every_language_is_shown_where_those_of_pretraining_are_not_known():
    text = shown(in_languages("de", "en", "xx"), seen=[])
    assert first_cells(text) == ["en", "de", "xx", "mean of 2 others", "en minus mean of 2"]
    assert first_cells(shown(in_languages("en"), seen=[])) == ["en"]


def test_the_language_of_training_is_shown_even_if_it_was_not_read():
    assert first_cells(shown(in_languages("de", "en"), seen=["de"]))[:2] == ["en", "de"]


def test_parts_of_a_test_are_no_languages():
    text = shown(in_languages("en", "mismatched", "AX-b", "de", "zh-Hans"), seen=["en", "de"])
    assert first_cells(text)[:6] == ["en", "AX-b", "de", "mismatched", "mean of 1 seen", "mean of 1 unseen"]


def test_sizes_that_differ_by_metric_are_both_shown():
    scores = [*in_languages("en", n=4), Score("topics", "en", "exact_match", 0.5, 0, 2, "pretrained")]
    assert "4 / 2" in shown(scores, seen=["en"])


def test_a_seed_that_failed_in_one_language_is_in_no_mean_of_several():
    values = {("en", 0): 0.9, ("de", 0): 0.8, ("th", 0): None, ("en", 1): 0.9, ("de", 1): 0.8, ("th", 1): 0.2}
    scores = [
        Score("topics", name, "accuracy", value, seed, 10, "pretrained") for (name, seed), value in values.items()
    ]
    rows = [line for line in shown(scores, seen=["de", "th"]).splitlines() if "mean of 2" in line]
    assert "50.0 (1 of 2 failed)" in rows[0] and "40.0 (1 of 2 failed)" in rows[1]
