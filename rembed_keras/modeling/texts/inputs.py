"""Arrays of an encoder's inputs, checked before they are in a graph."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.layers.rows import BEYOND, check_rows, known_values
from rembed_keras.modeling.texts.shared_rows import check_batch
from rembed_keras.modeling.texts.strings import are_texts, is_tokenized


def check_inputs(arguments: Mapping, x: object) -> None:
    """Refuses arrays of an encoder's inputs that it has no rows for, before they are in a graph.

    Args:
        arguments: the encoder's.
        x: a dict of arrays or tensors [N, S]; whatever else it is, nothing is checked.

    Raises:
        UserError: for a token or segment id, or a document, that is beyond its table, a mask position beyond its row,
            or documents that are not numbered from the left.

    >>> check_inputs({"vocabulary_size": 10}, {"token_ids": np.array([[2, 10]])})
    Traceback (most recent call last):
    rembed_keras.errors.UserError: token id 10 has no row in the token table: vocabulary_size is 10
    """
    if not isinstance(x, Mapping):
        return
    checked = (("token_ids", "token", "vocabulary_size"), ("segment_ids", "segment", "num_segments"))
    for key, table, size in checked:
        if arguments.get(size) and (ids := known_values(x.get(key))) is not None:
            check_rows(ids, arguments[size], BEYOND[table])
    tokens, positions = (known_values(x.get(key)) for key in ("token_ids", "mask_positions"))
    if tokens is not None and tokens.ndim == 2 and positions is not None:
        check_rows(positions, tokens.shape[1], BEYOND["masked"])
    mask, said = known_values(x.get("padding_mask")), arguments.get("max_sequence_length")
    if mask is None or mask.ndim != 2 or not mask.size:
        return
    _check_order(mask)
    if not said or mask.shape[1] <= said:
        return
    longest = longest_row(arguments)
    if mask.shape[1] > longest:
        for number in range(1, int(mask.max(initial=0)) + 1):  # documents of packed rows
            lengths = (mask == number).sum(axis=1)
            check_rows(np.maximum(lengths - 1, 0), longest, BEYOND["position"])


def _check_order(mask):
    """Checks that documents of packed rows [N, S] are numbered 1, 2, 3, ... from the left: positions count on it."""
    if mask.max() > 1:
        falls = (mask != 0) & (mask < np.maximum.accumulate(mask, axis=1))
        if falls.any():
            row, place = np.argwhere(falls)[0]
            raise UserError(
                f"padding_mask has document {mask[row, place]} after document {mask[row, :place].max()}: number the "
                "documents of a row 1, 2, 3, ... from the left"
            )


def arrays_of(model: Any, x: Any, *labels: Any) -> tuple:
    """Inputs of a model, and labels and weights of them, of which lists, and arrays of objects, are arrays of numbers.

    Args:
        model: an `Encoder`, or a model that has one.
        x: a dict of arrays, tensors or lists [N, S]; where it is none, all is given back as it is.
        labels: labels and weights.

    Raises:
        UserError: if an input is missing, rows are of several lengths, or one holds None or the like.
    """
    if not is_tokenized(x):
        return x, *labels
    if missing := [key for key in model.input if key not in x]:
        raise UserError(f"the inputs lack {' and '.join(missing)}: {model.name} reads {', '.join(model.input)}")
    return {key: _array(each, key) for key, each in x.items()}, *(_array(each, "labels or weights") for each in labels)


def _array(values, name):
    is_of_objects = getattr(getattr(values, "dtype", None), "kind", None) == "O"  # as a column may be that had gaps
    if not (isinstance(values, list) or is_of_objects or hasattr(values, "to_numpy")):  # as a column of pandas has
        return values
    try:
        array = np.asarray(values)
        array = np.asarray(array.tolist()) if array.dtype.kind == "O" else array
    except ValueError:
        raise UserError(f"rows of {name} are of several lengths: pad them to one") from None
    if array.dtype.kind == "O":
        strange = next((each for each in array.flat if not isinstance(each, int | float)), array)
        raise UserError(f"{name}: {shortened(strange)} is not a number")
    return array


def narrowed(labels: Any) -> Any:
    """Labels in an array of int64 as int32 on JAX, which has no int64 and warns of it since 0.11; all else as it is.

    Args:
        labels: of any shape.
    """
    is_wide = isinstance(labels, np.ndarray) and labels.dtype == np.int64
    return labels.astype(np.int32) if is_wide and keras.config.backend() == "jax" else labels


def checks_arrays(loop: Callable) -> Callable:
    """One of Keras's loops over data, which first looks at the ids in memory: the loop's program is compiled.

    Args:
        loop: a method of a model that has an `encoder` or is one, `predict` for example, that takes `x` first.

    Returns:
        The same, which raises `UserError` for texts, and as `check_inputs` does.
    """

    @functools.wraps(loop)
    def checked(model, x=None, *arguments, **named):
        if are_texts(x):
            raise UserError(f"{loop.__name__} takes inputs of numbers: give it what a preprocessor makes of the texts")
        check_inputs(getattr(model, "encoder", model).arguments, x)
        return loop(model, *arrays_of(model, x), *arguments, **named)

    return checked


def checks_batch(loop: Callable, step: str) -> Callable:
    """One of Keras's steps of a batch, which first looks at ids and labels in memory: the step is compiled.

    Args:
        loop: `train_on_batch` or `test_on_batch` of a model that learns labels.
        step: "train" or "test", whose labels the model notes.
    """
    loop = checks_arrays(loop)

    @functools.wraps(loop)
    def checked(model, x=None, y=None, sample_weight=None, *arguments, **named):
        x, y, sample_weight = arrays_of(model, x, y, sample_weight)
        model.check_given(x, y)
        check_batch(x)
        model.check_labels(x, y, sample_weight)
        model.check_taught(step, x)
        model.note_labels(step, y, sample_weight)
        return loop(model, x, y, sample_weight, *arguments, **named)

    return checked
