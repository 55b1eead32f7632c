"""A trained encoder as a preset to pass on: without its head, in half the bytes, with its tokenizer and its card.

Numbers are stored as float16 and read as float32: the configuration says float32, and Keras widens what a file has. A
weight moves by at most a 2048th of itself, or by 3e-8 if it is smaller than 6e-5.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np

from rembed_keras.errors import UserError
from rembed_keras.interop.convert import written_whole
from rembed_keras.interop.presets import reserve
from rembed_keras.modeling.objectives.pretraining import kept_encoder
from rembed_keras.preprocessing import TextClassifierPreprocessor, Tokenizer

WEIGHTS = "model.weights.h5"  # in a preset


def pack(model: keras.Model, target: str | Path, tokenizer: Path, texts: Mapping[str, str]) -> int:
    """Writes the kept encoder of a model as a preset in half precision.

    Args:
        model: an `Encoder` or a model that pre-trains one; its head is left out.
        target: the folder to write, which must not exist.
        tokenizer: the file of its tokenizer.
        texts: further files by name, such as a model card.

    Returns:
        Bytes of the folder.

    Raises:
        UserError: if the target exists or cannot be written, or a weight is not within float16's range; nothing is
            written then.
    """
    encoder = kept_encoder(model)
    with written_whole(Path(target)) as folder:
        reserve(folder, encoder, widths=(4, 2))
        former, encoder.preprocessor = encoder.preprocessor, TextClassifierPreprocessor(Tokenizer(tokenizer))
        try:
            encoder.save_to_preset(str(folder), max_shard_size=math.inf)  # one file, which is rewritten
        finally:
            encoder.preprocessor = former
        halve(folder / WEIGHTS)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def halve(path: Path) -> None:
    """Rewrites a file of weights with float16 for float32, compressed.

    Raises:
        UserError: for a weight that is not within float16's range.
    """
    import h5py

    half = path.with_name(f".{path.name}.half")
    with h5py.File(path) as whole, h5py.File(half, "w") as target:
        _copy(whole, target)
    os.replace(half, path)


def _copy(whole, target):
    """Copies a group with all that is in it."""
    target.attrs.update(whole.attrs)
    for name, part in whole.items():
        if hasattr(part, "items"):
            _copy(part, target.create_group(name))
            continue
        value = np.asarray(part)
        if value.dtype == np.float32:
            with np.errstate(over="ignore"):
                value = value.astype(np.float16)
            if not np.isfinite(value).all():
                raise UserError(f"{part.name} has numbers that float16 has not: beyond ±65,504, or non-finite")
        packed = {"compression": "gzip", "shuffle": True} if value.ndim else {}
        target.create_dataset(name, data=value, **packed).attrs.update(part.attrs)
