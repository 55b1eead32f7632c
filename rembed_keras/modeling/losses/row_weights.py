"""Weights as users give them, of rows or of single predictions, in the shape of the losses that they weigh."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from keras import ops

from rembed_keras.errors import UserError, shortened


def of_each(weights, losses):
    """Weights in the shape of losses: a row's are those of all its predictions.

    Args:
        weights: [B] or [B, 1], of rows; or as the losses.
        losses: [B, ...].

    Returns:
        The weights, in the dtype and shape of the losses.

    Raises:
        UserError: for weights of other shapes.

    >>> ops.convert_to_numpy(of_each(ops.array([1.0, 0.5]), ops.zeros((2, 3)))).tolist()
    [[1.0, 1.0, 1.0], [0.5, 0.5, 0.5]]
    """
    check_fit(weights, losses)
    given, wanted = tuple(weights.shape), tuple(losses.shape)
    shape = (*ops.shape(weights)[: len(wanted)], *(1 for _ in wanted[len(given) :]))
    return ops.broadcast_to(ops.reshape(ops.cast(weights, losses.dtype), shape), ops.shape(losses))


def beside_outputs(weights, outputs):
    """Weights as losses of Keras's take them: of rows [B] as [B, 1, ...], or they would be those of the last axis.

    Args:
        weights: see `of_each`; None for none.
        outputs: [B, ..., N], of which each N have a loss.

    >>> beside_outputs(np.array([1.0, 0.5]), np.zeros((2, 3, 4))).tolist()
    [[1.0], [0.5]]
    """
    further = len(outputs.shape) - 2
    if weights is None or len(weights.shape) != 1 or further < 1:
        return weights
    return weights[(slice(None), *[None] * further)]


def of_rows(weights):
    """Weights of rows, [B]; of predictions, [B, ...], the greatest in each row, which is 0 where none counts.

    >>> ops.convert_to_numpy(of_rows(ops.array([[0.0, 0.5], [0.0, 0.0]]))).tolist()
    [0.5, 0.0]
    """
    axes = (*range(1, len(weights.shape)),)
    return ops.max(weights, axis=axes) if axes else weights


def counted(labels, weights):
    """Labels, 0 where they weigh nothing: they may be no labels, as -100 or NaN, of which no loss can be taken.

    Args:
        labels: of any dtype.
        weights: see `of_each`; None counts every label.

    >>> ops.convert_to_numpy(counted(ops.array([[3, -100], [5, 6]]), ops.array([[0.5, 0.0], [1.0, 1.0]]))).tolist()
    [[3, 0], [5, 6]]
    """
    if weights is None or not fits(weights, labels):
        return labels
    return ops.where(of_each(weights, ops.cast(labels, "float32")) != 0, labels, ops.zeros_like(labels))


def fits(weights, losses) -> bool:
    """Whether weights can be in the shape of losses, see `of_each`."""
    given, wanted = tuple(weights.shape), tuple(losses.shape)
    pairs = [*zip(given, wanted, strict=False)]
    is_each = all(None in pair or pair[0] in ((pair[1], 1) if i else (pair[1],)) for i, pair in enumerate(pairs))
    return is_each and all(size == 1 for size in given[len(wanted) :])


def check_fit(weights, losses) -> None:
    """Raises a UserError for weights that cannot be in the shape of losses, see `of_each`."""
    given, wanted = tuple(weights.shape), tuple(losses.shape)
    if not fits(weights, losses):
        raise UserError(f"weights of shape {given} are none of losses of shape {wanted}: give one a row, or one each")


def checks_class_weight(loop: Callable) -> Callable:
    """One of Keras's loops over data, which first refuses weights of classes where labels are not one class a row.

    Keras would weigh a row by the place of the greatest number among its labels. Weights of what is no class of the
    model are refused too.

    Args:
        loop: a method of a model that says whether it `takes_class_weight`.
    """
    signature = inspect.signature(loop)

    @functools.wraps(loop)
    def checked(model, *arguments, **named):
        given: Any = signature.bind(model, *arguments, **named).arguments
        weights = (given | given.get("options", {})).get("class_weight")
        if weights is not None and not model.takes_class_weight:
            raise UserError(f"{model.name} has no class for each row: give sample_weight in place of class_weight")
        known = None if weights is None else model.known_labels(None)
        if known is not None:
            _check_classes(weights, *known)
        return loop(model, *arguments, **named)

    return checked


def _check_classes(weights, known, name):
    """Refuses weights of anything but classes: of classes without one Keras takes 1."""
    if not isinstance(weights, Mapping):
        raise UserError(f"class_weight is {shortened(weights)}; it must be a dict, as {{0: 1.0, 1: 2.0}}")
    count = max(known, 2)  # of one output are two classes, in a loss of its own
    strange = [key for key in weights if key not in range(count)]
    if strange:
        raise UserError(
            f"class_weight has {strange[0]!r}, which is no class: {name} is {known}, and classes are numbers from 0 to "
            f"{count - 1}"
        )
