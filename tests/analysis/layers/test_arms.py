"""Layers of a study's arms: means by hand, and what is drawn of them."""

import math

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from rembed_keras.analysis.layers import panels_by_arm
from rembed_keras.analysis.layers.figure import Panel, draw_layers
from rembed_keras.analysis.pages.drawings import colours, layers
from rembed_keras.analysis.studies.results.figure import draw_arms


def row(arm, seed, layer, value, **others):
    usual = {"task": f"probe/topics/layer{layer}", "metric": "accuracy", "system": "pretrained", "language": "de"}
    return {"arm": arm, "run_seed": seed, "value": value} | usual | others


def known(cosines):
    of_task = {"pretrained": {"token_cosine": cosines, "cka_with_next": [None, 0.5]}, "n": 4, "language": "en"}
    words = {"pretrained": {"table": 0.1, "layers": [0.2, 0.3]}, "n": 4, "language": "en"}
    return {"topics": of_task, "words of en": words}


RECORD = {
    "arms": [{"name": "wide"}, {"name": "one"}],
    "run_scores": [
        row("wide", 0, 0, 0.2),
        row("wide", 1, 0, 0.4),
        row("wide", 0, 1, 0.5),
        row("wide", 0, 1, 0.7, language="fr"),
        row("wide", 0, 1, None, language="it"),
        row("wide", 0, 1, 0.9, system="finetuned"),
        row("wide", 0, 0, 0.1, system="untrained"),
        row("wide", 0, 0, 0.25, system="majority"),
        row("one", 0, 0, 0.3),
        row("one", 0, 0, 0.25, system="majority"),
        row("one", 0, 0, 0.9, task="topics"),
    ],
    "layers": [
        {"arm": "wide", "seed": 0, "known": known([0.1, 0.3])},
        {"arm": "wide", "seed": 1, "known": known([0.3, 0.5])},
    ],
}


def test_they_are_means_over_languages_and_seeds():
    scores, cosines, cka, words = panels_by_arm(RECORD)
    rounded = {arm: {system: [value and round(value, 9) for value in each] for system, each in systems.items()}
               for arm, systems in scores.curves.items()}  # fmt: skip
    assert rounded == {"wide": {"pretrained": [30, 60], "finetuned": [None, 90]}, "one": {"pretrained": [30]}}
    assert scores.levels == {"majority": {"": 25.0}} and scores.title == "probe/topics, accuracy, %"
    assert cosines.curves == {"wide": {"pretrained": [0.2, 0.4]}}
    assert cka.curves == {"wide": {"pretrained": [None, 0.5]}}
    assert words.curves == {"wide": {"pretrained": [0.2, 0.3]}}


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_score_that_is_not_finite_leaves_the_other_layers_in_their_places(value):
    (panel,) = panels_by_arm({"run_scores": [row("one", 0, 0, value), row("one", 0, 1, 0.25), row("one", 0, 2, 0.5)]})
    assert panel.curves == {"one": {"pretrained": [None, 25, 50]}}
    assert layers(panel, ["one"]).count(",") > 1


def test_a_study_without_layers_has_no_panel_and_no_figure(tmp_path):
    assert panels_by_arm({"run_scores": [row("one", 0, 0, 0.9, task="topics")]}) == []
    assert not draw_arms(tmp_path / "layers.png", {}) and not [*tmp_path.iterdir()]


def test_they_are_drawn(tmp_path):
    assert draw_arms(tmp_path / "layers.png", RECORD)
    assert imread(tmp_path / "layers.png").shape[0] > 500
    drawn = [layers(panel, ["wide", "one"]) for panel in panels_by_arm(RECORD)]
    assert drawn[0].count("<polyline") == 3 and drawn[0].count("stroke-dasharray") == 1 and "majority" in drawn[0]
    assert all(each.startswith("<svg") for each in drawn)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **_: figures.append(self))
    return figures


@pytest.mark.parametrize(("systems", "named"), [(["a"], []), (["a", "b"], ["a", "b"])])
def test_a_legend_tells_systems_apart_where_there_are_several(systems, named, tmp_path, drawn):
    panel = Panel("", {"one": {system: [0.1, 0.2] for system in systems}}, {"majority": {"": 0.1}})
    draw_layers(tmp_path / "layers.png", [panel])
    (axes,) = drawn[0].axes
    assert axes.get_legend_handles_labels()[1] == ["majority", *named]


def test_places_without_a_panel_stay_empty(tmp_path, drawn):
    draw_layers(tmp_path / "layers.png", [Panel(str(number), {"one": {"": [0.1, 0.2]}}) for number in range(4)])
    assert [axes.get_title() for axes in drawn[0].axes if axes.get_visible()] == ["0", "1", "2", "3"]
    assert len(drawn[0].axes) == 6


def test_thirteen_arms_have_a_color_each_and_a_key_inside_the_figure(tmp_path, monkeypatch):
    names = [f"an_arm_of_a_long_name_{number}" for number in range(13)]
    assert len(set(colours(names).values())) == 13
    inside = []

    def measure(figure, file, **_):
        figure.draw_without_rendering()
        (legend,) = figure.legends
        where = legend.get_window_extent()
        inside.append(where.x0 >= 0 and where.x1 <= figure.bbox.x1)

    monkeypatch.setattr(Figure, "savefig", measure)
    draw_layers(tmp_path / "layers.png", [Panel("a", {name: {"pretrained": [0.1, 0.2]} for name in names})] * 3)
    assert inside == [True]
