"""A fine-tuning that was stopped on its way is nobody's result until it has gone on to its end.

One of a pre-training on its way is done again.
"""

import contextlib
import os
import signal
from functools import partial

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.methods import Biases
from rembed_keras.data.corpus import Corpus
from rembed_keras.errors import UserError
from rembed_keras.interruption import Interrupted
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.tasks import Classification
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.training import evaluate, finetune
from rembed_keras.training.initial.finetuned import STARTS, chosen_model, trained_in
from rembed_keras.training.initial.places import find
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir
from tests.training.pretraining import rows

pytestmark = pytest.mark.usefixtures("without_graphs")
MODELS = {
    "encoder": partial(Encoder, 900, 1, 2, 8, 16, 4, max_sequence_length=32),
    "sequence_length": 12,
    "learning_rates": (0.01,),
    "starts": ("scratch",),
    "jit_compile": False,
}


def examples(count):
    return [Labelled(str(i), ("save", "open")[i % 2], None, ("yes", "no")[i % 2]) for i in range(count)]


TASK = Classification("topics", Splits(examples(8), {"en": examples(2)}, {"en": examples(4)}))


class Stopper(keras.callbacks.Callback):
    """Sends SIGTERM to this very process at the end of a step."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            os.kill(os.getpid(), signal.SIGTERM)


class Ender(keras.callbacks.Callback):
    """Ends training after the second step, for good."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 1


def learn(workdir, *callbacks, **changes):
    finetune(
        workdir, keras.optimizers.SGD, TASK, batch_size=4, epochs=2, seeds=(0,), callbacks=callbacks, **MODELS | changes
    )


def test_a_model_that_was_stopped_is_not_scored_or_started_from_until_it_has_gone_on(workdir):
    with pytest.raises(Interrupted):
        learn(workdir, Stopper)
    trained = workdir.finetuned / "topics/scratch-lr0.01-seed0"
    said = "seed0 was stopped at step 2 of 4: "
    with pytest.raises(UserError, match=f"{said}run finetune, which goes on"):
        evaluate(workdir, TASK, **MODELS, seeds=(0,))
    with pytest.raises(UserError, match="topics has no model that was trained to its end"):
        chosen_model(trained.parent)
    with pytest.raises(UserError, match=f"{said}.*; name its checkpoint, .*step-00000002, to start from it"):
        find(trained)
    assert find(trained / "step-00000002").path == trained / "step-00000002"
    Stopper.on_train_batch_end, usual = keras.callbacks.Callback.on_train_batch_end, Stopper.on_train_batch_end
    try:
        learn(workdir, Stopper)
    finally:
        Stopper.on_train_batch_end = usual
    evaluate(workdir, TASK, **MODELS, seeds=(0,))
    assert chosen_model(trained.parent).step == find(trained).path.name.count("4") * 4 == 4


def test_a_model_whose_training_a_callback_ended_is_scored(workdir):
    learn(workdir, Ender)
    evaluate(workdir, TASK, **MODELS, seeds=(0,))
    assert chosen_model(workdir.finetuned / "topics").step == 2


def pretrain(workdir, step, until):
    """A checkpoint of a pre-training, with another encoder at each step."""
    keras.utils.set_random_seed(step)
    model = MaskedLM(MODELS["encoder"](), 6)
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    checkpoints.save(workdir.checkpoints, step, parts, {"running": [], "until": until} | restoring.state_of(model))


def test_models_of_a_pre_training_on_its_way_are_trained_again_once_it_has_gone_on(workdir, capsys):
    pretrain(workdir, 2, until=4)
    learn(workdir, starts=STARTS)
    (workdir.finetuned / "topics/chosen.json").write_text("{}")
    folders = {each.start: each.folder for each in trained_in(workdir.finetuned / "topics")}
    before = {start: (folder / "step-00000004/state.json").read_bytes() for start, folder in folders.items()}
    pretrain(workdir, 4, until=4)
    learn(workdir, starts=("scratch",))
    assert "again" not in capsys.readouterr().out
    learn(workdir, starts=STARTS)
    said = "topics has models that started from step 2 of the run's pre-training, which has gone on to 4: they are fine"
    assert capsys.readouterr().out.count(said) == 1
    assert not (workdir.finetuned / "topics/chosen.json").exists()  # of the models that were
    again = {start: (folder / "step-00000004/state.json").read_bytes() for start, folder in folders.items()}
    assert again["scratch"] == before["scratch"] and again["pretrained"] != before["pretrained"]
    assert [(row["run"].split("/")[2][:4], row["step"]) for row in rows(workdir.path)] == [("scra", 4), ("pret", 4)]
    pretrain(workdir, 6, until=6)
    said = "topics has models that started from step 4 of the run's pre-training, which has 6 by now: give the task a"
    with pytest.raises(UserError, match=f"{said} name of its own, or remove that folder to fine-tune again"):
        learn(workdir, starts=STARTS)


def test_a_later_pre_training_keeps_the_checkpoint_that_models_of_a_method_start_from(workdir):
    pretrain(workdir, 2, until=2)
    learn(workdir, starts=("pretrained",), methods=[Biases()])
    before = evaluate_one(workdir)
    for step in (4, 6, 8):
        pretrain(workdir, step, until=8)
    assert [*checkpoints.by_step(workdir.checkpoints)] == [2, 6, 8]
    assert evaluate_one(workdir) == before


def evaluate_one(workdir):
    evaluate(workdir, TASK, **MODELS | {"starts": ("pretrained",)}, seeds=(0,))
    return workdir.scores.read_text()


def test_a_step_that_was_skipped_before_a_stop_is_no_failure_after_it(pretrained, tmp_path, monkeypatch):
    """The loss of the interval that is open when training stops is not finite by then."""
    ((piece,),) = Corpus(pretrained / "corpus").tokenizer.encode_batch(["table"])

    def fragile():
        """An encoder that fails on one piece."""
        encoder = MODELS["encoder"]()
        (table,) = encoder.token_embedding.weights
        values = np.array(keras.ops.convert_to_numpy(table.value))
        values[piece] = np.inf
        table.assign(values)
        return encoder

    train = examples(16)
    train[1] = Labelled("1", "table", None, "no")  # of the first batch
    task = Classification("topics", Splits(train, {"en": examples(2)}, {"en": examples(4)}))

    def log(name):
        with contextlib.closing(Workdir(tmp_path / name)) as run:
            settings = {"batch_size": 4, "epochs": 1, "skip_nonfinite": 1, "callbacks": [Stopper]}
            finetune(
                run, keras.optimizers.SGD, task, pretrained=str(pretrained), **MODELS | settings | {"encoder": fragile}
            )
        return rows(tmp_path / name)

    with pytest.raises(Interrupted):
        log("stopped")
    monkeypatch.setattr(Stopper, "on_train_batch_end", keras.callbacks.Callback.on_train_batch_end)
    whole = log("whole")
    assert [(row["step"], row["skipped_steps"], row["loss"]) for row in whole] == [(4, 1, None)]
    assert log("stopped") == whole
