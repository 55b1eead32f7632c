"""The user's callbacks: their place among ours, and their state after a kill."""

import itertools
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from own_parts.training.callback import StopAtPlateau
from rembed_keras import config
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.errors import UserError
from rembed_keras.training import pretrain
from rembed_keras.training.distributed.processes import Processes
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.loop import checkpoints
from tests.training.pretraining import learn, make_frozen, rows

pytestmark = pytest.mark.usefixtures("without_graphs")


class Counter(keras.callbacks.Callback):
    """Counts steps, and notes what stands in the log when it is called."""

    seen: list = []

    def __init__(self):
        super().__init__()
        self.steps = 0

    def on_train_begin(self, logs=None):
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        Counter.seen.append((self.steps, sorted(path.name for path in self.folder.glob("checkpoints/step-*"))))

    def get_state(self):
        return {"steps": self.steps}

    def set_state(self, state):
        self.steps = state["steps"]


class Ender(keras.callbacks.Callback):
    """Ends training at the fifth step of the process."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 4


class PowerError(RuntimeError):
    """A kill, as far as files know."""


class Killer(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            raise PowerError


def run(folder, corpus, *callbacks, steps=8):
    """Pre-trains from the newest checkpoint in a folder, with callbacks; gives the states of the last checkpoint."""
    Counter.folder = folder
    learn(folder, corpus, make_frozen, callbacks=callbacks, steps=steps, log_every=4, checkpoint_every=3)
    return checkpoints.latest(folder / "checkpoints").state


@pytest.fixture(autouse=True)
def forgotten():
    Counter.seen.clear()
    Witness.counts.clear()


def test_a_callback_runs_before_the_log_and_the_checkpoint_and_survives_a_kill(tmp_path, corpus):
    with pytest.raises(PowerError):
        run(tmp_path / "run", corpus, Counter, Killer)
    assert [steps for steps, _ in Counter.seen] == [1, 2, 3, 4, 5]
    assert Counter.seen[2] == (3, []) and Counter.seen[3][1] == ["step-00000003"]  # saved after it, counting it
    Counter.seen.clear()
    Killer.on_train_batch_end, usual = keras.callbacks.Callback.on_train_batch_end, Killer.on_train_batch_end
    try:
        state = run(tmp_path / "run", corpus, Counter, Killer)
    finally:
        Killer.on_train_batch_end = usual
    assert [steps for steps, _ in Counter.seen] == [4, 5, 6, 7, 8]
    assert state["callbacks"] == [{"class": "Counter", "state": {"steps": 8}}, {"class": "Killer", "state": None}]


def test_where_a_callback_ends_training_the_row_and_the_checkpoint_are_the_last(tmp_path, corpus, capsys):
    state = run(tmp_path / "run", corpus, Ender)
    assert state["has_ended"] and [row["step"] for row in rows(tmp_path / "run")] == [4, 5]
    assert max(path.name for path in (tmp_path / "run/checkpoints").iterdir()) == "step-00000005"
    capsys.readouterr()
    run(tmp_path / "run", corpus, Ender)  # as when a later stage was killed
    assert "pretrain: done," in capsys.readouterr().out
    assert [row["step"] for row in rows(tmp_path / "run")] == [4, 5]


def test_where_a_callback_ended_training_another_to_more_steps_goes_on(tmp_path, corpus, capsys):
    """As of two stages, the first of which finds itself done when the second is resumed."""
    for steps, ends in ((8, [5]), (12, [5, 8, 10]), (8, [5, 8, 10])):
        run(tmp_path / "run", corpus, Ender, steps=steps)
        assert [row["step"] for row in rows(tmp_path / "run")] == [4, *ends]
    assert "pretrain: done," in capsys.readouterr().out.splitlines()[-2]


def test_where_a_callback_of_another_process_ends_training_it_ends_here_too(tmp_path, corpus, monkeypatch):
    """The first of two, whose second one says the same, but that its callback ends training at the third step."""
    said, asked = {}, itertools.count(1)

    def get(key):
        own = said[f"{key.rpartition('/')[0]}/0"]
        return "true" if own == "false" and next(asked) == 6 else own  # of each of two once a step

    placement = replace(place("one_device", 4, jit_compile=False), processes=Processes(0, 2, said.__setitem__, get))
    monkeypatch.setattr(sys.modules[pretrain.__module__], "place", lambda *_: placement)
    assert run(tmp_path / "run", corpus, Counter)["has_ended"]
    assert [row["step"] for row in rows(tmp_path / "run")] == [3]


class Witness(keras.callbacks.Callback):
    """Counts steps and has no state that a checkpoint could keep."""

    counts: list = []

    def __init__(self):
        super().__init__()
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        Witness.counts.append(self.steps)


class Unsayable(keras.callbacks.Callback):
    def get_state(self):
        return {"of": object()}


class Numbered(keras.callbacks.Callback):
    def get_state(self):
        return {"seen": [{3: "a third"}]}


class Patient(keras.callbacks.EarlyStopping):
    """Keras's, which would look at the loss once, at the end."""


class Hasty(keras.callbacks.EarlyStopping):
    """Keras's, called in steps: it is a callback like others."""

    def __init__(self):
        super().__init__(monitor="loss", min_delta=100.0)

    def on_train_batch_end(self, batch, logs=None):
        self.on_epoch_end(batch, logs)


MISTAKES = {
    "of epochs": (Patient, "Patient acts between epochs, of which a training has one"),
    "an object": (Counter(), "bind its class without ()"),
    "no callback": (dict, "makes no keras.callbacks.Callback"),
    "a state": (Unsayable, "the state of Unsayable is nothing that JSON can say"),
    "keys": (Numbered, "the state of Numbered is nothing that JSON can say: a key of a dictionary is no text"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_named(what, tmp_path, corpus):
    callback, message = MISTAKES[what]
    with pytest.raises(UserError) as caught:
        run(tmp_path / "run", corpus, callback, Witness)
    assert message in str(caught.value) and not Witness.counts  # before the first step


class Scalars(keras.callbacks.Callback):
    """A state that begins as infinity, and then scalars of NumPy's."""

    best = np.float32(np.inf)

    def on_train_batch_end(self, batch, logs=None):
        self.best, self.steps = np.float32(0.5), np.int64(batch + 1)

    def get_state(self):
        return {"best": self.best, "is_last": np.bool_(False), "steps": getattr(self, "steps", 0)}


def test_a_state_may_hold_scalars_of_numpy(tmp_path, corpus):
    state = run(tmp_path / "run", corpus, Scalars, steps=3)
    assert state["callbacks"] == [{"class": "Scalars", "state": {"best": 0.5, "is_last": False, "steps": 3}}]


def test_a_callback_between_epochs_that_is_called_in_steps_is_one(tmp_path, corpus):
    assert run(tmp_path / "run", corpus, Hasty)["has_ended"]
    assert rows(tmp_path / "run")[-1]["step"] == 2


def test_a_callback_stays_the_same_where_batches_change_size(tmp_path, corpus):
    mixture = partial(Mixture, batch_size={0: 4, 3: 8}, sequence_length=16, seed=3)
    settings = {"mixture": mixture, "callbacks": [Witness], "steps": 5, "log_every": 4, "checkpoint_every": 3}
    learn(tmp_path / "run", corpus, make_frozen, **settings)
    assert Witness.counts == [1, 2, 3, 4, 5]


def test_a_checkpoint_of_other_callbacks_is_refused(tmp_path, corpus):
    run(tmp_path / "run", corpus, Counter, steps=3)
    with pytest.raises(UserError, match=r"saved with callbacks \['Counter'\] and the recipe lists \[\]"):
        run(tmp_path / "run", corpus, steps=4)


def load(tmp_path, value):
    recipe = tmp_path / "recipe.gin"
    stages = "".join(f"training.{stage}.callbacks = [{value}]\n" for stage in ("pretrain", "finetune"))
    imports = ["from __gin__ import dynamic_registration", "from keras import callbacks"]
    imports += ["from rembed_keras import training"]
    recipe.write_text("\n".join([*imports, 'include "recipes/quickstart.gin"', stages]))
    return config.load(str(recipe))


def test_recipes_may_name_what_keras_has(tmp_path):
    assert load(tmp_path, "@callbacks.TerminateOnNaN")
    with pytest.raises(UserError, match=r"bind @callbacks\.TerminateOnNaN without \(\)"):
        load(tmp_path, "@callbacks.TerminateOnNaN()")


@pytest.mark.parametrize("name", ["EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau"])
def test_recipes_may_not_name_what_acts_between_epochs(name, tmp_path):
    with pytest.raises(UserError, match=rf"keras\.callbacks\.{name} acts between epochs.* set model\.stop_training"):
        load(tmp_path, f"@callbacks.{name}")


@pytest.mark.parametrize("name", ["ModelCheckpoint", "BackupAndRestore", "CSVLogger", "RemoteMonitor", "TensorBoard"])
def test_recipes_may_not_name_what_reads_or_writes(name, tmp_path):
    with pytest.raises(UserError, match=rf"may not name keras\.callbacks\.{name}"):
        load(tmp_path, f"@callbacks.{name}")


def test_the_examples_callback_leaves_it_to_others_to_end_a_training_too():
    callback, model = StopAtPlateau(patience=2), SimpleNamespace(stop_training=False)
    callback.set_model(model)
    ended = []
    for loss in (2.0, 3.0, 3.0):
        callback.on_train_batch_end(0, {"loss": loss})
        ended.append(model.stop_training)
    assert ended == [False, False, True]
    callback.on_train_batch_end(0, {"loss": 1.0})
    assert model.stop_training
