"""Checkpoints that a killed run can trust.

One folder a step, `step-00001000/`, with the encoder, the head and the optimizer in files of their own, so that the
head is dropped by not being loaded. `state.json` holds what is neither (the step, the model's configuration, the
generators of random numbers, running means) and checksums of itself and of every file beside it. A folder is written
under a temporary name, flushed to disk and renamed: it is there whole or not at all, and one that was damaged later is
named and passed over. Arrays are safetensors: no code runs on loading.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from rembed_keras.data.json_files import is_as_sealed, parse_json, read_json, sealed
from rembed_keras.data.text import sha256
from rembed_keras.data.writing import descriptor_of, write_atomically
from rembed_keras.errors import Count, UserError, check_counts
from rembed_keras.interop.tensors import Stored, Tensors
from rembed_keras.modeling.saving.filling import Rows, fill
from rembed_keras.training.distributed.meshes import whole

BEST, HELD = "best.json", "held"  # names the checkpoint of the best evaluation; is in one that models start from


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole.

    Attributes:
        path: its folder.
        step: the steps taken when it was written.
        state: what belongs to no file: "running", states of random generators and running means; "model", the
            configuration of the model.
    """

    path: Path
    step: int
    state: dict

    def arrays(self, part: str) -> Tensors:
        """Arrays of "encoder", "head" or "optimizer", by variable path; each is read where it is asked for."""
        return Tensors(self.path / f"{part}.safetensors")


def save(
    folder: Path,
    step: int,
    parts: dict[str, dict[str, np.ndarray]],
    state: dict,
    keep: Count = 2,
    keep_every: Count | None = None,
    every: Count = 1,
    best: int | None = None,
) -> Path:
    """Writes a checkpoint whole, then removes old ones; returns its folder.

    Args:
        folder: the folder of checkpoints.
        step: the steps taken so far.
        parts: arrays by variable path, for each of "encoder", "head" and "optimizer".
        state: what is neither, as JSON can say it; see `Checkpoint`.
        keep: how many of the newest checkpoints stay.
        keep_every: checkpoints of these steps, and their multiples, stay too.
        every: steps between checkpoints; one of another step, which training that was asked to stop has left, does not
            stay once there is a newer one.
        best: the step whose checkpoint stays because it is the best; `best.json` says which.

    Raises:
        UserError: if it cannot be written; nothing of it is left then, and older checkpoints stay.
    """
    target = folder / _name(step)
    writing = folder / f".writing-{target.name}"
    _remove_stale(folder)
    try:
        writing.mkdir(parents=True)
        _write(writing, step, parts, state)
        if (target / HELD).exists():  # of a checkpoint that was damaged since
            (writing / HELD).touch()
        shutil.rmtree(target, ignore_errors=True)
        os.rename(writing, target)
        _flush(folder)
    except (OSError, SafetensorError) as error:
        raise UserError(f"checkpoint {target} cannot be written: {error}") from None
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    tidy(folder, step, keep, keep_every, every, best)
    return target


def tidy(
    folder: Path,
    step: int,
    keep: Count = 2,
    keep_every: Count | None = None,
    every: Count = 1,
    best: int | None = None,
) -> None:
    """Removes what does not stay beside a step's checkpoint nor is held, and what a process that was killed has left.

    Args:
        folder: the folder of checkpoints.
        step: of the newest checkpoint that is whole; newer ones are damaged, or they would have been used.
        keep: as in `save`.
        keep_every: as in `save`.
        every: as in `save`.
        best: as in `save`.

    Raises:
        UserError: for a number that is not positive; nothing is removed then.
    """
    check_counts({"keep_checkpoints": keep, "keep_checkpoint_every": 1 if keep_every is None else keep_every})
    there = by_step(folder)
    if best is None and (folder / BEST).exists():  # of a training before, which kept it
        best = read_json(folder / BEST).get("step")
    regular = sorted(number for number in there if number == step or (number < step and number % every == 0))
    stay = {step, best, *regular[-keep:], *(number for number in regular if keep_every and number % keep_every == 0)}
    if best is not None:
        write_atomically(folder / BEST, json.dumps({"step": best, "checkpoint": _name(best)}))
    _remove_stale(folder)
    for number in [each for each in there.keys() - stay if not (there[each] / HELD).exists()]:
        there[number].rename(folder / f".writing-{there[number].name}")  # there whole or not at all
    _remove_stale(folder)


def _name(step):
    return f"step-{step:08d}"


def best(folder: Path) -> Checkpoint | None:
    """The checkpoint of the best evaluation, as far as `pretrain`'s `keep_best` keeps it; None if it kept none.

    Raises:
        UserError: if it is damaged or gone.
    """
    if not (folder / BEST).exists():
        return None
    step = read_json(folder / BEST).get("step")
    found = next((found for found in newest_first(folder, lambda line: None) if found.step == step), None)
    if found is None:
        raise UserError(f"{folder / BEST} names step {step}, of which {folder} has no checkpoint that is whole")
    return found


def _remove_stale(folder):
    for stale in folder.glob(".writing-*"):
        (shutil.rmtree if stale.is_dir() else os.unlink)(stale)


def _write(folder, step, parts, state):
    """Writes the files of a checkpoint and flushes them to disk."""
    checksums = {}
    for part, arrays in parts.items():
        save_file(arrays, folder / f"{part}.safetensors")
        checksums[f"{part}.safetensors"] = sha256(folder / f"{part}.safetensors")
    record = sealed({"step": step, "state": state, "sha256": checksums})
    (folder / "state.json").write_text(json.dumps(record, indent=1))
    for file in (*folder.iterdir(), folder):
        _flush(file)


def latest(folder: Path, warn=print) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there never was one. See `newest_first`.

    Raises:
        UserError: if there are checkpoints and all are damaged: to start from scratch is not for us to decide.
    """
    found = next(newest_first(folder, warn), None)
    if found is None and by_step(folder):
        raise UserError(
            f"{folder} has no checkpoint that is whole: bring one back, or remove the folder to start from scratch"
        )
    return found


def newest_first(folder: Path, warn=print) -> Iterator[Checkpoint]:
    """Yields the checkpoints that are whole; damaged ones are named and passed over.

    Args:
        folder: the folder of checkpoints; it need not exist.
        warn: called with one line for each damaged checkpoint.
    """
    for path in reversed(by_step(folder).values()):
        if (found := whole_in(path, warn)) is not None:
            yield found


def by_step(folder: Path) -> dict[int, Path]:
    """The folders of checkpoints by their steps, rising; a copy under another name is nobody's but the user's."""
    named = ((re.fullmatch(r"step-([0-9]{8,})", path.name), path) for path in folder.glob("step-*"))
    return dict(sorted((int(name[1]), path) for name, path in named if name))


def whole_in(path: Path, warn=print) -> Checkpoint | None:
    """The checkpoint in a folder if it is whole; else it is named to `warn`."""
    try:
        record = parse_json((path / "state.json").read_text(encoding="utf-8"), path)
        digests = {path / Path(name).name: digest for name, digest in record["sha256"].items()}
        damaged = [file.name for file, digest in digests.items() if sha256(file) != digest]
        if not (isinstance(record["step"], int) and isinstance(record["state"], dict) and is_as_sealed(record)):
            damaged = ["state.json"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        damaged = ["state.json"]
    if damaged:
        warn(f"checkpoint {path} is passed over: {damaged[0]} is damaged or missing")
        return None
    return Checkpoint(path, record["step"], record["state"])


def read(variable) -> np.ndarray:
    """A variable's value; where it is spread over several processes, all of them must ask for it."""
    return np.asarray(whole(keras.ops.copy(variable.value)), order="C")


def read_arrays(variables) -> dict[str, np.ndarray]:
    """Values of variables by their paths."""
    arrays = {variable.path: read(variable) for variable in variables}
    assert len(arrays) == len(variables), "two variables of one path cannot be distinguished in a file"
    return arrays


def assign_arrays(variables, arrays: Mapping[str, Rows], source: Path) -> None:
    """Gives variables the values of a file, after all names and shapes were found to agree.

    Args:
        variables: Keras variables.
        arrays: values by variable path; what no variable asks for is left aside.
        source: where the arrays came from, for messages.

    Raises:
        UserError: naming the first variable that is missing or has another shape; nothing was changed then.
    """
    assign_named({variable.path: variable for variable in variables}, arrays, source)


def assign_named(
    variables: Mapping[str, keras.Variable], arrays: Mapping[str, Rows], source: Path, owner: str = "model"
) -> None:
    """Gives variables the values of a file as `assign_arrays` does, by names instead of paths.

    `owner` is what the variables belong to, for messages.
    """
    for name, variable in variables.items():
        if name not in arrays:
            raise UserError(f"{source} has no {name}: it is of another {owner}")
        found, wanted = tuple(arrays[name].shape), tuple(variable.shape)
        if found != wanted:
            raise UserError(f"{source}: {name} has shape {found}, the recipe's {wanted}")
    for name, variable in variables.items():
        fill(variable, arrays[name])


def assign_in_order(variables, values: list[tuple[str, Rows]], source: Path) -> None:
    """Gives variables the values of as many others, in their order.

    Args:
        variables: Keras variables.
        values: names, for messages, and values.
        source: where the values came from, for messages.

    Raises:
        UserError: for another number of them, or the first that has another shape; nothing was changed then.
    """
    if len(variables) != len(values):
        raise UserError(f"{source} has {len(values)} weights where {len(variables)} belong: it is of another model")
    for variable, (name, value) in zip(variables, values, strict=True):
        if tuple(variable.shape) != tuple(value.shape):
            raise UserError(f"{source}: {name} has shape {tuple(value.shape)}, the model's {tuple(variable.shape)}")
    for variable, (_, value) in zip(variables, values, strict=True):
        fill(variable, value if isinstance(value, Stored | np.ndarray) else read(value))


def opened(path: Path) -> Checkpoint:
    """The checkpoint in a folder, whose files' checksums are not compared.

    Raises:
        UserError: if it is none.
    """
    record = read_json(path / "state.json")
    if not (isinstance(record.get("step"), int) and isinstance(record.get("state"), dict)):
        raise UserError(f"{path / 'state.json'} describes no checkpoint")
    return Checkpoint(path, record["step"], record["state"])


def _flush(path: Path) -> None:
    with descriptor_of(path) as descriptor:
        os.fsync(descriptor)
