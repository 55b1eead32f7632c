"""What studies read from a run's folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rembed_keras.analysis.studies import record
from rembed_keras.analysis.studies.definition import Arm, Study, Value
from rembed_keras.analysis.studies.kept import definition_of
from rembed_keras.analysis.studies.measures import LayerScore, Logged, Score
from rembed_keras.errors import UserError

ROWS = [
    {"run": "pretrain", "step": 1, "loss": 6.0, "loss/de": 6.5, "loss/ja": 5.5},
    {"run": "pretrain", "step": 2, "loss": 5.0, "loss/de": 5.5},
    {"run": "pretrain", "step": 3, "loss": 4.0, "loss/ja": 3.5},
    {"run": "pretrain", "step": 4, "loss": None},
    {"run": "finetune/topics", "step": 9, "loss": 0.1},
]


def score(language, value, seed=0, **about):
    return {"task": "topics", "metric": "accuracy", "system": "pretrained"} | about | {
        "language": language, "value": value, "seed": seed, "n": 100 if language == "en" else 40
    }  # fmt: skip


SCORES = [
    score("en", 0.9), score("en", 0.7, seed=1), score("de", 0.5), score("de", 0.6, seed=1), score("ja", None),
    score("ja", 0.3, seed=1), score("fr", None), score("de", 0.1, system="scratch"), score("de", 0.2, task="other"),
    score("de", 0.4, metric="F1"),
]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS) + '{"run": "pretr')
    (tmp_path / "scores.json").write_text(json.dumps(SCORES))
    return tmp_path


def test_a_logged_number_is_the_last_that_is_finite(run):
    assert Logged("loss").values(run) == {"": Value(4.0, 1)}
    assert Logged("loss", rows=2).values(run) == {"": Value(4.5, 2)}
    assert Logged("loss", run="finetune/topics").values(run) == {"": Value(0.1, 1)}
    assert Logged("loss", by_language=True).values(run) == {"de": Value(5.5, 1), "ja": Value(3.5, 1)}
    assert Logged("x", key="absent").values(run) == {}


def write_log(folder, row, run="evaluation"):
    (folder / "metrics.jsonl").write_text(json.dumps({"run": run, "step": 1} | row) + "\n")


def test_a_logged_key_is_compared_whole(tmp_path):
    write_log(tmp_path, {"loss": 5.0, "loss/de": 6.0, "masked_lm/loss": 2.0, "masked_lm/loss/de": 3.0, "lossy": 9.0})
    assert Logged("x", "evaluation", "loss").values(tmp_path) == {"": Value(5.0, 1)}
    assert Logged("x", "evaluation", "masked_lm/loss").values(tmp_path) == {"": Value(2.0, 1)}
    assert Logged("x", "evaluation", "loss/de").values(tmp_path) == {"": Value(6.0, 1)}
    assert Logged("x", "evaluation", "loss", by_language=True).values(tmp_path) == {"de": Value(6.0, 1)}
    assert Logged("x", "evaluation", "masked_lm/loss", by_language=True).values(tmp_path) == {"de": Value(3.0, 1)}


def test_what_is_no_language_is_not_read_as_one(tmp_path):
    texts = {"retrieval/udhr": 0.4, "retrieval/udhr/de": 0.3, "retrieval/udhr/fr": 0.5, "retrieval/help": 0.1}
    objective = {"masked_lm/loss": 2.0, "masked_lm/accuracy": 0.5, "masked_lm/weight": 1.0}
    misnamed = {"loss": 5.0, "loss/loss": 2.0, "loss/accuracy": 0.5, "loss/weight": 1.0}  # an objective called "loss"
    write_log(tmp_path, texts | objective | misnamed)
    by_language = {
        key: Logged("x", "evaluation", key, by_language=True).values(tmp_path)
        for key in ("retrieval", "masked_lm", "loss", "retrieval/help", "retrieval/udhr")
    }
    assert by_language.pop("retrieval/udhr") == {"de": Value(0.3, 1), "fr": Value(0.5, 1)}
    assert set(map(str, by_language.values())) == {"{}"}
    assert Logged("x", "evaluation", "retrieval").values(tmp_path) == {}


def test_a_score_is_the_mean_over_the_models_of_a_run(run):
    found = Score("topics", "topics").values(run)
    assert {name: (round(each.value, 9), each.n) for name, each in found.items()} == {
        "en": (0.8, 100), "de": (0.55, 40), "ja": (0.3, 40)
    }  # fmt: skip
    assert set(Score("topics", "topics", without=["en"]).values(run)) == {"de", "ja"}
    assert set(Score("topics", "topics", languages=["en", "fr"]).values(run)) == {"en"}
    assert Score("scratch", "topics", system="scratch").values(run) == {"de": Value(0.1, 40)}
    assert Score("topics", "topics", metric="F1").values(run) == {"de": Value(0.4, 40)}


def test_a_layers_score_is_of_the_layer_from_the_top_or_from_the_bottom(tmp_path):
    rows = [score("de", layer / 10, task=f"probe/topics/layer{layer}") for layer in range(12)]
    (tmp_path / "scores.json").write_text(json.dumps([*rows, score("de", 0.9, task="probe/other/layer12")]))
    found = {layer: LayerScore("x", "topics", layer).values(tmp_path) for layer in (-1, -12, 0, 2, 12, -13)}
    assert found[-1] == {"de": Value(1.1, 40)} and found[2] == {"de": Value(0.2, 40)}
    assert found[0] == found[-12] == {"de": Value(0.0, 40)} and found[12] == found[-13] == {}
    assert LayerScore("x", "topics", without=["de"]).values(tmp_path) == {}
    (tmp_path / "scores.json").write_text(json.dumps([score("de", 0.5, task="retrieval/help/layer0")]))
    assert LayerScore("x", "retrieval/help").values(tmp_path) == {"de": Value(0.5, 40)}


def test_the_last_layer_is_that_of_the_system(tmp_path):
    depths = {"pretrained": 4, "finetuned": 2}
    rows = [
        score("de", layer / 10, task=f"probe/topics/layer{layer}", system=system)
        for system, depth in depths.items()
        for layer in range(depth)
    ]
    (tmp_path / "scores.json").write_text(json.dumps(rows))
    assert LayerScore("x", "topics").values(tmp_path) == {"de": Value(0.3, 40)}
    assert LayerScore("x", "topics", system="finetuned").values(tmp_path) == {"de": Value(0.1, 40)}
    assert LayerScore("x", "topics", layer=2, system="finetuned").values(tmp_path) == {}


@pytest.mark.parametrize("rows", [[{}], [3], [score("de", "high")], [score("de", 0.5) | {"n": None}]])
def test_scores_that_are_none_are_refused_by_the_name_of_their_file(tmp_path, rows):
    (tmp_path / "scores.json").write_text(json.dumps(rows))
    with pytest.raises(UserError, match=r"scores.json is malformed: \w+ of a row is missing or of the wrong kind"):
        Score("topics", "topics").values(tmp_path)


def test_a_run_without_files_has_no_values(tmp_path):
    assert Logged("loss").values(tmp_path) == {} and Score("topics", "topics").values(tmp_path) == {}


def test_measures_know_the_stages_that_make_them():
    stages = {"prepare": None, "pretrain": None, "retrieve": ["retrieval/help"]}
    assert Logged("loss").is_made_by(stages) and not Logged("loss", run="finetune/topics").is_made_by(stages)
    assert not Logged("loss", run="evaluation").is_made_by(stages)
    assert Logged("loss", run="evaluation").is_made_by(stages | {"evaluation": []})
    assert Score("a", "retrieval/help").is_made_by(stages) and not Score("a", "topics").is_made_by(stages)
    assert Score("a", "topics").is_made_by(stages | {"own_stage": None})
    assert not Score("a", "retrieval/help").is_made_by({"pretrain": None})
    silent = {"tabulate": None, "finetune": ["topics"], "submit": ["topics"], "trace_retrieval": ["retrieval/help"]}
    assert not Score("a", "topics").is_made_by(silent) and not Score("a", "retrieval/help").is_made_by(silent)
    assert LayerScore("a", "topics").is_made_by({"probe": ["topics"]}) and LayerScore("a", "x").is_made_by(
        {"probe": None}
    )
    assert not LayerScore("a", "x").is_made_by({"probe": ["topics"]}) and not LayerScore("a", "x").is_made_by(stages)


class Own:
    """A measure of one's own."""

    name = "own"

    def __init__(self, place):
        self.place = place


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    depth: int = 3


class Bare:
    __slots__ = ()
    name = "bare"


def test_a_measure_of_ones_own_is_kept_by_its_attributes_or_refused_in_one_line():
    assert definition_of(Own(["a", ("b",)])) == {"name": "own", "kind": "Own", "place": ["a", ["b"]]}
    assert definition_of(Slotted("s")) == {"name": "s", "kind": "Slotted", "depth": 3}
    assert definition_of(Bare()) == {"name": "bare", "kind": "Bare"}
    with pytest.raises(UserError, match=r"^measure own: \w+Path\('a'\) cannot be kept in study.json: let its place be"):
        definition_of(Own(Path("a")))


@pytest.mark.parametrize("given", [{"": 0.5}, 0.5, {"de": ("high", 1)}, {"de": (0.5, None)}, {"": (1, 2, 3, 4)}, None])
def test_values_of_ones_own_that_are_none_are_refused_in_one_line(tmp_path, given):
    own = Own("a")
    own.values = lambda run: given
    with pytest.raises(UserError, match=r"^measure own: its values of .* are .*; they must be by language, each \(v"):
        record._values(own, tmp_path)
    own.values = lambda run: {"": (np.float32(0.5), np.int64(3)), "de": Value(1, 2, 1)}
    assert record._values(own, tmp_path) == {"": Value(0.5, 3), "de": Value(1.0, 2, 1)}


@pytest.mark.parametrize(
    ("parts", "lacks"),
    [
        ({"is_made_by": len, "values": len}, "name"),
        ({"name": 5, "is_made_by": len, "values": len}, "name"),
        ({"name": "mine"}, "is_made_by, values"),
    ],
)
def test_what_is_no_measure_is_refused_before_the_first_run(parts, lacks):
    study = Study("runs", [Arm("wide", "a.gin")], (0,), [SimpleNamespace(**parts)])
    with pytest.raises(UserError, match=f"SimpleNamespace lacks {lacks}: a measure has a name"):
        study.check()
