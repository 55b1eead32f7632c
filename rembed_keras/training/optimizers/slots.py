"""What an optimizer remembers of a model that is not built: the optimizer is asked, and no memory is taken.

Every Keras optimizer makes its slots by `add_variable`, given the variables that it will train. Here it is given
variables that hold one number and say that they have another shape, and makes slots of one number whose shapes are
noted.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import keras
import numpy as np

from rembed_keras.errors import UserError, first_line
from rembed_keras.modeling.cost import Entry, Shape
from rembed_keras.training.optimizers.inner import check_inner
from rembed_keras.training.optimizers.matrices import variables_of


def slots_when_built(
    make: Callable[[], keras.optimizers.Optimizer], entries: Iterable[Entry]
) -> list[tuple[Shape, ...]]:
    """Shapes of what an optimizer remembers of each entry's variables; of the first one's, what it has of its own too.

    Args:
        make: makes the optimizer.
        entries: of a ledger.

    Raises:
        UserError: for an optimizer that cannot be wrapped, or that makes its slots otherwise.

    >>> slots_when_built(keras.optimizers.Lion, [Entry("projection", ((4, 8), (8,)))])
    [((4, 8), (8,))]
    """
    own = _shapes(make(), Entry("none", ()))  # as a number that is multiplied at each step
    return [_without(() if i == 0 else own, _shapes(make(), entry)) for i, entry in enumerate(entries)]


def _without(others, shapes):
    """Shapes without some of them, each as often as it is there."""
    left = Counter(shapes) - Counter(others)
    return tuple(left.elements())


def _shapes(optimizer, entry):
    """Shapes of what a new optimizer remembers of an entry's variables."""
    check_inner(optimizer)
    own = {id(variable) for variable in optimizer.variables}  # a clock and a rate
    shapes, add = {}, optimizer.add_variable

    def add_small(shape, initializer="zeros", *args, **kwargs):
        variable = add((1,) * len(shape), "zeros", *args, **kwargs)
        variable.assign = lambda value: variable  # whatever it is to begin with, as a copy of what is trained
        shapes[id(variable)] = shape
        return variable

    optimizer.add_variable = add_small
    try:
        optimizer.build([_Shaped(*described) for described in variables_of(entry)])
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        kind, reason = type(optimizer).__name__, first_line(error)
        raise UserError(
            f"the slots of {kind} cannot be counted: {reason}; give it a static method ledger_slots, as AdamW has"
        ) from None
    slots = [variable for variable in optimizer.variables if id(variable) not in own]
    return tuple(tuple(shapes.get(id(variable), variable.shape)) for variable in slots)


class _Shaped(keras.Variable):
    """A variable of one number that says that it has a shape, and a path."""

    def __init__(self, shape, name, path):
        self._said = None
        super().__init__(np.zeros((1,) * len(shape), "float32"), name=name)
        self._said = shape, path

    @property
    def shape(self):
        return super().shape if self._said is None else self._said[0]

    @property
    def path(self):
        return super().path if self._said is None else self._said[1]
