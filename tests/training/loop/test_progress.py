"""What the progress line says of the time that is left, and of which stage and training it is."""

import contextlib
import io
import json
import math
import re
from types import SimpleNamespace

import pytest

from rembed_keras.data.prepare.jobs import Workers
from rembed_keras.training.loop import progress
from rembed_keras.training.loop.callbacks import Measures, StepClock
from rembed_keras.training.loop.workdir import Workdir

MINUTE = SimpleNamespace(seconds=lambda row: 60.0)


@pytest.fixture
def now(monkeypatch):
    """A clock that tests set."""
    time = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: time[0])
    return time


def train(now, trainings, capsys, stage="", later=None, first=0):
    """Trains 4 steps of 2 s after a compilation of 10 s, and gives the lines of steps 2 and 4."""
    if trainings is not None:
        trainings.number += 1
    clock = StepClock(first, first + 4, tokens_per_step=8)
    line = progress.ProgressLine(clock, "finetune/x", stage, trainings, later)
    line.on_train_begin()
    now[0] += 10
    for step in range(1, 5):
        now[0] += 2 * (step > 1)
        clock.on_train_batch_end(step - 1)
        if step % 2 == 0:
            line.show({"run": "x", "step": step, "loss": 1.0, "tokens_per_second": clock.tokens_per_second()})
    line.on_train_end()
    return [each.partition(" tokens/s · ")[2] for each in capsys.readouterr().out.splitlines()]


def test_what_is_left_of_several_trainings_is_said_once_one_has_ended(now, capsys):
    trainings = progress.Trainings(3)
    assert train(now, trainings, capsys) == ["0:04 left · model 1 of 3", "0:00 left · model 1 of 3"]
    assert train(now, trainings, capsys, "stage 4 of 5") == [
        "0:04 left · model 2 of 3, about 0:20 left for all · stage 4 of 5",  # the first took 16 s
        "0:00 left · model 2 of 3, about 0:16 left for all · stage 4 of 5",
    ]


@pytest.mark.parametrize(("first", "seconds"), [(0, 16.0), (4, 32.0), (5, 90.0)])
def test_a_training_that_went_on_says_how_long_a_whole_one_takes(first, seconds, now, capsys):
    """The last 4 of 8 steps took 16 s; of fewer, compilation says too little of the rest."""
    trainings = progress.Trainings(3, 90.0)
    train(now, trainings, capsys, first=first)
    assert trainings.seconds == seconds


@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_has_all_that_a_file_has(columns, now, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    title = "finetune/topics[de]/pretrained-lr0.001-seed0"
    line = progress.ProgressLine(StepClock(0, 160, 8.0), title, "stage 4 of 9", progress.Trainings(4), MINUTE)
    line.trainings.number = 1
    line.on_train_begin()
    line.clock.on_train_batch_end(0)
    line.note("held-out loss 1.234 · best 1.200 at 80")
    line.show({"run": "x", "step": 1, "loss": 1.0, "tokens_per_second": 25_000.0})
    line.on_train_end()
    shown = "".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).split())
    said = (
        "loss 1.000 · 25,000 tokens/s · ? left · model 1 of 4 · stage 4 of 9 · held-out loss 1.234 · best 1.200 at 80"
    )
    assert said.replace(" ", "") in shown
    assert columns < 80 or title in shown


def test_before_one_has_ended_all_are_forecast_at_the_speed_of_pre_training(now, capsys, tmp_path):
    with contextlib.closing(Workdir(tmp_path, sinks=())) as workdir:
        forecast = progress.Forecast(workdir, 200)
        assert forecast.seconds() is None and progress.Trainings(3).announced() == ""
        (tmp_path / "ledger.json").write_text('{"flops_per_token": {"kept": 50, "total": 70}}')
        for step, speed in enumerate((None, 10.0, 1000.0, 3000.0)):
            workdir.metrics.append({"run": "pretrain", "step": step, "training_flops_per_second": speed})
        workdir.metrics.append({"run": "finetune/x", "step": 1, "training_flops_per_second": 1e9})
        seconds = forecast.seconds()
        assert seconds == 30  # 200 tokens, 150 FLOPs each, at 1,000 a second
        (tmp_path / "metrics.jsonl").unlink()  # it was read once
        rows = [{"run": run, "training_flops_per_second": 9000.0} for run in ("finetune/x", "pretrain", "pretrain")]
        assert [forecast.seconds(row) for row in rows] == [30, 15, 10]
        assert progress.Forecast(workdir, 0.0).seconds() is None
    trainings = progress.Trainings(3, seconds)
    assert trainings.announced() == "3 models, about 1:30 at the speed of pre-training, without compilation"
    assert train(now, trainings, capsys)[0] == "0:04 left · model 1 of 3, about 1:04 left for all"
    assert train(now, trainings, capsys)[0] == "0:04 left · model 2 of 3, about 0:20 left for all"  # as the first took


def test_a_training_alone_says_its_own_time_and_stage(now, capsys):
    assert train(now, progress.Trainings(1), capsys, "stage 2 of 5") == [
        "0:04 left · stage 2 of 5", "0:00 left · stage 2 of 5"]  # fmt: skip
    assert progress.Trainings(2).said(math.nan) == "model 0 of 2"


def test_what_later_stages_train_is_said_with_what_is_left(now, capsys):
    """16 s of the one that goes on are past at its end; the other two take as long, and later stages a minute."""
    alone = train(now, None, capsys, "stage 2 of 5", later=MINUTE)
    assert alone[0] == "0:04 left · stage 2 of 5 · about 1:04 left to train in all"
    three = progress.Trainings(3, 16.0)
    assert train(now, three, capsys, "stage 4 of 6", later=MINUTE)[0] == (
        "0:04 left · model 1 of 3, about 0:36 left for all · stage 4 of 6 · about 1:36 left to train in all"
    )
    assert "in all" not in train(now, progress.Trainings(3), capsys, later=MINUTE)[0]  # nobody knows of the three


def test_what_is_left_has_the_phases_that_follow(now):
    """2 of 4 steps are left of 2 s each, and what follows costs as much as 5 more."""
    clock = StepClock(0, 4, tokens_per_step=8, later_steps=Measures(2, later_steps=5.0).later_steps)
    clock.on_train_batch_end(0)
    assert math.isnan(clock.seconds_left())
    now[0] += 2
    clock.on_train_batch_end(1)
    clock.tokens_per_second()
    assert clock.seconds_left() == 2 * (2 + 5)


def test_a_row_without_a_pace_is_json_for_every_program():
    """The first step of a process compiles, so a row of it alone has none."""
    pace = Measures(2, flops_per_token=3.0, peak_flops=9.0).of_speed(math.nan, 8)
    assert [*pace] == ["tokens_per_second", "seconds_per_step", "training_flops_per_second", "mfu"]
    assert json.loads(json.dumps(pace, allow_nan=False)) == dict.fromkeys(pace)


def test_what_is_slow_in_preparing_is_announced(capsys):
    workers = Workers(1, 0)
    workers.announce("training a tokenizer of 8,000 pieces", 999)
    workers.announce("training a tokenizer of 8,000 pieces", 11_200_000)
    assert capsys.readouterr().err == "training a tokenizer of 8,000 pieces, 11 MB of text\n"
