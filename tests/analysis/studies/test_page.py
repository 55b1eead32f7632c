"""The page of a study: what it shows, that it needs nothing else, and that browsers show it at any width."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

from rembed_keras.analysis.layers import Panel
from rembed_keras.analysis.pages.drawings import LEFT, RIGHT, WIDTH, breakdown, curves, dots, layers
from rembed_keras.analysis.studies.definition import Hypothesis
from rembed_keras.analysis.studies.results.page import page
from rembed_keras.analysis.studies.results.report import lines, markdown
from rembed_keras.analysis.studies.verdicts import by_language, derive
from tests.analysis.pages.browser import shown

HYPOTHESES = [
    Hypothesis("wide <finds> more", "wide & deep", "one", "found", "higher", 0.02),
    Hypothesis("wide learns faster", "wide & deep", "one", "loss", "lower", 0.1),
]
VOID = {"meta", "link"}


@pytest.fixture(scope="module")
def record():
    draw, languages = np.random.default_rng(0), [f"l{number}" for number in range(30)]
    scores = [
        {"arm": arm, "seed": seed, "measure": name, "language": language, "value": draw.normal(base, 0.01)}
        for arm, gain in (("wide & deep", 0.1), ("one", 0.0))
        for seed in range(3)
        for name, base, spoken in (("found", 0.4 + gain, languages), ("loss", 5, [""]))
        for language in spoken
    ]
    return {
        "version": "1", "commit": None, "alpha": 0.05, "scores": scores,
        "hypotheses": [vars(each) for each in HYPOTHESES],
        "verdicts": [each.to_json() for each in derive(HYPOTHESES, scores)],
        "measures": [{"name": "found"}, {"name": "loss"}],
        "arms": [{"name": "wide & deep", "kept": 300, "dropped": 700}, {"name": "one", "kept": 300, "dropped": 0}],
        "runs": [{"name": "s0", "state": "finished"}, {"name": "s1", "state": "failed", "failure": "<b>"}],
        "curves": [{"arm": "one", "seed": 0, "points": [[0, 8.0], [10, 6.0], [20, 5.0]]}],
        "run_scores": [
            {"arm": "wide & deep", "task": f"probe/topics/layer{layer}", "metric": "accuracy", "system": "pretrained",
             "language": "de", "value": 0.2 * layer}
            for layer in range(3)
        ],
    }  # fmt: skip


class Tags(HTMLParser):
    """Collects tags, and asserts that they are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_whole_and_says_what_was_found(record):
    parsed = Tags()
    parsed.feed(page(record, "a < b"))
    assert not parsed.open
    text = " ".join(parsed.text)
    for said in (
        "a < b",
        "wide <finds> more",
        "supported",
        "too close to call",
        "s1 failed: <b>",
        "1 of 2 runs",
        "probe/topics, accuracy, %",
    ):
        assert said in text, said
    assert "wide & deep: 300 kept, 700 dropped" in text


def test_an_interval_is_called_by_the_level_that_it_covers(record):
    strict = record | {"alpha": 0.001}
    assert all("99.9% interval" in text for text in (page(strict, "t"), markdown(strict, "t"), *lines(strict)))
    assert "95% interval" in page(record, "t")


def test_markdown_shows_titles_and_failures_as_they_are(record):
    text = markdown(record, "wide <i> *")
    assert text.startswith("# wide &lt;i> \\*\n") and "\n* s1 failed: &lt;b>\n" in text


def test_a_measure_by_layer_is_at_its_place():
    panel = Panel("found", {"one": {"pretrained": [10.0, None, 30.0]}}, {"majority": {"": 20.0}})
    (line,) = shapes(layers(panel, ["one"]), "polyline")
    (left, low), (right, high) = ([float(each) for each in pair.split(",")] for pair in line["points"].split())
    assert (left, right) == (LEFT, WIDTH - RIGHT) and low > high
    assert any(
        float(each["y1"]) == pytest.approx((low + high) / 2, abs=0.1) for each in shapes(layers(panel, ["one"]), "line")
    )
    assert layers(Panel("nothing", {}), ["one"]) == ""


def test_the_page_asks_for_nothing(record):
    text = page(record, "study")
    parsed = Tags()
    parsed.feed(text)
    named = [
        (tag, name, value) for tag, name, value in parsed.attributes if name in ("src", "href", "srcset", "action")
    ]
    assert named == [("link", "href", "data:,")]
    assert not re.search(r"<script|<iframe|@import|url\(|javascript:| on\w+=", text)
    assert "default-src 'none'" in text


def shapes(svg, kind):
    return [each.attrib for each in ET.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{kind}")]


def test_the_breakdown_is_to_scale(record):
    bars = [float(bar["width"]) for bar in shapes(breakdown(record["arms"]), "rect")]
    assert bars == pytest.approx([0.3 * WIDTH, 0.7 * WIDTH, 0.3 * WIDTH, 0.0])


def test_a_curve_goes_through_its_points(record):
    (line,) = shapes(curves(record["curves"], ["one"]), "polyline")
    points = np.array([[float(part) for part in pair.split(",")] for pair in line["points"].split()])
    assert points[[0, -1], 0] == pytest.approx([LEFT, WIDTH - RIGHT])
    rise = np.diff(points[:, 1])
    assert rise[0] == pytest.approx(2 * rise[1], abs=0.2) and rise[1] > 0  # the loss falls, so y grows


def test_a_note_on_curves_has_the_names_of_arms_as_they_are(record):
    other = {"arm": "RTD-Wide", "seed": 0, "points": [[0, 90.0], [10, 80.0]]}
    arms = [*record["arms"], {"name": "RTD-Wide", "kept": 300, "dropped": 0}]
    text = page(record | {"arms": arms, "curves": [*record["curves"], other]}, "study")
    assert "<small>Not shown, a loss of another kind: RTD-Wide, from 80</small>" in text


def test_dots_stand_at_their_differences(record):
    found = by_language(HYPOTHESES[0], record["scores"])
    middle, half = (LEFT + WIDTH - RIGHT) / 2, (WIDTH - RIGHT - LEFT) / 2
    circles = shapes(dots(found["l0"], found, 0.02), "circle")
    assert len(circles) == 31
    ends = [found["l0"].low, found["l0"].high, *(each.difference for each in found.values())]
    reach = 1.15 * max(map(abs, ends))
    expected = [middle + half * each.difference / reach for each in (found["l0"], *found.values())]
    assert [float(circle["cx"]) for circle in circles] == pytest.approx(expected, abs=0.06)


def test_names_that_would_be_cut_at_the_edge_are_squeezed(record):
    found = by_language(HYPOTHESES[0], record["scores"])["l0"]
    texts = shapes(dots(None, {"de": found, "mismatched": found}, 0.02), "text")
    lengths = [each.get("textLength") for each in texts if each["text-anchor"] == "end"]
    assert lengths == [None, f"{LEFT - 6:.1f}"]
    arms = [{"name": name, "kept": 300, "dropped": 700} for name in ("one", "a" * 80)]
    assert [each.get("textLength") for each in shapes(breakdown(arms), "text")] == [None, f"{WIDTH:.1f}"]


def test_nothing_is_drawn_of_nothing():
    assert dots(None, {}, 0.1) == "" and curves([], []) == ""


@pytest.mark.parametrize("width", [360, 1280])
def test_chromium_shows_the_page_without_a_request_or_an_error(record, tmp_path, width):
    (tmp_path / "study.html").write_text(page(record, "study"), encoding="utf-8")
    said = shown(tmp_path, "study.html", width)
    assert said["width"] <= width and said["scripts"] == 0 and said["drawings"] == 5
    assert said["letters"] > 9  # pixels
    assert not said["requests"] and not said["errors"]
    assert not said["broken"]  # numbers and words over two lines


def test_arms_that_pre_train_nothing_have_no_parameters_to_draw(record):
    assert "<h2>Parameters</h2><svg" in page(record, "s")
    arms = [arm | {"kept": None, "dropped": None} for arm in record["arms"]]
    assert "Parameters</h2>" not in page(record | {"arms": arms}, "s")


def test_one_pair_of_seeds_is_one(record):
    scores = [row for row in record["scores"] if row["seed"] == 0]
    verdicts = [each.to_json() for each in derive(HYPOTHESES, scores)]
    assert all(line.endswith("over 1 pair of seeds") for line in lines(record | {"verdicts": verdicts}))
