"""Conversion of models between formats, through an `Encoder` or `MaskedLM`.

Formats are `huggingface` and `preset`; `tf1`, which is only read; and `savedmodel`, which is only written. Targets are
written atomically.
"""

import contextlib
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import keras
from safetensors import SafetensorError

from rembed_keras import compat
from rembed_keras.data.json_files import read_json
from rembed_keras.data.tokenizers.opening import open_tokenizer, tokenizer_files
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer as SentencePiece
from rembed_keras.errors import UserError, shortened
from rembed_keras.interop.huggingface.read import huggingface_arguments, read_huggingface
from rembed_keras.interop.huggingface.tokenizer import write_tokenizer
from rembed_keras.interop.huggingface.write import write_huggingface
from rembed_keras.interop.saved_model import write_saved_model
from rembed_keras.interop.spm import from_fairseq
from rembed_keras.interop.tf_checkpoint import read_tf1
from rembed_keras.interruption import stop_if_asked
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.blocks.stack import kept_arguments
from rembed_keras.modeling.objectives.pretraining import PretrainingModel, encoder_of
from rembed_keras.modeling.saving.configuration import OURS, check_names
from rembed_keras.modeling.saving.filling import pieces_of
from rembed_keras.modeling.saving.presets import folder_of
from rembed_keras.preprocessing import MaskedLMPreprocessor, Tokenizer

TOKENIZER = "tokenizer.model"  # its name in presets
THEIR_TOKENIZERS = ("sentencepiece.model", "spiece.model", "tokenizer.model", "tokenizer.json", "vocab.txt")
FAIRSEQ_TOKENIZER = "sentencepiece.bpe.model"


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
    model, notes = READERS[source_kind](path)
    return notes + write(model, target, target_kind, Path(tokenizer) if tokenizer else tokenizer_of(path), family)


def write(
    model: keras.Model, target: str, target_kind: str, tokenizer: Path | None, family: str | None = None
) -> list[str]:
    """Writes a model in a format.

    Args:
        model: an `Encoder` or a model that pre-trains one.
        target: the folder to write, which must not exist.
        target_kind: "huggingface", "preset" or "savedmodel".
        tokenizer: a tokenizer's file to store with it; None for none.
        family: see `write_huggingface`.

    Returns:
        Notes on the result, a line each.

    Raises:
        UserError: if the target cannot represent the model or exists; nothing is written then.
    """
    if target_kind not in WRITERS:
        raise UserError(f"{target_kind} cannot be written; writable formats are {', '.join(WRITERS)}")
    writer = WRITERS[target_kind]
    if family is not None:
        if target_kind != "huggingface":
            raise UserError(f"a family is one of Hugging Face's models, and the target is a {target_kind}")
        writer = partial(write_huggingface, family=family)
    model, notes = (model, []) if target_kind == "preset" else plain_masked_lm(model)
    rows = encoder_of(model).get_config()["vocabulary_size"]
    with written_whole(Path(target)) as folder:
        vocabulary = copy_tokenizer(tokenizer, folder) if tokenizer else None
        if vocabulary is not None and vocabulary.vocabulary_size > rows:
            raise UserError(f"the tokenizer has {vocabulary.vocabulary_size} pieces and the model only {rows} rows")
        notes += writer(model, folder, vocabulary)
        if vocabulary is not None:
            notes += _place_tokenizer(vocabulary, folder, target_kind)
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
        UserError: if it exists.
    """
    if target.exists():
        raise UserError(f"{target} already exists: remove it or choose another folder")


@contextlib.contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target`, which is renamed to it on success and removed on failure.

    Raises:
        UserError: if the target exists or cannot be written.
    """
    check_absent(target)
    writing = target.with_name(f".{target.name}.writing")
    try:
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        yield writing
        stop_if_asked()
        os.rename(writing, target)
    except (OSError, SafetensorError, *_errors_of_tensorflow()) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"{target} cannot be written: {reason}") from None
    finally:
        shutil.rmtree(writing, ignore_errors=True)


def _errors_of_tensorflow():
    """TensorFlow's counterpart of OSError, if TensorFlow is loaded."""
    tensorflow = sys.modules.get("tensorflow")
    return (tensorflow.errors.OpError,) if tensorflow else ()


def read_model(source: str) -> tuple[keras.Model, Path | None]:
    """Reads a preset or a Hugging Face folder, and the path of its tokenizer's file if it has one.

    Raises:
        UserError: if it is neither.
    """
    path = folder_of(source)
    try:
        config = read_json(path / "config.json")
    except UserError:
        raise UserError(f"{source} is not a run, a keras-hub preset or a Hugging Face model") from None
    model, _ = READERS["preset" if "registered_name" in config else "huggingface"](path)
    return model, tokenizer_of(path)


def encoder_arguments(folder: Path) -> dict:
    """Arguments of the encoder that a preset or a Hugging Face folder keeps, as `read_model` would make it.

    Raises:
        UserError: if it is neither.
    """
    config = read_json(folder / "config.json")
    if "registered_name" not in config:
        return huggingface_arguments(folder)
    task = read_json(folder / "task.json") if (folder / "task.json").exists() else {}
    return kept_arguments(config["config"], task.get("config", {}))


def read_preset(folder: Path) -> tuple[keras.Model, list[str]]:
    """Reads a keras-hub preset of an `Encoder` or a `MaskedLM`.

    Raises:
        UserError: if it is not one.
    """
    try:
        config = read_json(folder / "config.json")
        name = config["registered_name"]
        if name != "rembed_keras>Encoder":
            raise UserError(f"it is a preset of {shortened(name)}, not of an Encoder")
        check_names(config)
        task = folder / "task.json"
        objective = _objective(task) if task.exists() else None
        path = str(folder.resolve())  # keras-hub would download models by some relative names
        if objective == "rembed_keras>MaskedLM":
            return MaskedLM.from_preset(path, preprocessor=None), []
        notes = [f"the heads of {objective} are dropped"] if objective else []
        return Encoder.from_preset(path, preprocessor=None), notes
    except Exception as error:  # noqa: BLE001 - readers of weights raise many kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{folder} is not a keras-hub preset: {reason}") from None


def _objective(task):
    config = read_json(task)
    if str(config.get("registered_name")).startswith(OURS):
        check_names(config)
    return config["registered_name"]


def write_preset(model: keras.Model, folder: Path, tokenizer: AnyTokenizer | None) -> list[str]:
    """Writes a keras-hub preset, with the tokenizer, and for a model that pre-trains its preprocessor."""
    _reserve(folder, sum(4 * math.prod(weight.shape) + 4096 for weight in model.weights))
    layer = Tokenizer(tokenizer.path) if tokenizer else None
    is_pretraining = isinstance(model, PretrainingModel)
    with contextlib.ExitStack() as saving:
        saving.enter_context(compat.saved_in_pieces(pieces_of))
        if layer and is_pretraining:
            saving.enter_context(model.preprocessed_by(MaskedLMPreprocessor(layer)))
        model.save_to_preset(str(folder))
    if layer and not is_pretraining:
        layer.save_to_preset(str(folder))
    return []


def _reserve(folder, size):
    """Checks that `size` bytes can be written: HDF5 does not survive a full disk, and floods stderr."""
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)


READERS: dict[str, Callable] = {"huggingface": read_huggingface, "tf1": read_tf1, "preset": read_preset}
WRITERS: dict[str, Callable] = {
    "huggingface": write_huggingface,
    "preset": write_preset,
    "savedmodel": write_saved_model,
}


def tokenizer_of(source: Path) -> Path | None:
    """The tokenizer's file in a folder; None if there is no usable one."""
    return next(iter(tokenizer_files(source, (FAIRSEQ_TOKENIZER, *THEIR_TOKENIZERS))), None)


def copy_tokenizer(path: Path, folder: Path) -> AnyTokenizer:
    """Copies a tokenizer's file into a folder; one of fairseq's, as XLM-R's is, is renumbered.

    Raises:
        UserError: if it is no tokenizer.
    """
    if path.name != FAIRSEQ_TOKENIZER:
        return open_tokenizer(open_tokenizer(path).copy_to(folder))
    from_fairseq(path, folder / TOKENIZER)
    return SentencePiece(folder / TOKENIZER)


def _place_tokenizer(vocabulary, folder, target_kind):
    """Renames the tokenizer's file to the target's convention; returns notes."""
    notes = []
    if target_kind == "huggingface":
        notes = write_tokenizer(vocabulary, folder)
    elif target_kind == "savedmodel":
        (folder / "assets").mkdir(exist_ok=True)
        os.rename(vocabulary.path, folder / "assets" / vocabulary.file_name)
    return notes
