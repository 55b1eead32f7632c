import json
import math

import pytest

from rembed_keras.analysis.pages.intervals import intervals
from rembed_keras.analysis.reports.report import report
from rembed_keras.analysis.reports.results import Measure, read_run
from rembed_keras.errors import UserError


def row(task, language, value, seed, system="pretrained", metric="accuracy", n=4):
    names = ("task", "language", "metric", "value", "seed", "n", "system")
    return dict(zip(names, (task, language, metric, value, seed, n, system), strict=True))


@pytest.fixture
def answered(tmp_path):
    """A run with scores by two metrics, and a file of predictions."""
    rows = [row("topics", "de", 0.75, 0), row("topics", "de", 0.4, 0, metric="F1"), row("topics", "de", None, 1)]
    (tmp_path / "scores.json").write_text(json.dumps(rows))
    file = tmp_path / "predictions/topics/pretrained-seed0.de.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps({"id": i, "correct": c}) + "\n" for i, c in enumerate((1, True, 0, 1.0))))
    return read_run(tmp_path), file


def test_a_run_is_read(answered):
    run, _ = answered
    accuracy = Measure("topics", "accuracy")
    assert run.sizes == {accuracy: {"de": 4}, Measure("topics", "F1"): {"de": 4}}
    assert run.by_seed(accuracy, "pretrained", ["de"])[0] == [0.75]
    assert math.isnan(run.values[accuracy]["pretrained"]["de"][1])
    assert run.systems(accuracy) == ["pretrained"] and run.kept is None


def test_answers_are_used_only_where_they_are_those_of_the_score(answered):
    run, file = answered
    asked = ("pretrained", 0, "de")
    assert run.examples(Measure("topics", "accuracy"), *asked) == {"0": 1.0, "1": 1.0, "2": 0.0, "3": 1.0}
    assert run.examples(Measure("topics", "F1"), *asked) is None
    assert run.examples(Measure("topics", "accuracy"), "pretrained", 1, "de") is None
    file.write_text(file.read_text() + file.read_text().replace('"id": ', '"id": 1'))  # twice as many, of the same mean
    assert run.examples(Measure("topics", "accuracy"), *asked) is None


def test_a_seed_that_was_not_scored_in_all_languages_is_named(tmp_path):
    rows = [row("topics", "de", 0.5, 0), row("topics", "en", 0.5, 0), row("topics", "en", 0.5, 1)]
    (tmp_path / "scores.json").write_text(json.dumps(rows))
    with pytest.raises(UserError, match=r"scores.json has no score in topics of pretrained, seed 1, in de"):
        read_run(tmp_path).by_seed(Measure("topics", "accuracy"), "pretrained", ["de", "en"])


def test_a_language_called_mean_has_a_row_beside_the_mean(tmp_path):
    rows = [row("topics", "mean", 0.25, 0), row("topics", "de", 0.75, 0)]
    (tmp_path / "scores.json").write_text(json.dumps(rows))
    shown = {each.language: (each.mean, each.languages) for each in report([tmp_path], languages=True).scores}
    assert shown == {"mean": (0.5, 2), "de": (0.75, 1), "language mean": (0.25, 1)}
    found = intervals(read_run(tmp_path), Measure("topics", "accuracy"), "pretrained")
    assert [each.language for each in found] == [*shown]


def test_a_smoke_run_is_said_to_be_one_wherever_its_scores_are_shown(tmp_path, capsys):
    for name in ("real", "tried"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scores.json").write_text(json.dumps([row("topics", "de", 0.5, 0)]))
    (tmp_path / "tried/SMOKE.txt").touch()
    made = report([tmp_path / "real"], [tmp_path / "tried"], unequal=True)
    assert [note for note in made.notes if "a smoke run" in note] == [
        f"{tmp_path / 'tried'} is a smoke run: nothing in it means anything."
    ]
    made.show()
    made.write(tmp_path / "out")
    assert all("is a smoke run" in text for text in (capsys.readouterr().out, (tmp_path / "out/report.md").read_text()))


BAD_SCORES = {
    "no JSON": ("{", "scores.json is not JSON"),
    "no list": ("{}", "scores.json is not a list of scores"),
    "nothing": ("[]", "scores.json is not a list of scores"),
    "a value": (json.dumps([row("t", "de", "0.5", 0)]), "scores.json is not a list of scores"),
    "no n": (json.dumps([{"task": "t", "language": "de", "metric": "F1", "value": 0, "seed": 0, "system": "s"}]), "no"),
    "twice": (json.dumps([row("t", "de", 0.5, 0)] * 2), "has t in de twice for pretrained, seed 0"),
    "two sizes": (
        json.dumps([row("t", "de", 0.5, 0), row("t", "de", 0.5, None, "tfidf", n=1001)]),
        "has both 4 and 1,001 examples of t in de",
    ),
}


@pytest.mark.parametrize("what", BAD_SCORES)
def test_scores_that_cannot_be_used_are_refused(what, tmp_path):
    text, message = BAD_SCORES[what]
    (tmp_path / "scores.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_run(tmp_path)


LINES = ["{", "[]", '{"id": 0}', '{"id": 0, "correct": 1.5}', '{"id": "1", "correct": 1}', ""]


@pytest.mark.parametrize("line", LINES)
def test_answers_that_cannot_be_used_are_refused(line, answered):
    run, file = answered
    first, second, _, last = file.read_text().splitlines()
    file.write_text(f"{first}\n{second}\n{line}\n{last}")
    with pytest.raises(UserError, match=r"pretrained-seed0.de.jsonl, line 3 needs a unique"):
        run.examples(Measure("topics", "accuracy"), "pretrained", 0, "de")
