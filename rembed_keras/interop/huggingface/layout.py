"""Names of files of weights, and layouts of arrays: ours, that of matrices, and PyTorch's, which transposes kernels."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rembed_keras.interop.huggingface.families import Place
from rembed_keras.modeling.saving.filling import PIECE

WHOLE, PICKLED = "model.safetensors", "pytorch_model.bin"  # where there are no shards


def to_matrix(path: str, array: np.ndarray) -> np.ndarray:
    """Our array in the plain layout: kernels as [in, out], biases as [out], attention heads concatenated."""
    if path.endswith(("attention_output/kernel", "merge/kernel")):
        return array.reshape(-1, array.shape[-1])  # [H, K, D] -> [H K, D]
    if path.endswith("kernel"):
        return array.reshape(array.shape[0], -1)  # [D, H, K] -> [D, H K]
    return array.reshape(-1) if path.endswith("bias") else array


def is_kernel(path: str) -> bool:
    """Whether PyTorch stores the array transposed."""
    return path.endswith(("kernel", "extended/columns/embeddings"))


def wanted_shape(path: str, shape: Sequence[int], place: Place) -> tuple[int, ...]:
    """The shape of their array in which ours, of a shape, has a place."""
    wanted = to_matrix(path, np.empty(shape, np.bool_)).shape
    if is_kernel(path):
        wanted = wanted[::-1]  # PyTorch keeps [out, in]
    return (wanted[0] * place.parts + place.skipped, *wanted[1:])


class Target:
    """An array of theirs, made of arrays of ours when it is written.

    Args:
        parts: our path, place and value of each, an array or what becomes one; rows that are skipped become
            zeros.

    Attributes:
        shape: its shape.
        dtype: its numbers' type.
    """

    def __init__(self, parts: Sequence[tuple[str, Place, Any]]):
        self._parts = sorted(parts, key=lambda part: part[1].part)
        path, place, value = self._parts[0]
        self.shape = wanted_shape(path, value.shape, place)
        kinds = {np.dtype(each.dtype) for _, _, each in parts}
        widest = max([np.dtype(np.float32), *kinds], key=lambda kind: kind.itemsize)
        self.dtype = value.dtype if len(kinds) == 1 else widest

    def __array__(self, dtype=None, copy=None):
        arrays = []
        for path, place, value in self._parts:
            matrix = to_matrix(path, np.asarray(value).astype(self.dtype, copy=False))
            matrix = matrix.T if is_kernel(path) else matrix
            if place.skipped:
                arrays.append(np.zeros((place.skipped, *matrix.shape[1:]), matrix.dtype))
            arrays.append(matrix)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def pieces(self) -> Iterator[np.ndarray]:
        """Yields its rows, few at a time where they are as ours."""
        path, place, value = self._parts[0]
        if len(self._parts) > 1 or place.skipped or is_kernel(path) or path.endswith("bias") or len(self.shape) < 2:
            yield np.asarray(self)
            return
        step = max(1, PIECE // self.shape[1])
        for start in range(0, self.shape[0], step):
            yield value[start : start + step]


def to_torch(arrays: Sequence[tuple[str, Place, Any]]) -> dict[str, Target]:
    """Arrays of ours in PyTorch's layout under their names, those of one array put together.

    Args:
        arrays: our path, place and value of each.
    """
    parts: dict[str, dict] = {}
    for path, place, value in arrays:
        parts.setdefault(place.name, {})[place.part] = path, place, value
    return {name: Target([*each.values()]) for name, each in parts.items()}


class Source:
    """A tensor of theirs in our layout, read lazily; `Rows` for `fill`.

    Args:
        path: ours.
        tensor: theirs.
        shape: ours.
        place: of ours in theirs.
    """

    def __init__(self, path: str, tensor, shape: Sequence[int], place: Place):
        self.shape: tuple[int, ...] = tuple(shape)
        self._path, self._tensor = path, tensor
        rows = (tensor.shape[0] - place.skipped) // place.parts
        self._first = place.skipped + place.part * rows
        self._last = self._first + rows

    def __getitem__(self, rows: slice) -> np.ndarray:
        if is_kernel(self._path):  # ours is [in, ...] or [H, K, out], theirs [out, in]
            width = self._tensor.shape[1] // self.shape[0]
            theirs = self._tensor[self._first : self._last, rows.start * width : rows.stop * width]
            return np.ascontiguousarray(theirs.T, np.float32).reshape(-1, *self.shape[1:])
        return np.asarray(self._tensor[rows.start + self._first : rows.stop + self._first], np.float32)

    def __array__(self, dtype=None, copy=None):
        array = np.asarray(self._tensor, np.float32)[self._first : self._last]
        return np.ascontiguousarray(array.T if is_kernel(self._path) else array).reshape(self.shape)
