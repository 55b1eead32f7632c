"""Evaluation while a model is pre-trained: scalars of its evaluators, every so many steps, and the best step so far.

An evaluation takes place before the checkpoint of its step is written, so what a checkpoint is found to follow has its
row in the log, and none has two. It leaves no trace in training: running means and generators of random numbers are put
back as they were, on every replica, and its time does not count in tokens per second.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

import keras
import numpy as np

from rembed_keras.analysis.reports.tables import Table
from rembed_keras.errors import Count, UserError, check_counts, did_you_mean, shortened
from rembed_keras.training.distributed.processes import Processes
from rembed_keras.training.evaluators.evaluator import EvaluationData, Evaluator
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.callbacks import StepClock, settle
from rembed_keras.training.loop.divergence import seeds_of
from rembed_keras.training.loop.progress import ProgressLine
from rembed_keras.training.loop.workdir import Workdir

RUN = "evaluation"  # in the log
Best: TypeAlias = Literal["lowest", "highest"]


class Evaluation:
    """What is evaluated in a training, and how often.

    Args:
        evaluators: the evaluators; see `evaluators.evaluator`.
        every: steps between evaluations; there is one before the first step and one at the end in any case.
        data: what they are given.
        keep_best: name of the scalar whose best step keeps its checkpoint; None keeps none.
        best_is: whether its lowest or highest value is the best; of equal ones the first.

    Raises:
        UserError: for what is no evaluator, or text that is needed and not held out.
    """

    def __init__(
        self,
        evaluators: Sequence[Evaluator],
        every: Count,
        data: EvaluationData,
        keep_best: str | None = None,
        best_is: Best = "lowest",
    ):
        check_counts({"EVAL_EVERY": every})
        if not evaluators:
            raise UserError(f"EVAL_EVERY is {every} and training.pretrain.evaluators lists nothing to evaluate")
        for evaluator in evaluators:
            if not callable(getattr(evaluator, "evaluate", None)) or isinstance(evaluator, type):
                raise UserError(f"evaluators has {evaluator!r}, which has no evaluate(model, data): bind it with ()")
        corpus, length = data.batches.corpus, data.batches.sequence_length
        if any(map(needs_held_out, evaluators)) and not any(size >= length for size in corpus.num_held_out.values()):
            raise UserError(
                f"EVAL_EVERY is {every} and corpus {corpus.path} has no row of SEQUENCE_LENGTH {length} of held-out "
                "text: set HELD_OUT to a share, such as 0.01, and prepare the corpus again"
            )
        self.evaluators, self.every, self.data = evaluators, every, data
        self.keep_best, self.best_is = keep_best, best_is
        self.best: tuple[int, float] | None = None
        self.has_begun = False
        self._rows: list[dict] = []

    def begin(self, workdir: Workdir, first_step: int, has_begun: bool = False) -> None:
        """Rewinds the log to the first step of a training, which may have begun before and go on there, and finds the
        best of the rows so far whose checkpoints are there and whole.

        That of a training before this one may be gone, which kept none for its best.
        """
        self.has_begun = has_begun
        self._rows = workdir.metrics.rewind(RUN, first_step)
        kept = checkpoints.by_step(workdir.checkpoints)
        while (damaged := self._damaged_best(kept)) is not None:
            del kept[damaged]

    def _damaged_best(self, kept):
        """Takes the best of the rows whose checkpoints are kept; its step if its checkpoint was damaged since."""
        self.best = None
        for row in self._rows:
            if row["step"] in kept:
                self.compare(row)
        is_whole = self.best_step is None or checkpoints.whole_in(kept[self.best_step]) is not None
        return None if is_whole else self.best_step

    def callbacks(
        self,
        clock: StepClock,
        workdir: Workdir,
        processes: Processes,
        look: Callable[[], None],
        shows: Sequence[ProgressLine],
    ) -> "list[PeriodicEvaluation]":
        """What evaluates in a training that has begun; arguments as of `PeriodicEvaluation`."""
        workdir.watch.begin(RUN, self._rows)
        return [PeriodicEvaluation(clock, self, processes, workdir, self._rows, look, shows)]

    def compare(self, row: dict) -> None:
        """Takes a row's value as the best, if it is."""
        value = row.get(self.keep_best) if self.keep_best is not None and row["step"] else None
        if value is not None and (self.best is None or _is_better(value, self.best[1], self.best_is)):
            self.best = row["step"], value

    def is_best(self, step: int) -> bool:
        """Whether a step is the best so far."""
        return self.best_step == step

    @property
    def best_step(self) -> int | None:
        """The step whose checkpoint stays; None if there is none."""
        return None if self.best is None else self.best[0]

    def scalars(self, model: keras.Model) -> dict[str, float | dict]:
        """All scalars of a model, and tables as JSON says them.

        Raises:
            UserError: for what is neither a scalar nor a table, two of one name, or no scalar of the name of the best.
        """
        found: dict[str, float | dict] = {}
        model.fold()  # or the encoder may have a table of some steps ago
        for evaluator in self.evaluators:
            own = _brought(evaluator, evaluator.evaluate(model, self.data))
            if twice := sorted(own.keys() & (found.keys() | {"stage", "run", "step", "tokens"})):
                raise UserError(f"evaluators bring {twice[0]!r} more than once: give each scalar a name of its own")
            found |= own
        scalars = [name for name, value in found.items() if isinstance(value, float)]
        if self.keep_best is not None and self.keep_best not in scalars:
            near = did_you_mean(self.keep_best, scalars) or f"; they bring {', '.join(scalars)}"
            raise UserError(f"keep_best is {self.keep_best!r}, which no evaluator brings{near}")
        return found


class NoEvaluation:
    """What stands for an `Evaluation` where nothing is evaluated."""

    best_step = None

    def begin(self, workdir: Workdir, first_step: int, has_begun: bool = False) -> None:
        """Does nothing."""

    def callbacks(self, clock, workdir, processes, look, shows) -> "list[PeriodicEvaluation]":
        """None."""
        return []

    def is_best(self, step: int) -> bool:
        """No."""
        return False


NOTHING = NoEvaluation()


def planned(
    evaluators: Sequence[Evaluator], every: Count | None, data: EvaluationData, keep_best: str | None, best_is: Best
) -> Evaluation | NoEvaluation:
    """What `Evaluation` makes of its arguments; nothing is evaluated where there is no interval.

    Raises:
        UserError: if the best is to be kept of what is not evaluated, and as `Evaluation`.
    """
    if every is None:
        if keep_best is not None:
            raise UserError(f"keep_best is {keep_best!r} and EVAL_EVERY is None: set EVAL_EVERY to a number of steps")
        return NOTHING
    return Evaluation(evaluators, every, data, keep_best, best_is)


def needs_held_out(evaluator: object) -> bool:
    """Whether an evaluator reads held-out text."""
    return bool(getattr(evaluator, "needs_held_out", False))


def _brought(evaluator, values):
    """The scalars and tables of an evaluator as JSON says them, by their names."""
    try:
        found = {name: asdict(value) if isinstance(value, Table) else float(value) for name, value in values.items()}
        is_named = all(isinstance(name, str) for name in found)
    except (TypeError, ValueError, AttributeError):
        is_named = False
    if not is_named:
        kind = type(evaluator).__name__
        raise UserError(f"{kind}.evaluate gives {shortened(values)}; it must be numbers and tables by name")
    return found


def _said(value):
    """What a row has of a scalar or a table."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_better(value, than, best_is):
    return value < than if best_is == "lowest" else value > than


class PeriodicEvaluation(keras.callbacks.Callback):
    """Evaluates before the first step, every so many steps and at the end, and writes a row of it.

    Args:
        clock: the step clock, which runs before this callback.
        evaluation: what to evaluate.
        processes: who trains together; the first one's scalars count.
        workdir: whose log and sinks have the rows.
        rows: the rows so far.
        look: ends a training that diverged.
        shows: progress lines.
    """

    def __init__(
        self,
        clock: StepClock,
        evaluation: Evaluation,
        processes: Processes,
        workdir: Workdir,
        rows: Sequence[dict],
        look: Callable[[], None],
        shows: Sequence[ProgressLine],
    ):
        super().__init__()
        self.clock, self.evaluation, self.processes = clock, evaluation, processes
        self.workdir, self.rows = workdir, rows
        self.look, self.shows = look, shows

    def on_train_begin(self, logs=None):
        if not self.evaluation.has_begun:  # a mistake in an evaluator is found before anything is learnt
            self._evaluate()
        elif self.rows:
            self._show(self.rows[-1])

    def on_train_batch_end(self, batch, logs=None):
        if self.clock.is_due(self.evaluation.every) or self.model.stop_training:
            self.look()
            self._evaluate()

    def _evaluate(self):
        begun = time.monotonic()
        with unchanged(self.model):
            scalars = self.evaluation.scalars(self.model)
        scalars = self.processes.exchange(scalars)[0]
        step = self.clock.step
        row: dict[str, Any] = {"stage": RUN, "run": RUN, "step": step, "tokens": self.clock.tokens()}
        row |= {name: _said(value) for name, value in scalars.items()}
        if all(each["step"] < step for each in self.rows):  # a training before this one may have said it
            self.workdir.metrics.append(row)
            self.workdir.watch.draw(row)
            self.evaluation.compare(row)
        self.clock.leave_out(time.monotonic() - begun)
        self._show(row, is_new=True)

    def _show(self, row, is_new=False):
        for line in self.shows:
            line.note(_shown(row), is_new)


def _shown(row):
    """What the progress line says of a row: scalars that are not part of another one, as loss/de is of loss."""
    own = {name: each for name, each in row.items() if isinstance(each, float) and name.rpartition("/")[0] not in row}
    ordered = sorted(own, key=lambda name: name != "loss")
    return f"evaluation: {', '.join(f'{name} {own[name]:.3f}' for name in ordered)}"


@contextlib.contextmanager
def unchanged(model) -> Iterator[None]:
    """A block that leaves a model's running means and generators of random numbers as they were, on every replica.

    Within it, generators draw the same numbers whenever it is entered.
    """
    settle(model)
    parts = [part for variable in restoring.running_of(model) for part in _local(variable)]
    before = [
        np.array(keras.ops.convert_to_numpy(part)) if _is_numpy() else keras.ops.copy(part.value) for part in parts
    ]
    try:
        for variable in seeds_of(model):
            variable.assign(np.zeros(variable.shape, variable.dtype))
        yield
    finally:
        settle(model)
        for part, value in zip(parts, before, strict=True):
            part.assign(value)


def _is_numpy():
    """Whether values are kept as NumPy arrays: on JAX they may be spread over several processes."""
    return keras.config.backend() == "tensorflow"


def _local(variable) -> Sequence:
    """The parts of a variable that this process has: TensorFlow keeps means, and generators, of each replica apart."""
    if not _is_numpy():
        return (variable,)
    import tensorflow as tf

    return tf.distribute.get_strategy().experimental_local_results(variable.value)
