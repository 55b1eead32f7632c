"""The page of a run: what it shows, that it is to scale, and that browsers show it at any width, without a request."""

import json
import math

import pytest

from rembed_keras.analysis.pages.drawings import LEFT, RIGHT, WIDTH, curves, parts, scores
from rembed_keras.analysis.pages.intervals import Interval, intervals
from rembed_keras.analysis.pages.records import lines_of
from rembed_keras.analysis.pages.run_page import run_page
from rembed_keras.analysis.reports.results import Measure, read_run
from rembed_keras.errors import UserError
from tests.analysis.pages.browser import shown
from tests.analysis.studies.test_page import Tags, shapes
from tests.training.sinks.test_tensorboard import LEDGER, RECIPE, TABLE, TUNED, pretraining, row

RIGHT_ANSWERS = {"de": [1, 1, 0, 1], "fr": [1, 0, 0, 0]}


@pytest.fixture
def run(tmp_path):
    """A run's folder, with predictions."""
    folder = tmp_path / "one & only"
    predictions = folder / "predictions/topics"
    predictions.mkdir(parents=True)
    held_out = [row("evaluation", step, loss=loss, filled_masks=vars(TABLE)) for step, loss in ((0, 9.5), (6, 4.0))]
    rows = [*pretraining((2, 4, 6)), *held_out, *(row(TUNED[0], step, loss=1 / step) for step in (1, 2))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows) + '{"cut sh')
    found = []
    for language, right in RIGHT_ANSWERS.items():
        lines = [{"id": str(number), "correct": correct} for number, correct in enumerate(right)]
        (predictions / f"pretrained-seed0.{language}.jsonl").write_text(
            "".join(json.dumps(each) + "\n" for each in lines)
        )
        for system, seed, value in (("pretrained", 0, sum(right) / 4), ("majority", None, 0.5)):
            found.append({"task": "topics", "language": language, "metric": "accuracy", "value": value, "seed": seed,
                          "n": 4, "system": system})  # fmt: skip
    (folder / "scores.json").write_text(json.dumps(found))
    (folder / "config.gin").write_text(RECIPE)
    (folder / "ledger.json").write_text(json.dumps(LEDGER))
    (folder / "environment.json").write_text(json.dumps({"backend": "jax", "versions": {"keras": "3.15.1"}}))
    return folder


def test_the_page_has_all_that_the_folder_has(run):
    parsed = Tags()
    parsed.feed(run_page(run))
    assert not parsed.open
    text = " ".join(parsed.text)
    for said in (
        "one & only", "not finished", "one & only: 30 kept, 70 dropped", "head: 70, 70.0%", "unigram entropy",
        "held out", "topics, accuracy, pretrained", "Filled", "step 6", "a | b", "topics/pretrained-lr0.001-seed0",
        "3.15.1", "STEPS", "batches, not epochs", "training.pretrain.steps",
    ):  # fmt: skip
        assert said in text, said
    named = [(tag, name, value) for tag, name, value in parsed.attributes if name in ("src", "href", "action")]
    assert named == [("link", "href", "data:,")]


def test_a_smoke_run_is_called_one(run):
    assert "smoke" not in run_page(run)
    (run / "SMOKE.txt").touch()
    assert "<p>The run is not finished. It is a smoke run: nothing here means anything.</p>" in run_page(run)


def test_a_run_without_scores_has_a_page_and_another_folder_has_none(run, tmp_path):
    (run / "scores.json").unlink()
    assert "Scores" not in run_page(run)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty is not the folder of a run"):
        run_page(tmp_path / "empty")


@pytest.mark.parametrize(
    ("values", "says", "columns"),
    [
        ({"unigram_entropy": 7.5, "loss/de": 2.0}, "In nats a prediction", ["language", "training"]),
        ({"generator_loss": 6.5, "loss/de": 0.4}, "not in nats a prediction", ["language", "training"]),
        (
            {"masked_lm/loss": 6.5, "masked_lm/loss/de": 6.0, "detection/loss/de": 0.5, "detection/loss/fr": 0.6},
            "not in nats a prediction",
            ["language", "training, masked_lm", "training, detection"],
        ),
    ],
)
def test_the_loss_is_said_to_be_what_it_is(values, says, columns, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row("pretrain", 2, loss=9.0, **values)) + "\n")
    page = run_page(tmp_path)
    assert says in page and ("the loss of a model without context" in page) == ("unigram_entropy" in values)
    head = page.partition('<th class="word">language')[2].partition("</tr>")[0]
    assert head == "</th>" + "".join(f"<th>{column}</th>" for column in columns[1:])


def test_parts_are_to_scale():
    widths = [float(bar["width"]) for bar in shapes(parts(LEDGER), "rect")]
    assert widths == pytest.approx([0.3 * WIDTH, 0.7 * WIDTH])


def test_intervals_are_over_examples(run):
    """Against the exact bootstrap distribution of four answers: 0.75 right of one, of 256 equally likely samples."""
    mean, german, french = intervals(read_run(run), Measure("topics", "accuracy"), "pretrained")
    assert (german.language, german.mean, german.baselines) == ("de", 0.75, {"majority": 0.5})
    shares = [math.comb(4, right) * 0.75**right * 0.25 ** (4 - right) for right in range(5)]
    low = next(right for right in range(5) if sum(shares[: right + 1]) > 0.025)
    assert (german.low, german.high) == (low / 4, 1.0) == (0.25, 1.0)
    assert (french.low, french.high) == (0.0, 0.75)
    assert mean.mean == 0.5 and mean.low < 0.5 < mean.high


def test_an_interval_of_answers_that_are_all_right_has_a_width(run):
    answers = run / "predictions/topics/pretrained-seed0.fr.jsonl"
    answers.write_text(answers.read_text().replace('"correct": 0', '"correct": 1'))
    (run / "scores.json").write_text((run / "scores.json").read_text().replace("0.25", "1.0"))
    french = intervals(read_run(run), Measure("topics", "accuracy"), "pretrained")[-1]
    assert (french.language, french.low, french.high) == ("fr", pytest.approx(0.025 ** (1 / 4)), 1.0)


def test_a_score_its_interval_and_its_baseline_are_at_their_places():
    rows = [Interval("de", 0.5, 0.25, 0.75, {"majority": 0.4}), Interval("fr", 1.0, math.nan, math.nan, {})]
    drawn = scores([*rows, Interval("ja", math.nan, math.nan, math.nan, {})])
    circles = [float(each["cx"]) for each in shapes(drawn, "circle")]
    left, right = LEFT, WIDTH - RIGHT  # of 20 and 100 %
    at = lambda value: left + (right - left) * (value - 20) / 80  # noqa: E731
    assert circles == pytest.approx([at(50), at(100)], abs=0.1)
    lines = [each for each in shapes(drawn, "line") if "stroke-width" in each]
    assert [float(each["x1"]) for each in lines] == pytest.approx([at(40), at(25)], abs=0.1)
    assert scores([]) == ""


def test_numbers_that_differ_by_rounding_alone_are_drawn():
    same = curves([{"arm": "a", "points": [(1, 1.9), (2, 1.9)]}], ["a"])
    assert curves([{"arm": "a", "points": [(1, 1.9), (2, math.nextafter(1.9, 2))]}], ["a"]) == same


@pytest.mark.parametrize("width", [360, 1280])
def test_chromium_shows_the_page_without_a_request_or_an_error(run, tmp_path, width):
    (tmp_path / "run.html").write_text(run_page(run), encoding="utf-8")
    said = shown(tmp_path, "run.html", width)
    assert said["width"] <= width and said["scripts"] == 0 and said["drawings"] == 5
    assert said["letters"] > 9  # pixels
    assert not said["requests"] and not said["errors"]
    assert not said["broken"]  # numbers and words over two lines
    assert "95 % interval" in said["text"]


def test_the_command_writes_the_page_and_refuses_what_it_cannot_show(run, command, tmp_path):
    code, out, _ = command("report", run, "--html", "page.html", cwd=tmp_path)
    assert code == 0 and "page.html: the page of" in out
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == run_page(run)
    code, _, err = command("report", run, "--html", "page.html", "--languages", cwd=tmp_path)
    assert code == 2 and "--html shows one RUN alone" in err
    code, _, err = command("report", run, "--html", "there/is/none.html", cwd=tmp_path)
    assert code == 2 and "there/is/none.html cannot be written: there is no folder there/is" in err


def test_a_comment_binds_nothing_whatever_characters_it_has():
    (line,) = lines_of("STEPS = 3  # batches\u2028SEED = 5\x85RATE = 1\n")
    assert (line.name, line.value) == ("STEPS", "3")
