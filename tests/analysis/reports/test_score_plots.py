"""Figures of scores: whatever runs are called, and however many rows there are."""

import struct

import pytest
from matplotlib.figure import Figure

from rembed_keras.analysis.layers import Panel, draw_layers
from rembed_keras.analysis.reports import score_plots
from rembed_keras.analysis.reports.comparison import ScoreRow
from rembed_keras.analysis.studies.results.figure import draw_study


def row(run):
    return ScoreRow("topics", "accuracy", "de", 1, 9, 9, run, None, None, "pretrained", 0.5, 0.1, 2, 0)


def scores(path):
    score_plots.draw_scores(path, [row("_a"), row("b")], [])


def curves(path):
    score_plots.draw_curves(path, {"_a": [(0, 1), (1, 2)], "b": [(0, 2), (1, 3)]}, "x", "y")


def layers(path):
    draw_layers(path, [Panel("a measure", {"one": {"": [1, 2]}}, {"_a": {"": 1.5}, "b": {"": 2.5}})])


def study(path):
    found = [{"arm": name, "seed": 0, "points": [(1, 2.0), (2, 1.0)]} for name in ("_a", "b")]
    record = {"arms": [{"name": "_a"}, {"name": "b"}], "curves": found, "hypotheses": [], "verdicts": []}
    draw_study(path, record)


@pytest.mark.parametrize("draw", [scores, curves, layers, study])
def test_a_legend_has_names_that_begin_with_an_underscore(draw, tmp_path, monkeypatch):
    drawn = []
    for module in ("analysis.reports.score_plots", "analysis.layers.figure", "analysis.studies.results.figure"):
        monkeypatch.setattr(f"rembed_keras.{module}.save_figure", lambda figure, path: drawn.append(figure))
    draw(tmp_path / "figure.png")
    legends = [*drawn[0].legends, *(each.get_legend() for each in drawn[0].axes if each.get_legend())]
    shown = [text.get_text().strip() for legend in legends for text in legend.get_texts()]
    assert shown == ["_a", "b"]


def test_a_figure_of_any_length_is_written(tmp_path):
    score_plots.save_figure(Figure(figsize=(0.5, 2000)), tmp_path / "figure.png")
    width, height = struct.unpack(">II", (tmp_path / "figure.png").read_bytes()[16:24])
    assert 60_000 < height < 2**16 and width
