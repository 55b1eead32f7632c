"""Pre-training in phases: rows that grow, killed in a phase and at the switch, and what it costs."""

import functools
import json
import shutil
import signal
import sys

import keras
import pytest

from rembed_keras import config
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.analysis.cost.phases import PhaseCost
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.errors import UserError
from rembed_keras.interruption import Interrupted
from rembed_keras.modeling import MaskedLM
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.training import pretrain
from rembed_keras.training.initial.finetuned import stopped_at
from rembed_keras.training.loop import checkpoints
from tests.training.pretraining import eagerly, files_of, learn, make_encoder, rows

SHAPES = {"batch_size": {0: 4, 3: 3}, "sequence_length": {0: 16, 3: 32}}


def growing(of, **changes):
    return Mixture(of, **SHAPES | changes, seed=3)


def encoder(longest=32, **changes):
    return make_encoder(max_sequence_length=longest, dropout=0.2, **changes)


def learned(folder, corpus, **settings):
    usual = {"steps": 6, "log_every": 5, "checkpoint_every": 2, "keep_checkpoints": 9, "encoder": encoder}
    learn(folder, corpus, **usual | {"mixture": growing} | settings)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    with eagerly():
        learned(folder, corpus)
    return folder


@pytest.mark.usefixtures("without_graphs")
def test_the_log_and_the_checkpoints_of_all_phases(whole, corpus, tmp_path):
    log = rows(whole, "pretrain")
    assert [row["step"] for row in log] == [3, 5, 6]
    assert [row["tokens"] for row in log] == [192, 384, 480]
    assert sorted(int(path.name[5:]) for path in (whole / "checkpoints").glob("step-*")) == [2, 4, 6]
    learned(tmp_path, corpus, steps=2, mixture=lambda of: Mixture(of, 4, 16, seed=3))
    before, ours = files_of(tmp_path, 2), files_of(whole, 2)
    for part in ("encoder", "head", "optimizer"):  # but not the running means, which its last row resets
        assert ours[f"{part}.safetensors"] == before[f"{part}.safetensors"]


def test_the_time_that_is_left_in_a_phase_has_those_that_follow(corpus, tmp_path, monkeypatch):
    """3 steps of 96 tokens are 4.5 of 64."""
    seen = []
    stage = sys.modules[pretrain.__module__]
    monkeypatch.setattr(stage, "train", lambda *_, measures, **__: seen.append(measures.later_steps))
    learned(tmp_path, corpus)
    assert seen == [4.5, 0.0]


def test_a_pretraining_after_another_has_the_flops_of_its_own_rows(corpus, tmp_path, monkeypatch):
    seen = []
    stage = sys.modules[pretrain.__module__]
    monkeypatch.setattr(stage, "train", lambda *_, measures, **__: seen.append(measures.flops_per_token))
    (tmp_path / "ledger.json").write_text(phases_of((0, 4, 2, 384), (4, 2, 2, 320)))
    for steps in (4, 6):
        learn(tmp_path, corpus, steps=steps)
    assert seen == [3.0, 5.0]


def phases_of(*phases):
    """A ledger of phases of some first step, steps, rows of 16 tokens, and training FLOPs."""
    found = [PhaseCost(first, steps, rows, 16, flops).to_json() for first, steps, rows, flops in phases]
    return json.dumps({"phases": found, "flops_per_token": {"kept": 1}})


@pytest.mark.usefixtures("without_graphs")
def test_a_pretraining_after_another_counts_what_that_one_read(corpus, tmp_path):
    (tmp_path / "ledger.json").write_text(phases_of((0, 2, 4, 1), (2, 2, 3, 1)))
    for steps, size in ((2, 4), (3, 3), (4, 3)):  # the second is killed on its way
        learn(tmp_path, corpus, steps=steps, log_every=1, mixture=lambda of, size=size: Mixture(of, size, 16, seed=3))
    counted = [(row["tokens"], row["examples"]) for row in rows(tmp_path)]
    assert counted == [(16 * examples, examples) for examples in (4, 8, 11, 14)]


@pytest.mark.usefixtures("without_graphs")
def test_a_pretraining_that_is_done_removes_no_checkpoint_of_the_next(corpus, tmp_path):
    for steps, keep in ((1, 1), (4, 3), (1, 1)):  # as when the second was stopped and the run goes on
        learn(tmp_path, corpus, steps=steps, checkpoint_every=1, keep_checkpoints=keep)
    assert [*checkpoints.by_step(tmp_path / "checkpoints")] == [2, 3, 4]


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("last", [2, 4])
def test_a_run_that_was_killed_in_a_phase_ends_in_the_same_bits(last, whole, corpus, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "killed")  # as it was then
    for folder in (tmp_path / "killed/checkpoints").glob("step-*"):
        if int(folder.name[5:]) > last:
            shutil.rmtree(folder)
    go_on(tmp_path / "killed", last, whole, corpus, capsys)


@pytest.mark.usefixtures("without_graphs")
def test_a_run_that_was_killed_at_the_switch_ends_in_the_same_bits(whole, corpus, tmp_path, monkeypatch, capsys):
    """By a checkpoint that the run removes later."""
    save = checkpoints.save

    def dying(folder, step, *arguments):
        save(folder, step, *arguments)
        if step == 3:
            raise RuntimeError("killed")

    monkeypatch.setattr(checkpoints, "save", dying)
    with pytest.raises(RuntimeError, match="killed"):
        learned(tmp_path, corpus)
    monkeypatch.undo()
    go_on(tmp_path, 3, whole, corpus, capsys)


def go_on(folder, last, whole, corpus, capsys):
    capsys.readouterr()
    learned(folder, corpus)
    assert f"resuming from {folder}/checkpoints/step-{last:08d}" in capsys.readouterr().out
    assert files_of(folder, 6) == files_of(whole, 6)
    assert rows(folder) == rows(whole)


@pytest.mark.usefixtures("without_graphs")
def test_a_run_that_is_stopped_in_a_phase_says_where_it_is_in_the_run(corpus, tmp_path):
    def stop(step, logs):
        if step == 1:
            signal.raise_signal(signal.SIGTERM)

    stopper = functools.partial(keras.callbacks.LambdaCallback, on_train_batch_end=stop)
    with pytest.raises(Interrupted, match="pretrain is saved at step 2 of 6"):
        learned(tmp_path, corpus, callbacks=[stopper])
    assert stopped_at(checkpoints.latest(tmp_path / "checkpoints")) == "step 2 of 6"
    learned(tmp_path, corpus, steps=2)
    assert stopped_at(checkpoints.latest(tmp_path / "checkpoints")) == "step 2 of 6"  # nothing was trained


@pytest.mark.usefixtures("without_graphs")
def test_a_run_that_is_done_takes_no_step(whole, corpus, capsys):
    before = files_of(whole, 6)
    learned(whole, corpus)
    out = capsys.readouterr().out
    assert "done," in out and "resuming" not in out and files_of(whole, 6) == before


@pytest.mark.usefixtures("without_graphs")
def test_what_a_schedule_says_after_the_last_step_changes_nothing(corpus, tmp_path):
    ends = {"batch_size": 4, "sequence_length": 16, "alpha": 1.0}
    goes_on = {name: {0: value, 100: later} for (name, value), later in zip(ends.items(), (3, 32, 0.0), strict=True)}
    for folder, sizes in ((tmp_path / "ends", ends), (tmp_path / "goes_on", goes_on)):
        learn(folder, corpus, steps=2, log_every=1, mixture=lambda of, sizes=sizes: Mixture(of, seed=3, **sizes))
    assert rows(tmp_path / "goes_on") == rows(tmp_path / "ends")
    assert files_of(tmp_path / "goes_on", 2) == files_of(tmp_path / "ends", 2)


@pytest.mark.usefixtures("without_graphs")
def test_a_run_ends_whose_rows_all_have_a_step_that_was_skipped(corpus, tmp_path, capsys):
    learn(tmp_path, corpus, steps=1, log_every=1)
    assert "pretrain: the loss ended at" in capsys.readouterr().out
    log = tmp_path / "metrics.jsonl"
    log.write_text(json.dumps(json.loads(log.read_text()) | {"loss": None}) + "\n")
    learn(tmp_path, corpus, steps=1, log_every=1)
    assert "done," in capsys.readouterr().out


@pytest.mark.usefixtures("without_graphs")
def test_positions_must_hold_the_longest_rows_and_replicas_share_all(corpus, tmp_path):
    with pytest.raises(UserError, match="sequence_length is 32; the model's max_sequence_length is 16"):
        learned(tmp_path / "short", corpus, encoder=lambda: encoder(16))
    learned(tmp_path / "rotary", corpus, encoder=lambda: encoder(16, block=PreNorm), steps=4)
    with pytest.raises(UserError, match="BATCH_SIZE is 3 from step 3 on, which 2 replicas and micro-batches cannot"):
        learned(tmp_path / "parts", corpus, head=lambda encoder: MaskedLM(encoder, 8, micro_batches=2))
    with pytest.raises(UserError, match="BATCH_SIZE is 4, which 3 replicas and micro-batches cannot share evenly"):
        learn(tmp_path / "one", corpus, head=lambda encoder: MaskedLM(encoder, 8, micro_batches=3), steps=1)
    assert not (tmp_path / "short/checkpoints").exists() and not (tmp_path / "parts/checkpoints").exists()


@pytest.mark.any_backend
def test_the_ledger_counts_each_phase_at_its_length():
    recipe = "recipes/options/growing_rows.gin"
    found = config.ledger_of(config.load(recipe)).to_json()
    per_token = {
        length: config.ledger_of(config.load(recipe, [f"SEQUENCE_LENGTH={length}", "BATCH_SIZE=64"])).training_flops
        for length in (64, 256)
    }
    first, second = found["phases"]
    assert first["training_flops"] == 2520 * 64 * 64 * per_token[64]["total"]
    assert second["training_flops"] == 280 * 16 * 256 * per_token[256]["total"]
    assert per_token[64]["total"] < per_token[256]["total"] == found["training_flops_per_token"]["total"]
    assert first["tokens"] + second["tokens"] == 2800 * 4096 and "phases" not in ledger(encoder()).to_json()
    masked = config.ledger_of(config.load(recipe, ["MASK_RATE={0: 0.3, 520: 0.15, 2520: 0.05}"])).phases
    of_first, of_second = (
        {
            rate: config.ledger_of(config.load(recipe, [*sizes, f"MASK_RATE={rate}"])).training_flops["total"]
            for rate in (0.3, 0.15, 0.05)
        }
        for sizes in (["SEQUENCE_LENGTH=64", "BATCH_SIZE=64"], ["SEQUENCE_LENGTH=256", "BATCH_SIZE=16"])
    )
    assert masked[0].training_flops == 64 * 64 * (520 * of_first[0.3] + 2000 * of_first[0.15])
    assert masked[1].training_flops == 280 * 16 * 256 * of_second[0.05]
    short = config.ledger_of(config.load(recipe, ["STEPS=2000", "MASK_RATE={0: 0.15, 2000: 0.3}"]))  # the first phase
    assert short.training_flops["total"] == of_first[0.15] and [phase.steps for phase in short.phases] == [2000]
    with pytest.raises(UserError, match="SEQUENCE_LENGTH"):
        config.ledger_of(config.load(recipe, ["SEQUENCE_LENGTH={0: 64, 100: 512}"]))
    with pytest.raises(UserError, match="it must give a length from step 0 on"):
        config.ledger_of(config.load(recipe, ["SEQUENCE_LENGTH={7: 64}"]))
