"""Batches of Keras's loops on a distribution of JAX, whose devices must have as many rows each.

Keras gives them the last batch as it comes, and JAX refuses one that they cannot share evenly: `fit` at the end of its
first epoch. Here that is found before the first step, and `predict` computes the last row again as often as it takes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from rembed_keras.errors import UserError
from rembed_keras.modeling.replicas import devices_of_batch

USUAL = 32  # rows of a batch of Keras's where nobody says how many


def check_shared(x: object, batch_size: int | None = None, held_out: float = 0.0) -> None:
    """Refuses inputs in memory whose batches the devices of a distribution cannot share evenly.

    Args:
        x: a dict of arrays [N, S]; whatever else it is, nothing is checked.
        batch_size: rows of a batch; Keras's by default.
        held_out: the share of the rows, the last ones, that Keras validates on.

    Raises:
        UserError: if a batch, the last one too, has a number of rows that is no multiple of the devices'.
    """
    devices = devices_of_batch()
    if devices == 1 or (rows := _rows(x)) is None:
        return
    size = _checked(batch_size, devices)
    trained = int(rows * (1 - held_out))
    for count in (trained, rows - trained):
        _check_rows(count % size, devices, f"{count} rows in batches of {size} end in one of")


def check_batch(x: object) -> None:
    """As `check_shared`, of one batch."""
    devices = devices_of_batch()
    if devices > 1 and (rows := _rows(x)) is not None:
        _check_rows(rows, devices, "the batch is one of")


def on_shared_rows(predict: Callable[[Any, int | None], Any], x: Any, batch_size: int | None) -> Any:
    """What a model predicts for inputs, where devices share batches evenly though there are rows left over.

    Args:
        predict: gives outputs, each [N, ...], of inputs and the size of batches.
        x: a dict of arrays [N, S], which is handed on with more rows if it takes these; whatever else it is, as it is.
        batch_size: rows of a batch; by default Keras's, or the next number that devices can share evenly.

    Raises:
        UserError: for a size of batches that devices cannot share evenly.
    """
    devices = devices_of_batch()
    if devices == 1 or (rows := _rows(x)) is None:
        return predict(x, batch_size)
    size = _checked(batch_size or USUAL + -USUAL % devices, devices)
    if not (added := -rows % devices):
        return predict(x, size)
    more = {key: np.concatenate([each, np.repeat(each[-1:], added, axis=0)]) for key, each in x.items()}
    return keras.tree.map_structure(lambda each: each[:rows], predict(more, size))


def _rows(x):
    """N of arrays [N, S]; None of whatever else it is."""
    if not isinstance(x, Mapping) or not all(hasattr(each, "shape") for each in x.values()):
        return None
    return next((len(each) for each in x.values()), None)


def _checked(batch_size, devices):
    size = USUAL if batch_size is None else batch_size
    if size % devices:
        raise UserError(f"batch_size is {size}, which {devices} devices cannot share evenly")
    return size


def _check_rows(rows, devices, what):
    if left := rows % devices:
        raise UserError(
            f"{what} {rows}, which {devices} devices cannot share evenly: leave {left} out, or add {devices - left}"
        )
