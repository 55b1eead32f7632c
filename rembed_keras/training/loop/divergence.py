"""Training that went wrong: which step it was, and all that is needed to take that step again.

The optimizer knows the first step whose gradient was not finite and keeps everything as it was before it (see
`TrainingOptimizer`), so looking is left to moments when the device is waited for anyway. What is saved then is a
checkpoint of the moment before that step and the step's batch.
"""

import json
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import DivergedError, UserError
from rembed_keras.modeling.saving.configuration import made
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.callbacks import StepClock, settle
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer


class DivergenceGuard(keras.callbacks.Callback):
    """Ends training that diverged, before anything is logged or saved of it.

    Args:
        clock: the step clock, which runs before this callback.
        run: the run's name in the log.
        every: steps between looks.
        keep: called with the step that diverged, to save what it takes to repeat it; returns what to say of it.

    Raises:
        DivergedError: naming the step.
    """

    def __init__(self, clock: StepClock, run: str, every: int, keep: Callable[[int], str]):
        super().__init__()
        self.clock, self.run, self.every, self.keep = clock, run, every, keep

    def on_train_batch_end(self, batch, logs=None):
        if self.clock.is_due(self.every):
            self.look()

    def look(self) -> None:
        """Ends training if it diverged."""
        settle(self.model)
        optimizer = self.model.optimizer
        step = int(checkpoints.read(optimizer.diverged_step))
        if not step:
            return
        skipped = f" after {optimizer.skip_nonfinite} that were skipped" if optimizer.skip_nonfinite else ""
        raise DivergedError(
            f"the gradient of {self.run} is not finite at step {step}{skipped}: lower the learning rate, or have "
            f"the stage's skip_nonfinite skip such steps{self.keep(step)}"
        )


class Seeds:
    """States of a model's generators of random numbers at any step, reckoned from two: each step draws as often.

    Args:
        variables: whole-number states, such as `[seed, counter]`.
    """

    def __init__(self, variables):
        self.variables = variables

    def begin(self, step: int) -> None:
        """Notes the states at the first of the two, after a step."""
        self.step = step
        self._then = [checkpoints.read(variable).astype(np.int64) for variable in self.variables]

    def before(self, step: int, now: int) -> list[np.ndarray]:
        """The states before a step, when the step taken last is `now`."""
        states = []
        for variable, then in zip(self.variables, self._then, strict=True):
            drawn = (checkpoints.read(variable).astype(np.int64) - then) // (now - self.step)
            states.append(then + drawn * (step - 1 - self.step))
        return states


def keep_step(folder: Path | None, step: int, learner, seeds: list[np.ndarray], batch, coordinates: dict) -> str:
    """Saves the moment before a step and the step's batch.

    Args:
        folder: where to; a folder `step-...` is made in it, of what was before the step, with `batch.npz` added. None
            in a process that does not write: all read, because values may be spread over them.
        step: the step that diverged, from 1.
        learner: the model, whose optimizer kept weights and moments since.
        seeds: states of its generators of random numbers before the step.
        batch: `(x, y, sample_weight)` of the step.
        coordinates: how to have that batch again from the data.

    Returns:
        What to say of it, beginning with "; ".
    """
    named = learner.optimizer.named_variables()
    optimizer = {name: checkpoints.read(variable) for name, variable in named.items()}
    fresh = {"iteration": step - 1, "diverged_step": 0, "skipped_steps": learner.optimizer.skip_nonfinite}
    for name, variable in named.items():
        if variable.name in fresh:
            optimizer[name] = np.full_like(optimizer[name], fresh[variable.name])
    owners = restoring.parts_of(learner)
    parts = {name: checkpoints.read_arrays(owned) for name, owned in owners.items()} | {"optimizer": optimizer}
    state = restoring.state_of(learner) | {
        "teachers": len(learner.teachers),
        "seeds": [seed.tolist() for seed in seeds],
        "optimizer": _configuration_of(learner.optimizer),
    }
    if folder is None:
        return ""
    try:
        path = checkpoints.save(folder, step - 1, parts, state)
        x, y, sample_weight = batch
        np.savez_compressed(path / "batch.npz", **{f"x/{key}": value for key, value in x.items()}, y=y, w=sample_weight)
        write_atomically(path / "batch.json", json.dumps({"step": step} | coordinates, indent=1))
    except (UserError, OSError) as error:
        return f"; it could not be kept: {error}"
    where = ", ".join(f"{key} {value}" for key, value in coordinates.items())
    said = f"; its batch is {where}"
    if missing := _missing(state):
        return f"{said}; {path} has it and what was before the step, but not {missing}"
    return f"{said}; rembed_keras.training.replay({str(path)!r}) takes the step again"


def _configuration_of(optimizer):
    """What an optimizer can be made of again; None where it, or its learning rate, does not say it."""
    try:
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(optimizer)))
        made(config, TrainingOptimizer)
    except Exception:  # noqa: BLE001 - optimizers and schedules of others raise what they like
        return None
    return config


def replay(folder: str | Path) -> dict[str, float]:
    """Takes a step again that diverged.

    Args:
        folder: `diverged/<run>/step-...` in a run's folder.

    Returns:
        "loss" of the batch and "gradient_norm" of the step.

    Raises:
        UserError: if the folder is none of a step that diverged, or is damaged; or if the step had loss terms, a
            teacher or an optimizer that are in no file.
    """
    folder = Path(folder)
    found = next((found for found in checkpoints.newest_first(folder.parent) if found.path == folder), None)
    if found is None or not (folder / "batch.npz").exists():
        raise UserError(f"{folder} is no whole folder of a step that diverged")
    if missing := _missing(found.state):
        raise UserError(f"{folder}: the step was taken with {missing}, which its files have not")
    learner = restoring.restore(found)
    optimizer = made(found.state.get("optimizer"), TrainingOptimizer)
    learner.compile(optimizer=optimizer, jit_compile=False)
    optimizer.build(learner.trainable_variables)
    checkpoints.assign_named(optimizer.named_variables(), found.arrays("optimizer"), folder / "optimizer.safetensors")
    for variable, value in zip(seeds_of(learner), found.state["seeds"], strict=True):
        variable.assign(value)
    with np.load(folder / "batch.npz", allow_pickle=False) as arrays:
        x = {name.removeprefix("x/"): arrays[name] for name in arrays.files if name.startswith("x/")}
        y, sample_weight = arrays["y"], arrays["w"]
    loss = learner.train_on_batch(x, y, sample_weight, return_dict=True)["loss"]
    return {"loss": float(loss), "gradient_norm": float(checkpoints.read(optimizer.gradient_norm))}


def _missing(state):
    """What a step was taken with that is in no file, in words; empty if nothing is missing."""
    terms = f"loss terms {', '.join(state['terms'])}" if state.get("terms") else ""
    teacher = "a teacher" if state.get("teachers") else ""
    optimizer = (
        "" if state.get("optimizer") else "an optimizer or learning rate without a configuration that makes it again"
    )
    return " and ".join(filter(None, [terms, teacher, optimizer]))


def seeds_of(learner) -> list:
    """States of a model's generators of random numbers."""
    weights = {id(weight) for weight in learner.weights}
    others = {id(variable): variable for variable in learner.variables if id(variable) not in weights}
    return [variable for variable in others.values() if "int" in str(variable.dtype)]
