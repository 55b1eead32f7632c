"""Conversion of models between formats, through an `Encoder` or `MaskedLM`.

Formats are `huggingface` and `preset`; `tf1`, which is only read; and `savedmodel`, which is only written. Targets are
written atomically.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import keras
from safetensors import SafetensorError

from rembed_keras.data.json_files import read_json
from rembed_keras.data.writing import check_folder_access, descriptor_of, locked
from rembed_keras.errors import UserError, first_line
from rembed_keras.interop.huggingface.read import huggingface_arguments, read_huggingface
from rembed_keras.interop.huggingface.write import check_family, write_huggingface
from rembed_keras.interop.in_graph import check_in_graph, check_servable
from rembed_keras.interop.presets import other_class, read_preset, write_preset
from rembed_keras.interop.saved_model import write_saved_model
from rembed_keras.interop.tf_checkpoint import read_tf1
from rembed_keras.interop.vocabularies.files import copy_tokenizer, opened_tokenizer, place_tokenizer, tokenizer_of
from rembed_keras.interruption import stop_if_asked
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.blocks.stack import kept_arguments
from rembed_keras.modeling.objectives.pretraining import PretrainingModel, encoder_of
from rembed_keras.modeling.saving.presets import folder_of

NO_TOKENIZER = "no tokenizer is stored: the folder has none that is read here; name its file with --tokenizer"

FOREIGN = ("huggingface", "tf1")  # formats of models that have a tokenizer, if not always one that is read here


def convert(
    source: str,
    target: str,
    source_kind: str,
    target_kind: str,
    tokenizer: str | None = None,
    family: str | None = None,
) -> list[str]:
    """Reads a model in one format and writes it in another.

    Args:
        source: path of the model.
        target: the folder to write, which must not exist.
        source_kind: "huggingface", "tf1" or "preset".
        target_kind: "huggingface", "preset" or "savedmodel".
        tokenizer: a tokenizer's file to store with it; that of the source by default, if it has one.
        family: see `write_huggingface`.

    Returns:
        Notes on the result, a line each.

    Raises:
        UserError: if the source is not of its format, or the target cannot represent it or exists; nothing is written
            then.
    """
    if source_kind not in READERS:
        raise UserError(f"{source_kind} cannot be read; readable formats are {', '.join(READERS)}")
    path = folder_of(source)
    if source_kind != "tf1" and not path.is_dir():
        raise UserError(f"{source} is not a folder")
    check_target(target, target_kind, family)
    model, notes = READERS[source_kind](path)
    file = Path(tokenizer) if tokenizer else tokenizer_of(path if path.is_dir() else path.parent)
    if file is None and source_kind in FOREIGN:
        notes.append(NO_TOKENIZER)
    if file is not None and not tokenizer and not path.is_dir():
        notes.append(f"the tokenizer is {file}, beside the checkpoint; --tokenizer names another")
    return notes + write(model, target, target_kind, file, family)


def check_target(target: str | Path, target_kind: str, family: str | None = None) -> None:
    """Checks, before anything is read, what is to be written where.

    Args:
        target: the folder.
        target_kind: "huggingface", "preset" or "savedmodel".
        family: the name of one of Hugging Face's; None for none.

    Raises:
        UserError: for an unknown format or family, a family of another format, a target that exists, or a SavedModel
            where Keras does not run on TensorFlow.
    """
    if target_kind not in WRITERS:
        raise UserError(f"{target_kind} cannot be written; writable formats are {', '.join(WRITERS)}")
    if family is not None:
        if target_kind != "huggingface":
            raise UserError(f"a family is one of Hugging Face's models, and the target is a {target_kind}")
        check_family(family)
    check_absent(Path(target))
    if target_kind == "savedmodel":
        check_servable()


def write(
    model: keras.Model,
    target: str,
    target_kind: str,
    tokenizer: Path | None,
    family: str | None = None,
    preprocessor: Any = None,
) -> list[str]:
    """Writes a model in a format.

    Args:
        model: an `Encoder` or a model that pre-trains one.
        target: the folder to write, which must not exist.
        target_kind: "huggingface", "preset" or "savedmodel".
        tokenizer: a tokenizer's file to store with it; None for none.
        family: see `write_huggingface`.
        preprocessor: one whose settings a preset keeps; the model's own by default.

    Returns:
        Notes on the result, a line each.

    Raises:
        UserError: if it is another model, or the target cannot represent it or exists; nothing is written then.
    """
    check_target(target, target_kind, family)
    if not isinstance(model, Encoder | PretrainingModel):
        name = type(model).__name__
        raise UserError(
            f"a {target_kind} is written of an Encoder or a model that pre-trains one, and not of {name}: "
            "give its encoder"
        )
    if target_kind == "savedmodel" and tokenizer:
        check_in_graph(opened_tokenizer(tokenizer))  # under its own name, before it is copied
    writer = WRITERS[target_kind]
    if family is not None:
        writer = partial(write_huggingface, family=family)
    if target_kind == "preset":
        writer = partial(write_preset, former=preprocessor or model.preprocessor)
    model, notes = (model, []) if target_kind == "preset" else plain_masked_lm(model)
    rows = encoder_of(model).get_config()["vocabulary_size"]
    with written_whole(Path(target)) as folder:
        vocabulary = copy_tokenizer(tokenizer, folder) if tokenizer else None
        if vocabulary is not None and vocabulary.vocabulary_size > rows:
            raise UserError(f"the tokenizer has {vocabulary.vocabulary_size} pieces and the model only {rows} rows")
        notes += writer(model, folder, vocabulary)
        if vocabulary is not None:
            notes += place_tokenizer(vocabulary, folder, target_kind)
    return notes


def plain_masked_lm(model: keras.Model) -> tuple[keras.Model, list[str]]:
    """A model without a head other than a masked LM's which reads the last layer of the kept encoder; and notes."""
    is_plain = isinstance(model, MaskedLM) and model.get_config()["kept_layers"] is None
    if is_plain or not isinstance(model, PretrainingModel):
        return model, []
    return model.drop_heads(), ["the pre-training head is dropped: only the encoder is written"]


def check_absent(target: Path) -> None:
    """Checks that a folder can be made, before work is done for it.

    Raises:
        UserError: if it exists, or would be in a folder that is read-only or within a file.
    """
    if target.exists() or target.is_symlink():  # a link to what is gone cannot be replaced by a folder
        raise UserError(f"{target} already exists: remove it or choose another folder")
    check_folder_access(target)


@contextlib.contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target`, which is renamed to it on success and removed on failure.

    Raises:
        UserError: if the target exists or cannot be written, or another process is writing it.
    """
    check_absent(target)
    writing = target.with_name(f".{target.name}.writing")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(_held(writing, target))
            yield writing
            stop_if_asked()
            os.rename(writing, target)
        except (OSError, SafetensorError, *_errors_of_tensorflow()) as error:
            reason = getattr(error, "strerror", None) or first_line(error)
            raise UserError(f"{target} cannot be written: {reason}") from None


@contextlib.contextmanager
def _held(writing, target):
    """A new folder that is locked, and removed in the end unless it was renamed; one that a kill left is emptied.

    So are the folders above it that were not there, where nothing else came into them.
    """
    above = [folder for folder in writing.parents if not folder.exists()]  # the nearest first
    writing.mkdir(parents=True, exist_ok=True)
    with descriptor_of(writing) as lock:
        if not locked(lock):
            raise UserError(f"another process is writing {target}: wait for it, or choose another folder")
        try:
            for left in writing.iterdir():
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield
        finally:
            shutil.rmtree(writing, ignore_errors=True)
            with contextlib.suppress(OSError):  # one that is not empty
                for folder in above:
                    folder.rmdir()


def _errors_of_tensorflow():
    """TensorFlow's counterpart of OSError, if TensorFlow is loaded."""
    tensorflow = sys.modules.get("tensorflow")
    return (tensorflow.errors.OpError,) if tensorflow else ()


def read_model(source: str) -> tuple[keras.Model, Path | None]:
    """Reads a preset or a Hugging Face folder, and the path of its tokenizer's file if it has one.

    Raises:
        UserError: if it is neither.
    """
    return read_with_notes(source)[:2]


def read_with_notes(source: str) -> tuple[keras.Model, Path | None, list[str]]:
    """As `read_model`, and notes on what of the source is left out, a line each.

    Raises:
        UserError: if it is neither.
    """
    path = folder_of(source)
    try:
        config = read_json(path / "config.json")
    except UserError:
        raise UserError(f"{source} is not a run, a keras-hub preset or a Hugging Face model") from None
    kind = "preset" if "registered_name" in config else "huggingface"
    (model, notes), tokenizer = READERS[kind](path), tokenizer_of(path)
    return model, tokenizer, [*notes, NO_TOKENIZER] if tokenizer is None and kind == "huggingface" else notes


def encoder_arguments(folder: Path) -> dict:
    """Arguments of the encoder that a preset or a Hugging Face folder keeps, as `read_model` would make it.

    Raises:
        UserError: if it is neither.
    """
    config = read_json(folder / "config.json")
    if "registered_name" not in config:
        return huggingface_arguments(folder)
    if other := other_class(config):
        raise UserError(f"{folder} is a preset of {other}, not of an Encoder")
    task = read_json(folder / "task.json") if (folder / "task.json").exists() else {}
    return kept_arguments(config["config"], task.get("config", {}))


READERS: dict[str, Callable] = {"huggingface": read_huggingface, "tf1": read_tf1, "preset": read_preset}
WRITERS: dict[str, Callable] = {
    "huggingface": write_huggingface,
    "preset": write_preset,
    "savedmodel": write_saved_model,
}
