"""Weights that come from a file or go to one: allocated as zeros, filled a few rows at a time, read in place.

Drawing initial values takes as much memory again as the largest table has, and so does an assignment of the whole of
it. The largest table of a model that spends its parameters on the output is nearly half of it.
"""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache, partial
from typing import Protocol

import keras
import numpy as np

PIECE = 2**20  # numbers that are assigned at once
_IS_BLANK: ContextVar[bool] = ContextVar("is_blank", default=False)


class Rows(Protocol):
    """An array, or what gives rows of one that is in a file."""

    shape: tuple[int, ...]

    def __getitem__(self, rows: slice) -> np.ndarray: ...


@contextlib.contextmanager
def blank() -> Iterator[None]:
    """Makes weights that are drawn at random begin as zeros, since they will be filled.

    >>> from rembed_keras.modeling import Encoder
    >>> with blank():
    ...     encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> float(keras.ops.max(encoder.token_embedding.embeddings))
    0.0
    """
    token = _IS_BLANK.set(True)
    try:
        yield
    finally:
        _IS_BLANK.reset(token)


def is_blank() -> bool:
    """Whether weights begin as zeros."""
    return _IS_BLANK.get()


def fill(variable, rows: Rows) -> None:
    """Gives a variable its value.

    Args:
        variable: a Keras variable.
        rows: its value, of the same shape.
    """
    size = int(np.prod(variable.shape))
    if variable.ndim < 1 or size <= PIECE or not _lives_on_one_device(variable):
        variable.assign(np.asarray(rows))
        return
    step = max(1, PIECE * variable.shape[0] // size)
    for start in range(0, variable.shape[0], step):
        stop = min(start + step, variable.shape[0])
        piece = np.asarray(rows[start:stop]).astype(variable.dtype, copy=False)
        if keras.config.backend() == "tensorflow":
            # and not `value[start:stop].assign`, which reads the variable first, so that it is copied when it changes
            variable.value.scatter_nd_update(np.arange(start, stop)[:, None], piece)
        else:
            variable.assign(_write_rows()(variable.value, piece, start).block_until_ready())  # or pieces wait in a row


def values_of(variable) -> np.ndarray:
    """The values of a variable, where they are if that is this machine's memory: they must not be changed.

    >>> values_of(keras.Variable([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return np.asarray(keras.ops.convert_to_tensor(variable))


class Values:
    """The values of a variable, read when they are asked for, whole or a few rows of them.

    Args:
        variable: a Keras variable.

    Attributes:
        shape: its shape.
        dtype: its numbers' type.
    """

    def __init__(self, variable):
        self._variable = variable
        self.shape: tuple[int, ...] = tuple(variable.shape)
        self.dtype = np.asarray(keras.ops.zeros((1,), variable.dtype)).dtype  # of a scalar of 16 bits NumPy makes none

    def __array__(self, dtype=None, copy=None):
        array = values_of(self._variable)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __getitem__(self, rows: slice) -> np.ndarray:
        if keras.config.backend() == "tensorflow" and _lives_on_one_device(self._variable):
            # a variable that was filled a few rows at a time is copied when it is read whole
            return self._variable.value.sparse_read(np.arange(self.shape[0])[rows]).numpy()
        return values_of(self._variable)[rows]

    def pieces(self) -> Iterator[np.ndarray]:
        """Yields all rows, few at a time."""
        step = max(1, PIECE * self.shape[0] // math.prod(self.shape))
        for start in range(0, self.shape[0], step):
            yield self[start : start + step]


def pieces_of(value: object) -> Iterator[np.ndarray]:
    """Yields the rows of a large variable of float32, few at a time; nothing of anything else."""
    if isinstance(value, keras.Variable) and math.prod(value.shape) > PIECE and value.dtype == "float32":
        yield from Values(value).pieces()


def _lives_on_one_device(variable):
    """Whether rows of it can be assigned where they are; of several replicas it has a value each."""
    value, backend = variable.value, keras.config.backend()
    if backend == "tensorflow":
        return hasattr(value, "scatter_nd_update") and not hasattr(value, "values")
    return backend == "jax" and len(value.sharding.device_set) == 1


@cache
def _write_rows():
    """On JAX: rows into a value, whose memory the result takes over."""
    import jax

    return jax.jit(partial(jax.lax.dynamic_update_slice_in_dim, axis=0), donate_argnums=0)
