"""What happens between steps: the log, the progress line, the checkpoint.

Keras thinks in epochs; pre-training thinks in steps. One `fit` covers all steps of a stage, and these callbacks keep
the step clock: every so many steps the running means become a row of the log and start afresh, so a row is of its
own interval only and does not depend on when the process was started.
"""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
)
from rich.text import Text

from rembed_keras.errors import DivergedError
from rembed_keras.training.loop.workdir import Board, MetricsLog, NoBoard


class StepClock(keras.callbacks.Callback):
    """Counts global steps and the time: steps done, tokens per second, seconds left.

    Args:
        first_step: steps that were done before this process.
        last_step: steps of the whole stage.
        tokens_per_step: tokens of a batch, padding not counted.
        begins: the step at which batches have so many, and the tokens of all before it.
    """

    def __init__(self, first_step: int, last_step: int, tokens_per_step: float, begins: tuple[int, float] = (0, 0.0)):
        super().__init__()
        self.begins = begins
        self.step = first_step
        self.last_step = last_step
        self.tokens_per_step = tokens_per_step
        self._marks: list[tuple[float, int]] = []

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        if not self._marks:  # the first step compiles, which says nothing about the next
            self._marks.append((time.monotonic(), self.step))

    def is_due(self, every: int) -> bool:
        """Whether the present step is one of every so many, or the last."""
        return self.step % every == 0 or self.step == self.last_step

    def tokens(self) -> int:
        """Tokens of all steps up to the present one."""
        first_step, before = self.begins
        return int(before + (self.step - first_step) * self.tokens_per_step)

    def leave_out(self, seconds: float) -> None:
        """Leaves out of all paces some seconds that passed between two steps."""
        self._marks = [(then + seconds, step) for then, step in self._marks]

    def tokens_per_second(self) -> float:
        """Tokens per second since the last call, compilation left out; NaN before there is a pace."""
        now, (then, step) = time.monotonic(), self._marks[-1]
        if self.step == step:
            return math.nan
        self._marks.append((now, self.step))
        return (self.step - step) * self.tokens_per_step / (now - then)

    def seconds_left(self) -> float:
        """Remaining time at the pace of the last few intervals; NaN before there is a pace."""
        (then, first), (now, last) = (
            self._marks[-min(len(self._marks), 6)],
            self._marks[-1],
        )
        return math.nan if last == first else (now - then) / (last - first) * (self.last_step - self.step)


class Recorder(keras.callbacks.Callback):
    """Writes a row of the log every so many steps, and draws it.

    Args:
        clock: the step clock, which runs before this callback.
        log: the workdir's log.
        board: TensorBoard's curves.
        run: the run's name in the log; its first word is the stage.
        every: steps between rows.
        progress: called with each row.

    Where the loss is scaled, for float16, a row has the scale, and no norm of a gradient that overflowed by it.
    Where steps may be skipped a row counts those of the run. Pre-training leaves a skipped step's losses out of its
    means; what is non-finite all the same, as fine-tuning's loss of an interval with a skipped step, is null.

    Raises:
        DivergedError: when the loss is not finite though no step was skipped, naming the step.
    """

    def __init__(
        self,
        clock: StepClock,
        log: MetricsLog,
        board: Board | NoBoard,
        run: str,
        every: int,
        progress: Callable[[dict], None],
    ):
        super().__init__()
        self.clock, self.log, self.board = clock, log, board
        self.run, self.every, self.progress = run, every, progress
        self._skipped = 0

    def on_train_begin(self, logs=None):
        self._skipped = int(_number(self.model.optimizer.skipped_steps))

    def on_train_batch_end(self, batch, logs=None):
        if not (self.clock.is_due(self.every) or self.model.stop_training):
            return
        settle(self.model)
        optimizer = self.model.optimizer
        means = {key: float(value) for key, value in self.model.get_metrics_result().items()}
        self.model.reset_metrics()
        step = self.clock.step
        row: dict[str, Any] = {
            "stage": self.run.split("/")[0],
            "run": self.run,
            "step": step,
            "tokens": self.clock.tokens(),
            **{key: value for key, value in means.items() if not ("/" in key and math.isnan(value))},
            "learning_rate": _number(optimizer.learning_rate),
            "grad_norm": _number(optimizer.gradient_norm),
            "tokens_per_second": self.clock.tokens_per_second(),
        }
        if optimizer.skip_nonfinite:
            skipped, self._skipped = self._skipped, int(_number(optimizer.skipped_steps))
            row["skipped_steps"] = self._skipped
            if self._skipped > skipped:
                given = [key for key in (*means, "grad_norm") if row.get(key) is not None]
                row |= {key: None for key in given if not math.isfinite(row[key])}
        if optimizer.loss_scale is not None:
            row["loss_scale"] = _number(optimizer.loss_scale)
            row["grad_norm"] = row["grad_norm"] if math.isfinite(row["grad_norm"]) else None
        if row["loss"] is not None and not math.isfinite(row["loss"]):
            raise DivergedError(f"the loss of {self.run} is {row['loss']} at step {step}: lower the learning rate")
        self.log.append(row)
        self.board.draw(row)
        self.progress(row)


class Checkpointer(keras.callbacks.Callback):
    """Saves every so many steps and at the last one, and brings back what `fit` resets at its start.

    The last one may be where a callback of the user's ends the training.

    If it is asked to stop it saves too, and lets `fit` end.

    Args:
        clock: the step clock, which runs before this callback.
        every: steps between checkpoints.
        save: called with the step.
        resume: called when `fit` has reset the running means, to put back those of an interrupted interval.
        must_stop: whether training is asked to stop.
        is_best: whether a step is the best so far, whose checkpoint stays.
    """

    def __init__(
        self,
        clock: StepClock,
        every: int,
        save: Callable[[int], object],
        resume: Callable[[], None],
        must_stop: Callable[[], bool],
        is_best: Callable[[int], bool],
    ):
        super().__init__()
        self.clock, self.every, self.save, self.resume, self.must_stop = clock, every, save, resume, must_stop
        self.is_best = is_best

    def on_epoch_begin(self, epoch, logs=None):
        self.resume()

    def on_train_batch_end(self, batch, logs=None):
        must_stop = self.must_stop()
        if self.clock.is_due(self.every) or must_stop or self.model.stop_training or self.is_best(self.clock.step):
            settle(self.model)
            self.save(self.clock.step)
        if must_stop:
            self.model.stop_training = True


class ProgressLine(keras.callbacks.Callback):
    """A progress bar on a terminal; elsewhere a line for each logged row.

    Args:
        clock: the step clock, which runs before this callback.
        title: what is going on.
    """

    def __init__(self, clock: StepClock, title: str):
        super().__init__()
        self.clock, self.title = clock, title
        self.noted = ""
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.completed}/{task.total}"),
            _Rate(),
            console=Console(file=sys.stdout),
            disable=not sys.stdout.isatty(),
        )
        self.task = self.bar.add_task(title, total=clock.last_step, completed=clock.step, rate="compiling")

    def on_train_begin(self, logs=None):
        self.bar.start()

    def on_train_batch_end(self, batch, logs=None):
        self.bar.update(self.task, completed=self.clock.step)

    def on_train_end(self, logs=None):
        self.bar.stop()

    def note(self, text: str, is_new: bool = False) -> None:
        """Shows a text beside every row from now on; a new one also by itself where there is no terminal."""
        self.noted = text
        if is_new and self.bar.disable:
            print(f"{self.title} {self.clock.step}/{self.clock.last_step} · {text}", flush=True)

    def show(self, row: dict) -> None:
        """Shows a row of the log."""
        left = self.clock.seconds_left()
        loss = "?" if row["loss"] is None else f"{row['loss']:.3f}"
        speed = row["tokens_per_second"]
        said = "? tokens/s" if speed is None or math.isnan(speed) else f"{speed:,.0f} tokens/s"
        rate = f"loss {loss} · {said} · {_clock_face(left)} left"
        self.bar.update(self.task, rate=f"{rate} · {self.noted}" if self.noted else rate)
        if self.bar.disable:
            print(
                f"{self.title} {row['step']}/{self.clock.last_step} · {rate}",
                flush=True,
            )


class _Rate(ProgressColumn):
    def render(self, task):
        return Text(task.fields["rate"], no_wrap=True)


def settle(model) -> None:
    """Makes a model's variables hold the present step: on JAX `fit` keeps them aside meanwhile."""
    if keras.config.backend() == "jax":
        model.jax_state_sync()


def _number(value) -> float:
    return float(keras.ops.convert_to_numpy(value))


def _clock_face(seconds: float) -> str:
    if math.isnan(seconds):
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
