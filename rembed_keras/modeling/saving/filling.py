"""Weights that are about to come from a file: allocated as zeros, and filled a few rows at a time.

Drawing initial values takes as much memory again as the largest table has, and so does an assignment of the whole of
it. The largest table of a model that spends its parameters on the output is nearly half of it.
"""

import contextlib
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
