"""Pre-trainings one after another in one folder: each goes on from the checkpoints of the one before."""

import functools
import json
import shutil

import keras
import pytest

from rembed_keras.adaptation.terms import RDrop
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.errors import UserError
from rembed_keras.training.evaluators import HeldOutLoss
from rembed_keras.training.loop import checkpoints
from rembed_keras.training.stages.run import RunRecord, pretraining, run
from tests.training.optimizers.test_any_optimizer import Lookahead
from tests.training.pretraining import learn, make_frozen, rows


def of(size):
    return lambda corpus: Mixture(corpus, size, 16, seed=3)


@pytest.mark.usefixtures("without_graphs")
def test_a_pretraining_after_another_takes_its_own_learning_rate_and_says_its_own_loss(corpus, tmp_path, capsys):
    fallen = keras.optimizers.schedules.PolynomialDecay(0.5, 10)
    for steps, rate in ((1, 0.5), (2, 0.25), (3, fallen), (4, 0.125)):
        optimizer = functools.partial(keras.optimizers.SGD, rate)
        learn(tmp_path, corpus, make_frozen, optimizer=optimizer, steps=steps, log_every=1)
    assert [row["learning_rate"] for row in rows(tmp_path)] == [0.5, 0.25, pytest.approx(fallen(3)), 0.125]
    for step in (2, 4):  # of which nothing is left to do
        capsys.readouterr()
        learn(tmp_path, corpus, make_frozen, steps=step, optimizer=functools.partial(keras.optimizers.SGD, 0.125))
        assert f"the loss ended at {rows(tmp_path)[step - 1]['loss']:.2f} nats" in capsys.readouterr().out


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("rates", [(0.5, 0.25), (0.5, keras.optimizers.schedules.PolynomialDecay(0.5, 10))])
def test_a_run_that_was_killed_in_its_second_pretraining_finds_the_first_done(corpus, tmp_path, capsys, rates):
    for steps, rate in zip((1, 2), rates, strict=True):
        learn(tmp_path, corpus, make_frozen, optimizer=functools.partial(keras.optimizers.SGD, rate), steps=steps)
    capsys.readouterr()
    learn(tmp_path, corpus, make_frozen, optimizer=functools.partial(keras.optimizers.SGD, rates[0]), steps=1)
    assert "pretrain: done, " in capsys.readouterr().out


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"encoder": make_frozen}),
        ({"encoder": make_frozen}, {}),
        ({"terms": [RDrop(1.0)]}, {"terms": [RDrop({0: 1.0, 2: 0.5})]}),
    ],
)
def test_a_pretraining_may_draw_and_average_other_numbers_than_the_one_before(corpus, tmp_path, first, second):
    usual = {
        "encoder": functools.partial(make_frozen, dropout=0.1),
        "log_every": 1,
        "checkpoint_every": 1,
        "keep_checkpoints": 3,
    }
    learn(tmp_path, corpus, steps=1, **usual | first)
    learn(tmp_path, corpus, steps=3, **usual | second)
    whole = rows(tmp_path)
    assert [row["step"] for row in whole] == [1, 2, 3]
    for last in (1, 2):
        for step in range(last + 1, 4):
            shutil.rmtree(tmp_path / f"checkpoints/step-{step:08d}")
        learn(tmp_path, corpus, steps=3, **usual | second)  # as after a kill
        assert rows(tmp_path) == whole


class Counting(keras.callbacks.Callback):
    """Counts steps, over kills too."""

    found: list = []

    def __init__(self):
        super().__init__()
        self.count = 0

    def get_state(self):
        return self.count

    def set_state(self, state):
        self.count = state

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        self.found.append(self.count)


@pytest.mark.usefixtures("without_graphs")
def test_callbacks_of_a_pretraining_after_another_begin_for_themselves_and_go_on_after_a_kill(corpus, tmp_path):
    Counting.found.clear()
    usual = {"encoder": make_frozen, "callbacks": [Counting], "checkpoint_every": 1, "keep_checkpoints": 9}
    learn(tmp_path, corpus, steps=2, **usual)
    learn(tmp_path, corpus, steps=5, **usual)
    shutil.rmtree(tmp_path / "checkpoints/step-00000005")
    learn(tmp_path, corpus, steps=5, **usual)
    assert Counting.found == [1, 2, 1, 2, 3, 3]


@pytest.mark.usefixtures("without_graphs")
def test_a_pretraining_after_another_takes_its_own_learning_rate_for_what_its_optimizer_holds(corpus, tmp_path):
    made = []

    def make(rate):
        made.append(Lookahead(rate))
        return made[-1]

    for steps, rate in ((1, 0.5), (2, 0.25)):
        learn(tmp_path, corpus, make_frozen, optimizer=functools.partial(make, rate), steps=steps)
        assert [float(each.learning_rate) for each in (made[-1], made[-1].fast)] == [rate] * 2


@pytest.mark.usefixtures("without_graphs")
def test_what_a_pretraining_after_another_evaluates_is_checked_as_it_begins(held_out_corpus, tmp_path):
    usual = {"encoder": make_frozen, "eval_every": 2, "evaluators": [HeldOutLoss(rows=4)], "log_every": 1}
    learn(tmp_path, held_out_corpus, steps=1, **usual)
    with pytest.raises(UserError, match="keep_best is 'los', which no evaluator brings; did you mean loss"):
        learn(tmp_path, held_out_corpus, steps=3, keep_best="los", **usual)
    learn(tmp_path, held_out_corpus, steps=3, keep_best="loss", **usual)
    logged = [(row["run"], row["step"]) for row in rows(tmp_path)]
    assert [step for run, step in logged if run == "evaluation"] == [0, 1, 2, 3]
    assert [step for run, step in logged if run == "pretrain"] == [1, 2, 3]


@pytest.mark.usefixtures("without_graphs")
def test_a_pretraining_after_one_that_a_callback_ended_counts_what_that_one_read(corpus, tmp_path):
    end = {"on_train_batch_end": lambda step, logs: setattr(stopper.model, "stop_training", True)}
    stopper = keras.callbacks.LambdaCallback(**end)
    settings = {"encoder": make_frozen, "log_every": 1, "checkpoint_every": 1, "keep_checkpoints": 9}
    learn(tmp_path, corpus, steps=5, mixture=of(4), callbacks=[lambda: stopper], **settings)  # at its first step
    stopper.on_train_batch_end = lambda step, logs: None
    growing = functools.partial(Mixture, batch_size={0: 3, 3: 2}, sequence_length=16, seed=3)
    learn(tmp_path, corpus, steps=7, mixture=growing, callbacks=[lambda: stopper], **settings)
    counted = [(row["step"], row["tokens"], row["examples"]) for row in rows(tmp_path)]
    assert counted == [(step, 16 * examples, examples) for step, examples in enumerate((4, 7, 10, 12, 14, 16, 18), 1)]
    for last in (5, 2):  # and goes on so after a kill
        for step, path in checkpoints.by_step(tmp_path / "checkpoints").items():
            if step > last:
                shutil.rmtree(path)
        learn(tmp_path, corpus, steps=7, mixture=growing, callbacks=[lambda: stopper], **settings)
    assert [(row["step"], row["tokens"], row["examples"]) for row in rows(tmp_path)] == counted


@pytest.mark.usefixtures("without_graphs")
def test_the_best_checkpoint_of_a_pretraining_after_one_that_kept_none_is_there(held_out_corpus, tmp_path):
    usual = {"checkpoint_every": 1, "keep_checkpoints": 1, "eval_every": 1, "evaluators": [HeldOutLoss(rows=4)]}
    learn(tmp_path, held_out_corpus, steps=2, **usual)
    log = tmp_path / "metrics.jsonl"
    changed = [json.loads(line) for line in log.read_text().splitlines()]
    changed = [row | {"loss": 0.0} if (row["run"], row["step"]) == ("evaluation", 1) else row for row in changed]
    log.write_text("".join(json.dumps(row) + "\n" for row in changed))  # its best, of which no checkpoint stays
    learn(tmp_path, held_out_corpus, steps=4, keep_best="loss", **usual)
    assert checkpoints.best(tmp_path / "checkpoints").step > 1


@pytest.mark.any_backend
def test_a_stage_between_two_pretrainings_is_done_by_the_model_of_the_first_alone(tmp_path, capsys):
    seen, killed = [], [True]

    def prepare(workdir):
        seen.append("prepare")

    @pretraining
    def first(workdir):
        seen.append("first")
        (workdir.checkpoints / "step-00000001").mkdir(parents=True, exist_ok=True)

    def between(workdir):
        seen.append("between")

    @pretraining
    def second(workdir):
        seen.append("second")
        if killed.pop(0):
            raise RuntimeError("killed")

    def go_on(chosen=None):
        seen.clear()
        run([prepare, first, between, second, after], str(tmp_path), RunRecord("", lambda: ""), chosen=chosen)

    def after(workdir):
        seen.append("after")

    with pytest.raises(RuntimeError, match="killed"):
        go_on()
    assert seen == ["prepare", "first", "between", "second"]
    killed[:] = [False, False, False]
    capsys.readouterr()
    go_on(chosen=[0, 1, 2, 3])
    assert seen == ["prepare", "first", "second"]
    assert "between, stage 3 of 4: done, before the next pre-training began" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "checkpoints")  # from scratch
    with pytest.raises(UserError, match="second: the pre-training that it goes on from is not done: run that first"):
        go_on(chosen=[3])
    go_on(chosen=[1, 3])
    go_on()
    assert seen == ["prepare", "first", "between", "second", "after"]
    assert "between, stage 3 of 5: a later pre-training has begun" in capsys.readouterr().out
