"""What happens between steps: the log, the checkpoint.

Keras thinks in epochs; pre-training thinks in steps. One `fit` covers all steps of a stage, and these callbacks keep
the step clock: every so many steps the running means become a row of the log and start afresh, so a row is of its
own interval only and does not depend on when the process was started.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras

from rembed_keras.errors import DivergedError, UserError
from rembed_keras.modeling.objectives.running_means import RECORDED
from rembed_keras.training.distributed import devices
from rembed_keras.training.loop.workdir import Workdir


@dataclass(frozen=True)
class Measures:
    """What a row of the log says beside what was learned.

    Attributes:
        examples_per_step: rows of a batch.
        flops_per_token: of training, by the ledger; None where that does not say.
        peak_flops: what the devices that share a batch can do, a second; None where their maker's number is not known.
        constants: numbers that losses are held against, by name.
        examples_before: rows of all steps before batches had so many.
        later_steps: what the phases that follow cost, in steps of this one.
    """

    examples_per_step: int
    flops_per_token: float | None = None
    peak_flops: float | None = None
    constants: Mapping[str, float] = field(default_factory=dict)
    examples_before: int = 0
    later_steps: float = 0.0

    def examples(self, steps: int) -> int:
        """Rows that were trained on after so many steps with batches of this size."""
        return self.examples_before + steps * self.examples_per_step

    def of_speed(self, tokens_per_second: float, tokens_per_step: float) -> dict[str, float | None]:
        """What a row says of a pace: tokens and FLOPs a second, seconds a step, and MFU, their share of the devices.

        Before there is a pace all are None, since JSON has no NaN.

        Source: Chowdhery et al. 2022 (PaLM), appendix B, for MFU.

        >>> Measures(8, flops_per_token=100.0, peak_flops=1e6).of_speed(500.0, 250.0)
        {'tokens_per_second': 500.0, 'seconds_per_step': 0.5, 'training_flops_per_second': 50000.0, 'mfu': 0.05}
        """
        found = {"tokens_per_second": tokens_per_second, "seconds_per_step": tokens_per_step / tokens_per_second}
        if self.flops_per_token is not None:
            found["training_flops_per_second"] = self.flops_per_token * tokens_per_second
            if self.peak_flops is not None:
                found["mfu"] = found["training_flops_per_second"] / self.peak_flops
        return {name: None if math.isnan(value) else value for name, value in found.items()}


class StepClock(keras.callbacks.Callback):
    """Counts global steps and the time: steps done, tokens per second, seconds left.

    Args:
        first_step: steps that were done before this process.
        last_step: steps of the whole stage.
        tokens_per_step: tokens of a batch, padding not counted.
        begins: the step at which batches have so many, and the tokens of all before it.
        later_steps: see `Measures`.
    """

    def __init__(
        self,
        first_step: int,
        last_step: int,
        tokens_per_step: float,
        begins: tuple[int, float] = (0, 0.0),
        later_steps: float = 0.0,
    ):
        super().__init__()
        self.begins, self.later_steps = begins, later_steps
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

    @property
    def steps_of_phase(self) -> int:
        """Steps with batches of the present size, up to the present one."""
        return self.step - self.begins[0]

    def tokens(self) -> int:
        """Tokens of all steps up to the present one."""
        return int(self.begins[1] + self.steps_of_phase * self.tokens_per_step)

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
        """Remaining time, that of later phases too, at the pace of the last few intervals; NaN before there is one."""
        (then, first), (now, last) = (
            self._marks[-min(len(self._marks), 6)],
            self._marks[-1],
        )
        left = self.last_step - self.step + self.later_steps
        return math.nan if last == first else (now - then) / (last - first) * left


class Recorder(keras.callbacks.Callback):
    """Writes a row of the log every so many steps, and has it drawn.

    Args:
        clock: the step clock, which runs before this callback.
        workdir: whose log and sinks have the rows.
        measures: what a row says beside what was learned.
        run: the run's name in the log; its first word is the stage.
        every: steps between rows.
        progress: called with each row.
        look: ends a training that diverged; where a callback of the user's stops it nobody has looked yet.

    Where the loss is scaled, for float16, a row has the scale, and no norm of a gradient that overflowed by it.
    Where steps may be skipped a row counts those of the run. Pre-training leaves a skipped step's losses out of its
    means; what is non-finite all the same, as fine-tuning's loss of an interval with a skipped step, is null. A step
    that halves a scale is skipped too, and not counted.

    Raises:
        UserError: before the first step, for a metric of the model by a name that rows have already.
        DivergedError: when the loss is not finite though no step can have been skipped, naming the step.
    """

    def __init__(
        self,
        clock: StepClock,
        workdir: Workdir,
        measures: Measures,
        run: str,
        every: int,
        progress: Callable[[dict], None],
        look: Callable[[], None],
    ):
        super().__init__()
        self.clock, self.workdir, self.measures = clock, workdir, measures
        self.run, self.every, self.progress, self.look = run, every, progress, look
        self._skipped = 0

    def on_train_begin(self, logs=None):
        if taken := {metric.name for metric in self.model.metrics} & {*RECORDED}:
            raise UserError(f"a metric of {self.model.name} is called {min(taken)}, as what logs say of each step")
        rows = self.workdir.metrics.rows(self.run)  # since the last, one may have been skipped before a stop
        self._skipped = rows[-1].get("skipped_steps", 0) if rows else 0

    def on_train_batch_end(self, batch, logs=None):
        is_due = self.clock.is_due(self.every)
        if not (is_due or self.model.stop_training):
            return
        settle(self.model)
        if not is_due:  # or the look for divergence was before this row
            self.look()
        optimizer = self.model.optimizer
        means = {key: float(value) for key, value in self.model.get_metrics_result().items()}
        self.model.reset_metrics()
        step = self.clock.step
        row: dict[str, Any] = {
            "stage": self.run.split("/")[0],
            "run": self.run,
            "step": step,
            "tokens": self.clock.tokens(),
            "examples": self.measures.examples(self.clock.steps_of_phase),
            **{key: value for key, value in means.items() if not ("/" in key and math.isnan(value))},
            "learning_rate": _number(optimizer.learning_rate),
            "grad_norm": _number(optimizer.gradient_norm),
            **self.measures.constants,
            **self.measures.of_speed(self.clock.tokens_per_second(), self.clock.tokens_per_step),
            "peak_memory_bytes": devices.peak_memory(),
        }
        if optimizer.loss_scale is not None:
            row["loss_scale"] = _number(optimizer.loss_scale)
            row["grad_norm"] = row["grad_norm"] if math.isfinite(row["grad_norm"]) else None
        if optimizer.skip_nonfinite:
            skipped, self._skipped = self._skipped, int(_number(optimizer.skipped_steps))
            row["skipped_steps"] = self._skipped
            if self._skipped > skipped or optimizer.loss_scale is not None:  # which is halved before a step counts
                given = [key for key in (*means, "grad_norm") if row.get(key) is not None]
                row |= {key: None for key in given if not math.isfinite(row[key])}
        if row["loss"] is not None and not math.isfinite(row["loss"]):
            raise DivergedError(f"the loss of {self.run} is {row['loss']} at step {step}: lower the learning rate")
        self.workdir.metrics.append(row)
        self.workdir.watch.draw(row)
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


def settle(model) -> None:
    """Makes a model's variables hold the present step: on JAX `fit` keeps them aside meanwhile."""
    if keras.config.backend() == "jax":
        model.jax_state_sync()


def _number(value) -> float:
    return float(keras.ops.convert_to_numpy(value))
