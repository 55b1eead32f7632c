"""Evaluation during pre-training: its numbers are right, and training is as if there were none."""

import contextlib
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from rembed_keras import config
from rembed_keras.errors import UserError
from rembed_keras.modeling import MaskedLM, ReplacedTokenDetection, Sum
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.tasks.retrieval import parallel_text
from rembed_keras.tasks.retrieval.parallel_text import ParallelText
from rembed_keras.training import trace_retrieval
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.evaluators import BitextRetrieval, HeldOutLoss
from rembed_keras.training.evaluators.evaluator import EvaluationData
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir
from tests.training.pretraining import eagerly, learn, make_encoder, make_head, make_mixture, rows

FEW = {"steps": 3, "log_every": 2, "checkpoint_every": 2}
BACKEND = keras.config.backend()
ENCODER = partial(make_encoder, dropout=0.2)
DETECTION = {"output_embedding_dim": 8, "generator_layers": 1, "generator_scale": 0.5}


def make_sum(encoder):
    parts = [lambda each: MaskedLM(each, 8), lambda each: ReplacedTokenDetection(each, **DETECTION)]
    return Sum(encoder, parts, [1.0, {0: 0.1, 2: 1.0}])


def make_gdes(encoder):
    return ReplacedTokenDetection(encoder, sharing="gdes", **DETECTION)


def run(folder, corpus, head=make_head, **settings):
    usual = {"encoder": ENCODER, "steps": 7, "log_every": 2, "checkpoint_every": 3}
    learn(folder, corpus, head=head, **usual | settings)


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Prescribed:
    """Brings a value that is prescribed for one evaluation after another."""

    values: dict[int, float] = {}

    def evaluate(self, model, data):
        return {"value": self.values[int(model.optimizer.iterations)]}


class PowerError(RuntimeError):
    """A kill, as far as files know."""


class Killer(keras.callbacks.Callback):
    """Ends the process, as it were, at a step, before anything of the step is logged."""

    at: tuple[int, ...] = ()

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations) if BACKEND == "tensorflow" else None
        if step is None:
            self.model.jax_state_sync()
            step = int(self.model.optimizer.iterations)
        if step in self.at:
            raise PowerError


@pytest.fixture
def texts(text_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel") / "lines"
    folder.mkdir()
    for language in ("de", "en"):
        lines = (text_dir / f"{language}.txt").read_text(encoding="utf-8").splitlines()[:20]
        (folder / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [ParallelText(folder)]


@pytest.mark.slow
@pytest.mark.parametrize("head", [make_gdes, make_sum])
def test_training_is_as_if_nothing_were_evaluated(head, held_out_corpus, texts, tmp_path, request):
    if head is make_gdes:  # the other is in a graph
        request.getfixturevalue("without_graphs")
    run(tmp_path / "without", held_out_corpus, head, **FEW)
    evaluators = [HeldOutLoss(rows=10), BitextRetrieval(texts, 16)]
    run(tmp_path / "with", held_out_corpus, head, eval_every=2, evaluators=evaluators, **FEW)
    assert rows(tmp_path / "with", "pretrain") == rows(tmp_path / "without")
    ours, theirs = (files_of(tmp_path / name / "checkpoints") for name in ("with", "without"))
    assert ours == theirs
    found = rows(tmp_path / "with", "evaluation")
    assert [row["step"] for row in found] == [0, 2, 3]
    assert found[0]["loss"] > found[-1]["loss"]
    assert len({row["loss"] for row in found}) == len(found)  # each of the weights of its own step
    last = rows(tmp_path / "with", "pretrain")[-1]
    assert found[-1].keys() >= {key for key in last if key.startswith("loss/")} | {"retrieval/lines/de"}
    assert 0 <= found[-1]["retrieval/lines"] == found[-1]["retrieval/lines/de"] <= 1


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "tensorflow", reason="strategies are TensorFlow's")
@pytest.mark.usefixtures("mirrored", "without_graphs")  # replicas evaluate in graphs in distributed/
def test_two_replicas_train_as_if_nothing_were_evaluated_and_evaluate_as_one(held_out_corpus, texts, tmp_path):
    evaluators = [HeldOutLoss(rows=10), BitextRetrieval(texts, 16)]
    fewer = FEW | {"steps": 2, "encoder": partial(ENCODER, block=PreNorm), "strategy": "mirrored"}  # as each takes long
    run(tmp_path / "without", held_out_corpus, **fewer)
    run(tmp_path / "with", held_out_corpus, eval_every=1, evaluators=evaluators, **fewer)
    assert rows(tmp_path / "with", "pretrain") == rows(tmp_path / "without")
    assert files_of(tmp_path / "with/checkpoints") == files_of(tmp_path / "without/checkpoints")
    data = EvaluationData(make_mixture(held_out_corpus), place("one_device", 4))
    model = restoring.restore(checkpoints.latest(tmp_path / "with/checkpoints"))
    model.track_groups(held_out_corpus.languages)
    model.compile()
    expected = {name: value for each in evaluators for name, value in each.evaluate(model, data).items()}
    found = rows(tmp_path / "with", "evaluation")[-1]
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)


KEEPING = {
    "eval_every": 5,
    "evaluators": [HeldOutLoss(rows=10)],
    "callbacks": [Killer],
    "keep_best": "accuracy",
    "best_is": "highest",
}


@pytest.mark.slow
@pytest.mark.usefixtures("without_graphs")
def test_a_killed_run_ends_in_the_same_rows_and_checkpoints(held_out_corpus, tmp_path, monkeypatch):
    """Killed before its first checkpoint, between that and an evaluation, and between this and the next checkpoint."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(whole, held_out_corpus, **KEEPING)
    for step in (2, 5, 6):
        monkeypatch.setattr(Killer, "at", (step,))
        with pytest.raises(PowerError):
            run(killed, held_out_corpus, **KEEPING)
    monkeypatch.setattr(Killer, "at", ())
    run(killed, held_out_corpus, **KEEPING)
    for of in ("pretrain", "evaluation"):
        assert rows(killed, of) == rows(whole, of)
    assert files_of(killed / "checkpoints") == files_of(whole / "checkpoints")
    assert len(list((killed / "tensorboard/evaluation").iterdir())) == 1


def kept(folder):
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*"))


@pytest.mark.usefixtures("without_graphs")
def test_the_best_checkpoint_stays(held_out_corpus, tmp_path, monkeypatch):
    values = dict(enumerate((-9.0, 5.0, 3.0, 4.0, 3.0, float("nan"), 7.0)))
    monkeypatch.setattr(Prescribed, "values", values)
    usual = {
        "checkpoint_every": 5,
        "eval_every": 1,
        "evaluators": [Prescribed()],
        "keep_best": "value",
        "keep_checkpoints": 1,
    }
    for best_is, step, last in (("lowest", 2, 6), ("highest", 1, 1)):
        folder = tmp_path / best_is
        learn(folder, held_out_corpus, best_is=best_is, steps=last, **usual)
        assert kept(folder) == sorted({step, last})
        assert json.loads((folder / "checkpoints/best.json").read_text())["step"] == step
        assert checkpoints.best(folder / "checkpoints").step == step
    assert rows(tmp_path / "lowest", "evaluation")[5]["value"] is None
    learn(tmp_path / "at_2", held_out_corpus, steps=2)
    ours = files_of(tmp_path / "lowest/checkpoints/step-00000002")
    theirs = files_of(tmp_path / "at_2/checkpoints/step-00000002")
    assert {name: ours[name] for name in ours if name.suffix == ".safetensors"} == {
        name: theirs[name] for name in theirs if name.suffix == ".safetensors"
    }
    learn(tmp_path / "lowest", held_out_corpus, best_is="lowest", steps=6, **usual)  # as when a later stage was killed
    assert kept(tmp_path / "lowest") == [2, 6]
    (tmp_path / "lowest/checkpoints/step-00000002/state.json").write_text("{}")
    with pytest.raises(UserError, match=r"names step 2, of which .* has no checkpoint that is whole"):
        checkpoints.best(tmp_path / "lowest/checkpoints")


@pytest.mark.usefixtures("without_graphs")
def test_a_best_checkpoint_that_is_damaged_is_the_best_no_more(held_out_corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Prescribed, "values", dict(enumerate((9.0, 1.0, 5.0, 3.0))))
    usual = {"eval_every": 1, "evaluators": [Prescribed()], "keep_best": "value"}
    learn(tmp_path, held_out_corpus, steps=2, **usual)
    (tmp_path / "checkpoints/step-00000001/head.safetensors").write_bytes(b"")
    learn(tmp_path, held_out_corpus, steps=3, **usual)
    assert "step-00000001 is passed over: head.safetensors is damaged" in capsys.readouterr().out
    assert checkpoints.best(tmp_path / "checkpoints").step == 3


@pytest.mark.usefixtures("without_graphs")
def test_retrieval_is_that_of_the_checkpoint(held_out_corpus, texts, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "corpus").symlink_to(held_out_corpus.path)
    run(folder, held_out_corpus, steps=3, eval_every=3, evaluators=[BitextRetrieval(texts, 16)], seed=0)
    workdir = Workdir(folder)
    trace_retrieval(workdir, ENCODER, texts, 16)
    workdir.close()
    traced = {point["step"]: point["P@1"] for point in json.loads((folder / "retrieval.json").read_text())}
    found = {row["step"]: row["retrieval/lines"] for row in rows(folder, "evaluation")}
    assert found == pytest.approx({step: traced[step] for step in (0, 3)})


def test_a_trace_of_retrieval_knows_phases_and_other_starts(held_out_corpus, tmp_path, capsys, monkeypatch):
    """After a step of 20 tokens come 2 of 150, in the languages that were read, from other weights than new ones."""
    texts = []
    for name, languages in (("known", ("de", "en", "xx")), ("unknown", ("en", "xx"))):
        (tmp_path / name).mkdir()
        for language in languages:
            (tmp_path / f"{name}/{language}.txt").write_text("save\nopen\n")
        texts.append(ParallelText(tmp_path / name))
    folder = tmp_path / "run"
    with eagerly():
        run(folder, held_out_corpus, **FEW)
    (folder / "corpus").symlink_to(held_out_corpus.path)
    log = [{"run": "pretrain", "step": step, "tokens": tokens} for step, tokens in ((1, 20), (3, 320))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
    (folder / "initial_weights.json").write_text("{}")
    with contextlib.closing(Workdir(folder)) as workdir:
        with monkeypatch.context() as half_precision:
            half_precision.setattr(parallel_text, "predict", lambda *_: np.array([[1.0, 0.0], [0.0, np.nan]] * 3))
            with pytest.raises(UserError, match="the encoder of step 2's outputs for known are not finite"):
                trace_retrieval(workdir, ENCODER, texts, 16)
        assert not (folder / "retrieval.json").exists()
        trace_retrieval(workdir, ENCODER, texts, 16)
    points = json.loads((folder / "retrieval.json").read_text())
    assert [(each["text"], each["step"], each["tokens"]) for each in points] == [
        ("known", 2, 170),
        ("known", 3, 320),
    ]
    assert "unknown has no language that was read, and is left out" in capsys.readouterr().out


class Unfinished:
    def evaluate(self, model, data):
        return {"value": None}


MISTAKES = {
    "nothing": ({"evaluators": []}, "EVAL_EVERY is 4 and training.pretrain.evaluators lists nothing"),
    "a class": ({"evaluators": [HeldOutLoss]}, r"which has no evaluate\(model, data\): bind it with \(\)"),
    "another thing": ({"evaluators": [{}]}, "has no evaluate"),
    "no interval": ({"eval_every": None, "keep_best": "loss"}, "keep_best is 'loss' and EVAL_EVERY is None"),
    "no steps": ({"eval_every": 0}, "EVAL_EVERY is 0; it must be a positive whole number"),
    "another scalar": ({"keep_best": "los"}, "keep_best is 'los', which no evaluator brings; did you mean loss"),
    "nothing yet": ({"evaluators": [Unfinished()]}, r"Unfinished.evaluate gives \{'value': None\}; it must be numbers"),
    "no name": ({"evaluators": [SimpleNamespace(evaluate=lambda *_: {7: 1.0})]}, r"evaluate gives \{7: 1.0\}; it must"),
    "twice": ({"evaluators": [HeldOutLoss(), HeldOutLoss()]}, "evaluators bring 'accuracy' more than once"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_found_before_the_first_step(what, held_out_corpus, tmp_path):
    settings, message = MISTAKES[what]
    with pytest.raises(UserError, match=message):
        run(tmp_path, held_out_corpus, **{"eval_every": 4, "evaluators": [HeldOutLoss(rows=4)]} | settings)
    assert not (tmp_path / "checkpoints").exists() and (not (tmp_path / "metrics.jsonl").exists() or not rows(tmp_path))


def test_a_corpus_without_held_out_rows_is_refused(corpus, tmp_path):
    with pytest.raises(UserError, match=r"EVAL_EVERY is 4 and corpus .* has no row .* of held-out text: set HELD_OUT"):
        run(tmp_path, corpus, eval_every=4, evaluators=[HeldOutLoss()])


def load(*bindings):
    return config.load(str(Path(__file__).parents[3] / "recipes/quickstart.gin"), bindings)


def test_a_recipe_that_holds_nothing_out_is_refused_when_it_is_read():
    message = "EVAL_EVERY is 4 and evaluators.HeldOutLoss reads held-out text, of which HELD_OUT 0 leaves none"
    with pytest.raises(UserError, match=message):
        config.ledger_of(load("EVAL_EVERY=4"))
    with pytest.raises(UserError, match=message):
        config.ledger_of(load("EVAL_EVERY=4", "HELD_OUT=0"))
    config.ledger_of(load("EVAL_EVERY=4", "HELD_OUT=0.01"))
    with pytest.raises(UserError, match=r"EVAL_EVERY is 4 and training.pretrain.evaluators lists nothing to evaluate"):
        config.ledger_of(load("EVAL_EVERY=4", "training.pretrain.evaluators=[]"))
    for knob, value in (("EVAL_EVERY", "0"), ("HELD_OUT", "2"), ("training.pretrain.best_is", "low")):
        with pytest.raises(UserError, match=rf"{knob} is '?{value}'?; it must be"):
            load(f"{knob}={value}")


def test_rows_that_an_evaluator_cannot_read_are_refused_when_a_recipe_is_read():
    long = "training.pretrain.evaluators=[@help/evaluators.BitextRetrieval()]"
    texts = "help/evaluators.BitextRetrieval.texts=[@help/tasks.ParallelText()]"
    rows = ["help/evaluators.BitextRetrieval.sequence_length=9999"]
    with pytest.raises(UserError, match=r"evaluators.BitextRetrieval: .*9999"):
        config.ledger_of(load("EVAL_EVERY=4", long, texts, *rows, "modeling.Encoder.block=bert"))
    config.ledger_of(load("EVAL_EVERY=4", long, texts, *rows))  # whose encoder has no table of positions
