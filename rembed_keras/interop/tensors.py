"""Safetensors files, read and written in parts: neither takes a second copy of a model in memory.

A file is reopened for every part, since the pages that were read of an open one stay in memory.
"""

import ctypes
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from rembed_keras.errors import UserError

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class Stored:
    """An array in a file, read lazily: it has a shape and a type, and slicing reads.

    Args:
        path: the file.
        name: the array's name in it.

    Attributes:
        shape: its shape.

    Raises:
        UserError: for numbers of a type that NumPy lacks, such as those of 8 bits.
    """

    def __init__(self, path: Path, name: str):
        self.path, self.name = path, name
        with _opened(path) as file:
            part = file.get_slice(name)
            self.shape, kind = tuple(part.get_shape()), part.get_dtype()
        if kind.startswith("F") and kind not in NAMES.values():
            raise UserError(f"{path}: {name} has numbers of type {kind}, which NumPy lacks: save it in 16 or 32 bits")

    def __getitem__(self, rows) -> np.ndarray:
        """A part of it, by a slice or a slice for each of its axes."""
        with self._opened() as file:
            return file.get_slice(self.name)[rows]

    def __array__(self, dtype=None, copy=None):
        with self._opened() as file:
            array = file.get_tensor(self.name)
        return array if dtype is None else array.astype(dtype, copy=False)

    def _opened(self):
        if not self.path.exists():  # where it was a while ago
            raise UserError(
                f"{self.path} is gone since it was found; of a run that goes on name a checkpoint that stays, as "
                "keep_checkpoint_every and keep_best have some stay"
            )
        return _opened(self.path)

    @property
    def dtype(self) -> np.dtype:
        """Its numbers' type."""
        return self[:0].dtype if self.shape else np.asarray(self).dtype


class Tensors(Mapping[str, Stored]):
    """The arrays of files, by name.

    Args:
        paths: the files; of two arrays of one name, that of the later file counts.

    Raises:
        UserError: for a file that is not a safetensors file.
    """

    def __init__(self, *paths: Path):
        self._files: dict[str, Path] = {}
        for path in paths:
            with _opened(path) as file:
                self._files |= dict.fromkeys(file.keys(), path)

    def __getitem__(self, name: str) -> Stored:
        return Stored(self._files[name], name)

    def __contains__(self, name: object) -> bool:
        return name in self._files  # without a look into the file

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def write_tensors(tensors: Mapping[str, Any], path: Path) -> None:
    """Writes a safetensors file, whose arrays are made one after the other.

    Args:
        tensors: by name, each with a shape, a dtype, and `pieces()`, which yields its rows, few at a time.
        path: the file.

    Raises:
        OSError: if it cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        kind = NAMES[np.dtype(tensor.dtype).name]
        header[name] = {"dtype": kind, "shape": [*tensor.shape], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.writelines(piece.tobytes() for piece in tensor.pieces())
            _give_back()


def _give_back():
    """Has the C library return what it keeps of freed copies of matrices, a tenth of a model; see malloc_trim(3)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    if trim is not None:
        trim(0)


def _opened(path):
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a complete safetensors file, download it again: {error}") from None
