"""Ids that a table has no row for, refused in a sentence before they are looked up.

JAX computes NaN for them and goes on, TensorFlow names an index or, in a program of XLA's, takes another row.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.losses.row_weights import check_fit

BEYOND = {
    "token": "token id {worst} has no row in the token table: vocabulary_size is {rows}",
    "segment": "segment id {worst} has no row in the segment table: num_segments is {rows}",
    "masked": "mask position {worst} is no token's: rows have {rows}",
    "position": "a document is longer than max_sequence_length, {rows}: cut it, or make an encoder of more positions",
}  # what ids are beyond


def known_values(values: object) -> np.ndarray | None:
    """An array of numbers in memory: an array, a tensor, a list or a column; None for what is none, or of a graph.

    >>> known_values([[1, 2]]).tolist(), known_values(iter([1])), known_values([[1], [2, 3]])
    ([[1, 2]], None, None)
    """
    if not isinstance(values, list) and not hasattr(values, "to_numpy") and not hasattr(values, "shape"):
        return None
    try:
        return np.asarray(values)
    except (TypeError, NotImplementedError, ValueError, RuntimeError):  # JAX's of what other processes hold
        return None


def check_rows(ids, rows: int, message: str, in_graphs: bool = False):
    """Refuses ids that a table has no row for.

    Args:
        ids: int, of any shape.
        rows: how many the table has.
        message: of the error, with places for the `worst` id and the `rows`.
        in_graphs: whether to look at ids in a compiled step too, whose values are known when it runs.

    Returns:
        The ids.

    Raises:
        UserError: for ids that are beyond the table. TensorFlow raises an error of its own in a graph, JAX in a
            compiled step, which hold the same sentence.
    """

    def check(values):
        values = np.asarray(values)
        outside = values[(values < 0) | (values >= rows)]
        if outside.size:
            raise UserError(message.format(worst=outside.flat[0], rows=rows))

    if not _is_traced(ids):
        check(ids)
    elif in_graphs and keras.config.backend() == "tensorflow":
        import tensorflow as tf

        with tf.control_dependencies([tf.debugging.assert_less(ids, rows, message.format(worst="some", rows=rows))]):
            return tf.identity(ids)
    elif in_graphs and keras.config.backend() == "jax":
        import jax

        jax.debug.callback(check, ids)
    return ids


def check_labels(labels: object, count: int, name: str, weights: object = None) -> None:
    """Refuses labels in memory that no output stands for: JAX has a loss of 0 for them, and learns nothing of them.

    Args:
        labels: an array, a tensor, a list or a column of whole numbers; whatever else it is, nothing is checked.
        count: how many there are, from 0.
        name: what says so.
        weights: of the labels or of rows of them; those of weight 0 may be anything.

    Raises:
        UserError: for a label that is not there, or names.

    >>> check_labels([0, 3], 3, "num_classes")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: there is no label 3: num_classes is 3, and labels are numbers from 0 to 2
    """
    told = f"{name} is {count}, and labels are numbers from 0 to {count - 1}"
    _check_no_names(labels, told)
    values = _weighed(labels, weights)
    outside = values[(values < 0) | (values >= count) | (values % 1 != 0)]
    if outside.size:
        raise UserError(f"there is no label {outside.flat[0]}: {told}")


def check_shape(labels: object, wanted: Sequence[int | None], described: str) -> None:
    """Refuses labels in memory of another shape than predictions have.

    Args:
        labels: an array or a tensor [B, ...] or [B, ..., 1]; whatever else it is, nothing is checked.
        wanted: the axes after the first; None for one of any size.
        described: what labels are.

    Raises:
        UserError: for another shape.

    >>> check_shape(np.zeros((4, 2, 1)), [None], "a number for each token")
    """
    shape = tuple(getattr(labels, "shape", ()))
    given = shape[1:-1] if shape[-1:] == (1,) and len(shape) == len(wanted) + 2 else shape[1:]
    pairs = [pair for pair in zip(given, wanted, strict=False) if None not in pair]
    if shape and (len(given) != len(wanted) or any(has != needs for has, needs in pairs)):
        raise UserError(f"labels are of shape {shape}; they are {described}")


def check_positions(positions: object, padding_mask: object, weights: object = None) -> None:
    """Refuses positions in memory where rows have padding, which no output of a span can choose.

    Args:
        positions: [B, N], of tokens of each row; whatever else it is, nothing is checked.
        padding_mask: [B, S].
        weights: as of `check_labels`.

    Raises:
        UserError: for a position of padding.

    >>> check_positions([[0, 1]], [[1, 0]], [0.0])
    """
    places, mask = (known_values(each) for each in (positions, padding_mask))
    if places is None or mask is None or places.ndim != 2 or len(places) != len(mask):
        return
    is_token = np.take_along_axis(mask != 0, places.astype("int64") % mask.shape[1], axis=1)
    if not _weighed(is_token.astype("int8"), weights).all():
        raise UserError("an answer is where its row has padding: give it the position 0, or the sample_weight 0")


def with_labels_checked(check: Callable, x: Any, y: Any, sample_weight: Any) -> tuple:
    """A batch of an encoder's inputs whose labels are looked at; in a graph of tf.data's, when the batch is read.

    Args:
        check: what raises a `UserError` for labels, of `(x, y, sample_weight)`.
        x: a dict of arrays or tensors [B, S].
        y: labels; None for none.
        sample_weight: of them; None for none.
    """
    if not hasattr(y, "graph") or hasattr(y, "numpy"):  # and so no tensor whose values are known later
        check(x, y, sample_weight)
        return x, y, sample_weight
    import tensorflow as tf

    def looked_at(token_ids, labels, *weights):
        check({"token_ids": token_ids}, labels, *(weights or [None]))
        return labels

    parts = [x["token_ids"], y, *([] if sample_weight is None else [sample_weight])]
    checked = tf.numpy_function(looked_at, parts, y.dtype)
    checked.set_shape(y.shape)
    return x, checked, sample_weight


def check_finite(labels: object, weights: object = None) -> None:
    """Refuses labels in memory that are not finite, from which a regression would learn weights of NaN.

    Args:
        labels: as of `check_labels`, of any numbers.
        weights: as of `check_labels`.

    Raises:
        UserError: for a label that is not finite, or names.

    >>> check_finite([0.5, float("nan")], [1.0, 0.0])
    """
    _check_no_names(labels, "labels are numbers")
    values = _weighed(labels, weights)
    outside = values[~np.isfinite(values)]
    if outside.size:
        raise UserError(f"there is a label {outside.flat[0]}: leave its row out, or give it the sample_weight 0")


def _check_no_names(labels, said):
    given = known_values(labels)
    first = None if given is None else next(iter(given.ravel()[:1].tolist()), None)
    if isinstance(first, str | bytes):
        raise UserError(f"there is no label {shortened(first)}: {said}")


def _weighed(labels, weights):
    """An array of the labels whose weight is not 0; empty where they are not numbers in memory."""
    values, counted = (known_values(each) for each in (labels, weights))
    if values is None or values.dtype.kind not in "iuf":
        return np.zeros(0)
    if counted is not None:
        if counted.dtype.kind == "f" and np.isnan(counted).any():
            raise UserError("sample_weight has NaN, from which weights of NaN would be learnt")
        check_fit(counted, values)
        shape = (*counted.shape[: values.ndim], *(1 for _ in values.shape[counted.ndim :]))
        values = values[np.broadcast_to(counted.reshape(shape) != 0, values.shape)]
    return values


def _is_traced(values):
    """Whether these are values of a graph that is being made, and not numbers."""
    try:
        np.asarray(values)
    except (TypeError, NotImplementedError, ValueError):
        return True
    return False
