"""What a step measures instead of learning it: scales of float8, which come as the gradients of their variables.

Such a variable takes its "gradient" as its value. That is no part of a gradient's norm and is not clipped, and of a
batch that is taken in parts it is the largest.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import keras


def is_measured(variable: Any) -> bool:
    """Whether a variable takes its gradient as its value, as Keras says it."""
    return bool(getattr(variable, "overwrite_with_gradient", False))


def without_measured(gradients: Iterable, variables: Sequence) -> tuple[list, list, list[tuple[Any, Any]]]:
    """Gradients, their variables, and pairs of those that are measured and what they become.

    >>> history, kernel = keras.Variable([1.0], name="amax_history"), keras.Variable([1.0], name="kernel")
    >>> history.overwrite_with_gradient = True
    >>> gradients, variables, measured = without_measured([[2.0], [3.0]], [history, kernel])
    >>> gradients, [each.name for each in variables], [(each.name, value) for each, value in measured]
    ([[3.0]], ['kernel'], [('amax_history', [2.0])])
    """
    pairs = [*zip(gradients, variables, strict=True)]
    learned = [(gradient, variable) for gradient, variable in pairs if not is_measured(variable)]
    measured = [(each, _found(value, each)) for value, each in pairs if is_measured(each) and value is not None]
    return [gradient for gradient, _ in learned], [variable for _, variable in learned], measured


def _found(value, variable):
    """What was measured; of a layer that the loss does not reach, for which JAX has zeros, the scale that it has."""
    return value if len(variable.shape) else keras.ops.where(value > 0, value, keras.ops.convert_to_tensor(variable))


def added(total, part, variable):
    """The gradient of some parts of a batch with that of one more, in the dtype of the sum."""
    part = keras.ops.cast(part, total.dtype)
    return keras.ops.maximum(total, part) if is_measured(variable) else total + part
