"""Steps that go wrong, and training that is asked to stop: nothing is lost, and nothing else is touched."""

import json
import math
import os
import signal
import time
from functools import partial

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from rembed_keras.adaptation import Distillation, Teacher
from rembed_keras.adaptation.terms import RDrop
from rembed_keras.data.json_files import sealed
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.errors import DivergedError, UserError
from rembed_keras.interruption import Interrupted
from rembed_keras.modeling import MaskedLM
from rembed_keras.training import replay
from tests.training.pretraining import files_of, learn, make_encoder, make_mixture
from tests.training.pretraining import rows as log

STEPS = 8
POISON = 0  # padding, of which packed rows have none


def fragile(encoder):
    """A model that fails on rows in which a certain piece stands."""
    (table,) = encoder.token_embedding.weights
    values = np.array(keras.ops.convert_to_numpy(table.value))
    values[POISON] = math.inf
    table.assign(values)
    return MaskedLM(encoder, 8)


class Poisoned(Mixture):
    """Batches of which some have a row that a `fragile` model fails on."""

    bad: tuple[int, ...] = ()

    def __getitem__(self, step):
        x, y, weights = super().__getitem__(step)
        x["token_ids"][:, 0] = 2
        if step + 1 in self.bad:
            x["token_ids"][1, 0] = POISON
        return x, y, weights


def run(folder, corpus, bad=(), head=fragile, **settings):
    """Pre-trains from the newest checkpoint in a folder."""

    def mixture(of):
        made = make_mixture(of, Poisoned)
        made.bad = bad
        return made

    usual = {"steps": STEPS, "log_every": 2, "checkpoint_every": 5}
    learn(folder, corpus, partial(make_encoder, dropout=0.2), head, mixture=mixture, **usual | settings)


@pytest.fixture
def jumping(monkeypatch):
    """A clock that is set forth and back by days whenever it is read."""
    now, reads = time.time, iter(range(10**9))
    monkeypatch.setattr("time.time", lambda: now() + 86400 * (-1) ** next(reads) * (next(reads) % 5))


class Terminator(keras.callbacks.Callback):
    """Sends SIGTERM to this very process at the end of some steps."""

    at: tuple[int, ...] = ()

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) in self.at:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.usefixtures("without_graphs")  # a step's own part of it, in a graph, is in test_distribution.py
def test_skipped_steps_stops_and_a_clock_that_jumps_change_nothing_else(corpus, tmp_path, jumping, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    settings = {"bad": (3, 6), "skip_nonfinite": 2, "callbacks": [Terminator]}
    run(whole, corpus, **settings)
    rows = log(whole)
    assert [row["step"] for row in rows] == [2, 4, 6, 8]
    assert [row["skipped_steps"] for row in rows] == [0, 1, 2, 2]
    assert [row["grad_norm"] is None for row in rows] == [False, False, True, False]
    assert all(4 < row["loss"] < 9 for row in rows)  # each interval has steps that are numbers
    rates = [json.loads(line)["tokens_per_second"] for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert all(0.1 < rate < 1e7 for rate in rates), rates

    before = signal.getsignal(signal.SIGTERM)
    for step in (3, 5):
        monkeypatch.setattr(Terminator, "at", (step,))
        with pytest.raises(
            Interrupted, match=rf"SIGTERM; pretrain is saved at step {step} of {STEPS}; the same"
        ) as caught:
            run(stopped, corpus, **settings)
        assert caught.value.code == 75
    assert signal.getsignal(signal.SIGTERM) == before
    monkeypatch.setattr(Terminator, "at", ())
    run(stopped, corpus, **settings)
    assert log(stopped) == rows
    for step in (5, STEPS):  # what a stop has saved in between is gone
        assert files_of(stopped, step) == files_of(whole, step)
    assert len(list((stopped / "checkpoints").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("without_graphs")
def test_a_step_that_diverges_is_kept_and_can_be_taken_again(corpus, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(DivergedError) as caught:
        run(folder, corpus, bad=(4,), log_every=10, checkpoint_every=3)
    kept = folder / "diverged/pretrain/step-00000003"
    line = str(caught.value)
    assert line.startswith("the gradient of pretrain is not finite at step 4: lower the learning rate")
    assert "its batch is seed 3, step 3, rows {'de': " in line and f"replay('{kept}')" in line
    assert log(folder) == []
    # what was before the step is what the checkpoint of that moment, written before, says
    saved = folder / "checkpoints/step-00000003"
    for part in ("encoder", "head", "optimizer"):
        ours, theirs = (load_file(path / f"{part}.safetensors") for path in (kept, saved))
        assert ours.keys() == theirs.keys()
        for name in ours.keys() - {"sgd/gradient_norm"}:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    states = [json.loads((path / "state.json").read_text())["state"] for path in (kept, saved)]
    assert states[0]["seeds"] and all(seed in states[1]["running"] for seed in states[0]["seeds"])
    again = make_mixture(corpus, Poisoned)
    again.bad = (4,)
    x, y, weights = again[3]
    with np.load(kept / "batch.npz") as batch:
        np.testing.assert_array_equal(batch["y"], y)
        np.testing.assert_array_equal(batch["w"], weights)
        for key, value in x.items():
            np.testing.assert_array_equal(batch[f"x/{key}"], value)
    replayed = replay(kept)
    assert not math.isfinite(replayed["gradient_norm"])
    with np.load(kept / "batch.npz") as batch:  # and without what is wrong with it, it is a step like others
        arrays = dict(batch)
    arrays["x/token_ids"][1, 0] = 2
    np.savez(kept / "batch.npz", **arrays)
    assert math.isfinite(replay(kept)["gradient_norm"])
    record = json.loads((kept / "state.json").read_text())
    rate = {"module": "keras.layers", "class_name": "Lambda", "config": {}, "registered_name": None}
    record["state"]["optimizer"]["config"]["inner_optimizer"]["config"]["learning_rate"] = rate
    (kept / "state.json").write_text(json.dumps(sealed(record)))  # by somebody who knows how
    with pytest.raises(UserError, match=r"'Lambda' of 'keras\.layers', which no model of ours"):
        replay(kept)


class Ender(keras.callbacks.Callback):
    """Ends training after the third step."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 2


@pytest.mark.usefixtures("without_graphs")
def test_nothing_is_logged_of_a_step_that_diverged_where_a_callback_ends_training(corpus, tmp_path):
    with pytest.raises(DivergedError, match=r"the gradient of pretrain is not finite at step 2: .*; its batch is"):
        run(tmp_path, corpus, bad=(2,), log_every=10, callbacks=[Ender])
    assert log(tmp_path) == []


def taught(encoder):
    fragile(encoder)
    return Distillation(encoder, Teacher(make_encoder()))


class OwnSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Says nothing of how to make it again."""

    def __call__(self, step):
        return 0.01


@keras.saving.register_keras_serializable(package="tests_of_fit")
class OwnOptimizer(keras.optimizers.SGD):
    """Says more of how to make it again than its constructor takes."""

    def __init__(self, learning_rate):
        super().__init__(learning_rate)


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"terms": [RDrop()]}, "loss terms r_drop"),
        ({"head": taught}, "a teacher"),
        ({"optimizer": lambda: keras.optimizers.SGD(OwnSchedule())}, "an optimizer or learning rate without a config"),
        ({"optimizer": lambda: keras.optimizers.SGD(lambda: 0.01)}, "an optimizer or learning rate without a config"),
        ({"optimizer": lambda: OwnOptimizer(0.01)}, "an optimizer or learning rate without a configuration that makes"),
    ],
)
def test_a_step_that_is_not_all_in_files_is_not_taken_again(corpus, tmp_path, settings, missing):
    with pytest.raises(DivergedError) as caught:
        run(tmp_path / "run", corpus, bad=(2,), steps=2, **settings)
    kept = tmp_path / "run/diverged/pretrain/step-00000001"
    assert f"; {kept} has it and what was before the step" in str(caught.value) and "replay" not in str(caught.value)
    assert (kept / "batch.npz").exists()
    with pytest.raises(UserError, match=f"{kept}: the step was taken with {missing}.*, which its files have not"):
        replay(kept)


class Undescribed(MaskedLM):
    def __init__(self, *arguments, own=None, **named):
        super().__init__(*arguments, **named)

    def get_config(self):
        return super().get_config() | {"own": {1, 2}}


def test_a_model_that_no_checkpoint_can_describe_is_refused_before_a_step_is_taken(corpus, tmp_path):
    with pytest.raises(UserError, match=r"no checkpoint can describe Undescribed: Cannot serialize object \{1, 2\}"):
        learn(tmp_path, corpus, steps=1, head=lambda encoder: Undescribed(encoder, 8))
    assert not (tmp_path / "metrics.jsonl").exists()
