"""One loop for everything that learns: pre-training and fine-tuning differ in what they learn, not in how.

Data is a function of the step and a checkpoint holds all that a step changes, so training that was killed and started
again takes the steps it would have taken, to the bit.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from rembed_keras.analysis.cost.precision import name_of
from rembed_keras.errors import UserError, first_line
from rembed_keras.interruption import Interrupted, stopping_between_steps
from rembed_keras.training.distributed.strategies import Placement
from rembed_keras.training.initial import reading
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.callbacks import Checkpointer, Measures, Recorder, StepClock
from rembed_keras.training.loop.divergence import DivergenceGuard, Seeds, keep_step, seeds_of
from rembed_keras.training.loop.evaluation import NOTHING, Evaluation, NoEvaluation
from rembed_keras.training.loop.own_callbacks import OwnCallbacks
from rembed_keras.training.loop.progress import Forecast, ProgressLine, Trainings
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.sinks.profiling import profilers


def train(
    learner,
    data: Callable,
    placement: Placement,
    workdir: Workdir,
    folder: Path,
    run: str,
    steps: int,
    until: int,
    tokens_per_step: float,
    checkpoint_every: int,
    log_every: int,
    measures: Measures,
    keep_checkpoints: int = 2,
    keep_checkpoint_every: int | None = None,
    coordinates: Callable | None = None,
    callbacks: Sequence[Callable] | OwnCallbacks = (),
    evaluation: Evaluation | NoEvaluation = NOTHING,
    profile_steps: int = 0,
    trainings: Trainings | None = None,
    begins: tuple[int, float] = (0, 0.0),
    began: Sequence[int] = (0, 0, 0),
    shapes: Sequence[Any] = (),
    read: Sequence[reading.Read] = (),
) -> None:
    """Trains a compiled model until `steps`, from the newest checkpoint in `folder` if there is one.

    On SIGTERM or SIGINT the step is finished and saved.

    Args:
        learner: a model of ours, which has an `encoder`, compiled with a `TrainingOptimizer` that
            was built in the strategy's scope.
        data: gives the global batches of steps `first` up to `last`, a `grain.IterDataset`.
        placement: where the learner was built.
        workdir: whose log and curves the run is written to.
        folder: the folder of the run's checkpoints.
        run: the run's name in the log: its stage, and after a slash which model of the stage.
        steps: the step at which this training ends.
        until: the step at which the last one ends that goes on with it, or `steps`: checkpoints keep it, so that a
            training that was stopped before is known.
        tokens_per_step: tokens of a batch, padding not counted.
        checkpoint_every: steps between checkpoints; there is one at the end in any case.
        log_every: steps between rows of the log; there is one at the end in any case.
        measures: what these rows say beside what was learned.
        keep_checkpoints: how many of the newest checkpoints stay on disk.
        keep_checkpoint_every: checkpoints of these steps, and their multiples, stay too.
        coordinates: says of a step, from 1, and its batch how to have that batch again; None keeps nothing of a step
            that diverged.
        callbacks: make the user's callbacks of this training, or are those of the one that it goes on with; see
            `own_callbacks`.
        evaluation: what is evaluated on the way; nothing by default.
        profile_steps: how many steps are profiled; see `profiling`.
        trainings: of the stage, of which this is one; itself alone by default.
        begins: the step at which batches have so many tokens, and the tokens of all before it.
        began: the step at which this training went on from another, and the tokens and rows of all before it, which
            checkpoints keep.
        shapes: a batch of each shape, where batches have several.
        read: what is read and not changed, which a checkpoint must have been trained with.

    Raises:
        UserError: for checkpoints of another model, or that were trained with another corpus or teacher.
        DivergedError: for a non-finite gradient or loss.
        Interrupted: if it was asked to stop.
    """
    own = callbacks if isinstance(callbacks, OwnCallbacks) else OwnCallbacks(callbacks)
    saves = _Saves(
        learner,
        own,
        workdir,
        placement.processes,
        folder,
        (keep_checkpoints, keep_checkpoint_every, checkpoint_every),
        evaluation,
        read,
        until,
        began,
    )
    first_step = saves.first_step
    check_folder(placement, folder, first_step)
    saves.load(run, steps)
    if first_step >= steps or saves.has_ended:
        return
    clock = StepClock(first_step, steps, tokens_per_step, begins, measures.later_steps)
    progress = ProgressLine(clock, run, workdir.stage, trainings, Forecast(workdir, workdir.later_tokens))
    shows = [progress] if workdir.is_chief else []
    seeds = Seeds(seeds_of(learner))
    workdir.watch.begin(run, workdir.metrics.rewind(run, first_step))
    asked: list[int] = []

    def resume():
        saves.resume()
        seeds.begin(clock.step)

    def save(step):
        guard.look()
        saves.save(step)

    def keep(step):
        if coordinates is None:
            return ""
        (batch,) = data(step - 1, step)
        states = seeds.before(step, clock.step)
        target = workdir.diverged / run if workdir.is_chief else None
        return keep_step(target, step, learner, states, batch, coordinates(step, batch))

    def must_stop():
        """Whether any process was asked to; several of them agree on it when a row is due."""
        if placement.processes.count == 1 or clock.is_due(log_every):
            asked.extend(itertools.chain(*placement.processes.exchange(signals[:1])))
        return bool(asked)

    guard = DivergenceGuard(clock, run, log_every, keep)
    recorder = Recorder(
        clock, workdir, measures, run, log_every, progress.show if shows else lambda row: None, guard.look
    )
    with stopping_between_steps(lambda: clock.step > first_step) as signals:
        checkpointer = Checkpointer(clock, checkpoint_every, save, resume, must_stop, evaluation.is_best)
        try:
            with placement.scope():
                learner.fit(
                    placement.feed(data(first_step, steps), shapes),
                    steps_per_epoch=steps - first_step,
                    shuffle=False,
                    verbose=0,
                    callbacks=[
                        *(clock, guard, *own.together(placement.processes), recorder),
                        *profilers(clock, profile_steps if workdir.is_chief else 0, workdir.tensorboard / "profile"),
                        *evaluation.callbacks(clock, workdir, placement.processes, guard.look, shows),
                        *(checkpointer, *shows),
                    ],
                )
        finally:
            progress.bar.stop()
    if asked or signals:
        _stop(placement.processes, asked, signals, f"{run} is saved at step {clock.step} of {until}")


def _stop(processes, asked, signals, done):
    """Ends a training that was asked to stop, after all processes that agreed on it have saved."""
    if asked:
        processes.exchange(None)
        processes.leave()
    raise Interrupted((asked or signals)[0], done)


class _Saves:
    """The checkpoints of one training: what is found, given back and written.

    Attributes:
        first_step: steps that were taken before.
        has_ended: whether a callback of the user's ended the training there, or another one has gone on from it.
    """

    def __init__(self, learner, own, workdir, processes, folder, policy, evaluation, read, until, began):
        self.learner, self.own, self.folder, self.evaluation = learner, own, folder, evaluation
        self.workdir, self.is_chief, self.processes = workdir, workdir.is_chief, processes
        self.policy: tuple[int, int | None, int] = policy
        _check_model(learner)
        self.read, self.until, self.began = read, until, began
        self.found = checkpoints.latest(folder)
        self.first_step = self.found.step if self.found else 0
        state = self.found.state if self.found else {}
        whole = state.get("until", until)
        self.is_of_another = whole > until  # which went on from this one, and keeps what it keeps
        self.is_before = whole < until  # of one that this one goes on from
        self.has_ended = self.is_of_another or (whole == until and bool(state.get("has_ended")))

    def load(self, run, steps):
        """Gives the learner what the newest checkpoint has, if there is one, and says so."""
        self.evaluation.begin(self.workdir, self.first_step, has_begun=bool(self.found) and not self.is_before)
        if self.found is None:
            return
        found = self.found
        _check_terms(found, self.learner)
        reading.check_same(found, self.read)
        restoring.load_parts(self.learner, found)
        restoring.load_optimizer(self.learner, found, has_own_rate=self.is_before or self.is_of_another)
        if self.is_chief:
            if not self.is_of_another:
                checkpoints.tidy(self.folder, found.step, *self.policy, self.evaluation.best_step)
            if found.step < steps and not self.has_ended:
                print(f"{run}: resuming from {found.path}{_differs(found, self.learner)}", flush=True)
            else:
                print(f"{run}: done, {found.path}", flush=True)

    def resume(self):
        """Gives the learner what `fit` resets at its start."""
        if self.found:
            running, kept = restoring.running_of(self.learner), self.found.state["running"]
            is_alike = [variable.shape for variable in running] == [np.shape(value) for value in kept]
            if is_alike or not self.is_before:  # which may have drawn, and averaged, more or less than this one
                for variable, value in zip(running, kept, strict=True):
                    variable.assign(value)
            self.own.resume(self.found.state.get("callbacks", []), are_new=self.is_before)
        self.own.check()

    def save(self, step):
        """Writes a checkpoint; all processes read, because values may be spread over them, and the chief writes.

        The others wait, since a phase that follows begins with what they find in the folder.
        """
        learner = self.learner
        running = [checkpoints.read(variable).tolist() for variable in restoring.running_of(learner)]
        state = {"running": running} | restoring.state_of(learner) | reading.state_of(self.read)
        state |= {"callbacks": self.own.state(), "has_ended": bool(learner.stop_training), "until": self.until}
        state |= {"backend": keras.config.backend()}
        state |= {"began": [*self.began]} if any(self.began) else {}
        parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(learner).items()}
        named = learner.optimizer.named_variables()
        parts["optimizer"] = {name: checkpoints.read(variable) for name, variable in named.items()}
        best = self.evaluation.best_step
        self.processes.by_chief(lambda: checkpoints.save(self.folder, step, parts, state, *self.policy, best))


def _check_model(learner):
    """Refuses a model that no checkpoint could describe, before it has learnt anything."""
    try:
        json.dumps(restoring.state_of(learner))
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        reason = first_line(error)
        raise UserError(f"no checkpoint can describe {type(learner).__name__}: {reason}") from None


def check_folder(placement: Placement, folder: Path, first_step: int) -> None:
    """Finds out whether all processes see the same checkpoints.

    Raises:
        UserError: if they do not.
    """
    steps = placement.processes.exchange(first_step)
    if len({*steps}) > 1:
        placement.processes.leave()
        raise UserError(
            f"processes see checkpoints of steps {steps} in {folder}: WORKDIR must be a folder that all machines share"
        )


def _differs(found, learner):
    """What to say where a run goes on in another dtype, which may be Keras's default here and in no recipe, or on the
    other backend, which draws other random numbers."""
    models = found.state["model"], restoring.state_of(learner)["model"]
    dtypes = [name_of(each["config"]["encoder"]["config"].get("dtype")) for each in models]
    here = keras.config.backend()
    pairs = [("in", *dtypes), ("on", found.state.get("backend", here), here)]
    said = [f", which was trained {word} {before}, {word} {now}" for word, before, now in pairs if before != now]
    return "".join(said)


def _check_terms(found, learner):
    """Refuses to go on with other loss terms, whose running means a checkpoint has not."""
    there, here = found.state.get("terms", []), [term.name for term in learner.terms]
    if there != here:
        raise UserError(f"{found.path} was trained with loss terms {there}, and the recipe has {here} now")
