"""Labels as users give them: numbers in lists, arrays and columns of tables."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from rembed_keras.errors import UserError, shortened

NAMES = (
    "labels are names; give their numbers, from 0; a pair of texts is a tuple of two lists, and in a data set a tuple "
    "in a tuple"
)


def labels_of(y: Any) -> np.ndarray | None:
    """Labels of texts as an array: columns of pandas's own dtypes, and of objects, too.

    Args:
        y: a list, an array, a column or a tensor of numbers; None for none.

    Raises:
        UserError: for labels that are names, are missing, or are lists of several lengths.

    >>> labels_of(np.array([0, 2], object)).dtype.kind
    'i'
    """
    if y is None:
        return None
    try:
        labels = np.asarray(y)
        labels = np.asarray(labels.tolist()) if labels.dtype.kind == "O" else labels
    except ValueError:
        raise UserError("labels are lists of several lengths; they are a number for each text") from None
    if labels.dtype.kind == "O" and any(label is None for label in labels.flat):
        raise UserError("a label is None: leave out the texts that have no label")
    if labels.dtype.kind in "USO":
        raise UserError(NAMES)
    return labels


def whole_numbers(values: Iterable, what: str) -> list[int]:
    """Numbers of tags or characters.

    Args:
        values: of any kind.
        what: they must be, for a message.

    Raises:
        UserError: for anything but a whole number.

    >>> whole_numbers([1.0, 1.7], "tag: give numbers")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: 1.7 is no tag: give numbers
    """
    numbers = []
    for value in values:
        try:
            numbers.append(int(value))
        except (TypeError, ValueError, OverflowError):
            raise UserError(f"{shortened(value)} is no {what}") from None
        if not isinstance(value, str | bytes) and numbers[-1] != value:
            raise UserError(f"{shortened(value)} is no {what}")
    return numbers


def is_list(value: object) -> bool:
    """Whether it is a collection, and no text."""
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes)
