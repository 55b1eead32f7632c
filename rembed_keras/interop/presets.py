"""Presets of keras-hub's, read with what they keep beside weights, and written where they fit."""

import contextlib
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras

from rembed_keras import compat
from rembed_keras.data.json_files import read_json
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError, first_line, shortened
from rembed_keras.interop.vocabularies.files import tokenizer_of
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.objectives.pretraining import PretrainingModel, encoder_of
from rembed_keras.modeling.saving.configuration import OURS, check_names
from rembed_keras.modeling.saving.filling import pieces_of
from rembed_keras.preprocessing import MaskedLMPreprocessor, Tokenizer

HUGGING_FACE = "it is a Hugging Face folder: convert it --from huggingface --to preset first"


def read_preset(folder: Path) -> tuple[keras.Model, list[str]]:
    """Reads a keras-hub preset of an `Encoder` or a `MaskedLM`.

    Raises:
        UserError: if it is not one.
    """
    try:
        config = read_json(folder / "config.json")
        if "registered_name" not in config:
            is_other = "model_type" in config
            raise UserError(HUGGING_FACE if is_other else "its config.json names no class")
        if other := other_class(config):
            raise UserError(f"it is a preset of {other}, not of an Encoder")
        check_names(config)
        task = folder / "task.json"
        objective = _objective(task) if task.exists() else None
        path = str(folder.resolve())  # keras-hub would download models by some relative names
        if objective == "rembed_keras>MaskedLM":
            return MaskedLM.from_preset(path, preprocessor=_preprocessor(folder)), []
        notes = [f"the heads of {objective} are dropped"] if objective else []
        return _encoder(path, config["config"].get("dtype")), notes
    except Exception as error:  # noqa: BLE001 - readers of weights raise many kinds
        reason = first_line(error)
        raise UserError(f"{folder} is not a keras-hub preset: {reason}") from None


def other_class(config: Mapping[str, Any]) -> str | None:
    """What a preset's configuration is of, for messages, if that is no `Encoder`, as of keras-hub's own; else None."""
    name = config["registered_name"]
    return None if name == f"{OURS}Encoder" else shortened(name)


def _encoder(path, said):
    """The encoder of a preset, of the dtype or policy that it says; so reads keras-hub 0.21, and later ones do not."""
    encoder = Encoder.from_preset(path, preprocessor=None)
    read, wanted = map(keras.dtype_policies.serialize, (encoder.dtype_policy, keras.dtype_policies.get(said)))
    if said is None or read == wanted:
        return encoder
    return Encoder.from_preset(path, preprocessor=None, dtype=said)


def _objective(task):
    config = read_json(task)
    if str(config.get("registered_name")).startswith(OURS):
        check_names(config)
    return config["registered_name"]


def _preprocessor(folder):
    """A preset's preprocessor, of which the file says settings alone; None for a preset without a tokenizer."""
    about, tokenizer = folder / "preprocessor.json", tokenizer_of(folder)
    if tokenizer is None:
        return None
    said = read_json(about).get("config", {}) if about.exists() else {}
    settings = {key: said[key] for key in MaskedLMPreprocessor.settings if key in said}
    return MaskedLMPreprocessor(Tokenizer(tokenizer), **settings)


def write_preset(model: keras.Model, folder: Path, tokenizer: AnyTokenizer | None, former: Any = None) -> list[str]:
    """Writes a keras-hub preset, with the tokenizer, and for a model that pre-trains its preprocessor.

    Args:
        model: an `Encoder` or a model that pre-trains one.
        folder: an empty folder.
        tokenizer: the tokenizer, whose file is in the folder; None if there is none.
        former: the preprocessor whose settings the new one has; a new one's by default.
    """
    reserve(folder, model)
    layer = Tokenizer(tokenizer.path) if tokenizer else None
    with compat.saved_in_pieces(pieces_of), _read_by(model, layer, former):
        model.save_to_preset(str(folder))
    if layer and not isinstance(model, PretrainingModel):
        layer.save_to_preset(str(folder))
    return []


@contextlib.contextmanager
def _read_by(model, layer, former):
    """While open, a model has a tokenizer alone, whatever read its texts before; without one it keeps what it has."""
    if layer is None:
        yield
        return
    encoder = encoder_of(model)
    own, encoder.preprocessor = encoder.preprocessor, None
    settings = {key: getattr(former, key) for key in MaskedLMPreprocessor.settings if hasattr(former, key)}
    is_pretraining = isinstance(model, PretrainingModel)
    try:
        with model.preprocessed_by(MaskedLMPreprocessor(layer, **settings)) if is_pretraining else nullcontext():
            yield
    finally:
        encoder.preprocessor = own


def reserve(folder: Path, model: keras.Model, widths: Sequence[int] = (4,)) -> None:
    """Checks that weights can be written: HDF5 does not survive a full disk, and floods stderr.

    Args:
        folder: where they are written.
        model: whose weights.
        widths: bytes of a number in each file that has all of them.

    Raises:
        OSError: if there is no room.
    """
    size = sum(width * math.prod(weight.shape) + 4096 for width in widths for weight in model.weights)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)
