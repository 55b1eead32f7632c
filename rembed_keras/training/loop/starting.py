"""Where a fine-tuned model started: the weights that its checkpoints leave out, since fine-tuning did not change them.

Many tasks share one encoder, and most of what a parameter-efficient method would write is that encoder again. Such a
checkpoint holds what was trained or added, and says where the encoder started from and what its checksum is. The
checksum is of the values, so that weights that were moved or converted are recognized. It is of those that the model
has, in its dtype; a second one, of those that it was given, is the same for models of any dtype.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import keras
import numpy as np

from rembed_keras.data.moved import located
from rembed_keras.errors import UserError, shortened
from rembed_keras.interop.tensors import Stored
from rembed_keras.modeling.layers.adapters import added_variables, hosted_by
from rembed_keras.modeling.saving import presets
from rembed_keras.training.loop import checkpoints

PARTS = ("checkpoints", "finetuned")  # of a run, that have checkpoints
GIVEN = "given_sha256"  # of the values before they took the dtype of a model


def checksum(values: Iterable[keras.Variable | Stored | np.ndarray]) -> str:
    """Checksum of the values of variables or arrays, in their order, in hexadecimal digits."""
    digest = hashlib.sha256()
    for each in values:
        value = np.asarray(each) if isinstance(each, Stored | np.ndarray) else checkpoints.read(each)
        digest.update(f"{value.dtype} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def base_weights(model) -> list:
    """The encoder's weights without those that the model's fine-tuning methods added: what it started from."""
    encoder = model.encoder
    others = [layer for layer in hosted_by(encoder) if id(layer) not in model.added]
    before = {id(weight) for layer in others for weight in layer.weights}
    added = {id(weight) for weight in added_variables(encoder)} - before
    return [weight for weight in encoder.weights if id(weight) not in added]


def is_partial(model, owned) -> bool:
    """Whether a tuned model has weights that it reads and that are not its own.

    Args:
        model: a task model.
        owned: the variables that are its own.
    """
    own = {id(variable) for variable in owned}
    left = [weight for weight in model.encoder.weights if id(weight) not in own]
    return bool(left if model.reads == "pooled_output" else model.encoder.without_pooler(left))


def checksum_of(start: object) -> str | None:
    """The checksum in what a checkpoint or a model says of its start."""
    return start.get("sha256") if isinstance(start, dict) else None


def are_same(one: object, other: object) -> bool:
    """Whether what two checkpoints or models say of their starts is of the same weights, in any dtype."""
    if checksum_of(one) == checksum_of(other):
        return True
    given = [start.get(GIVEN) if isinstance(start, dict) else None for start in (one, other)]
    return given[0] is not None and given[0] == given[1]


def folder_of(start: object, path: Path) -> Path:
    """Where the starting weights of a checkpoint are.

    Args:
        start: "place" and "sha256"; a place is absolute, or the name of a preset, or in the run of the checkpoint;
            see `data.moved` for one that was moved together with the run.
        path: the checkpoint's folder.

    Raises:
        UserError: if they are gone.
    """
    note = start if isinstance(start, dict) else {}
    place = note.get("place")
    if not isinstance(place, str) or "\0" in place:
        raise UserError(f"checkpoint {path}: its start is {shortened(start)}, which names no starting weights")
    if place in presets.names():
        return presets.FOLDER / place
    above = [*path.absolute().parents, *path.resolve().parents]  # parts of a run may be links, and so may a model
    found = located(note, [each.parent for each in above if each.name in PARTS])
    if not found.is_dir():
        raise UserError(f"checkpoint {path} holds what fine-tuning trained; its starting weights, {place}, are gone")
    return found
