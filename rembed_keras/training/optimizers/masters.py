"""Float32 copies of weights that a model keeps in 16 bits: the optimizer changes these, and rounds them for the model.

A step changes a weight by a thousandth of it or less, and bfloat16 has three significant digits: added to the weight
itself, most of what is learnt would be rounded away. Slots are those of the copies, in float32 too.
Source: Micikevicius et al. 2018, section 3.1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rembed_keras import compat

# Half of the gap between two numbers: relative to the number, and at least. Compared so, and not by rounding: XLA may
# leave out that a number is rounded and widened again.
HALF_GAPS = {"bfloat16": (2.0**-8, 0.0), "float16": (2.0**-11, 2.0**-25)}
MASTER = "master/"  # what names of masters in checkpoints begin with, before the path of a variable


class Master(keras.Variable):
    """The float32 copy of a variable, with its name, path, shape and layout.

    Args:
        variable: in 16 bits.
    """

    def __init__(self, variable: keras.Variable):
        self._copied: keras.Variable | None = None
        layout = compat.layout_of(variable)
        # on JAX a program that fills it could not hold arrays that other processes have a share in
        is_eager = keras.config.backend() == "jax"
        super().__init__(
            "zeros" if is_eager else lambda shape, dtype: ops.cast(variable, dtype),
            shape=variable.shape,
            dtype="float32",
            trainable=False,
            name=variable.name,
            **({} if layout is None else {"layout": layout}),  # which Keras 3.10 does not take
        )
        self._copied = variable
        if is_eager and ops.is_tensor(variable.value):  # and is not compiled for devices that are not here
            self.assign(ops.cast(variable, "float32"))

    @property
    def path(self) -> str:
        """The variable's, by which optimizers tell tables from matrices."""
        return super().path if self._copied is None else self._copied.path


class Masters:
    """What an optimizer changes: of each variable its `Master`, or the variable itself if it has more than 16 bits.

    Args:
        variables: of a model.

    >>> [type(each).__name__ for each in Masters([keras.Variable([1.0], dtype="bfloat16")]).changed]
    ['Master']
    """

    def __init__(self, variables: Sequence[keras.Variable]):
        self.changed = [Master(each) if is_narrow(each) else each for each in variables]
        self._rounded = {index: each for index, each in enumerate(variables) if isinstance(self.changed[index], Master)}

    def own(self) -> list[keras.Variable]:
        """The masters."""
        return [self.changed[index] for index in self._rounded]

    def rounded(self, index: int) -> keras.Variable | None:
        """The variable that the one of a number is the master of; None if it is none."""
        return self._rounded.get(index)


def following(master: keras.Variable, variable):
    """The value of a master: its variable's, where something other than the optimizer has changed that.

    Args:
        master: float32.
        variable: of the same shape, in 16 bits.

    Returns:
        A float32 tensor; it differs from the variable by no more than rounding.
    """
    relative, smallest = HALF_GAPS[keras.backend.standardize_dtype(variable.dtype)]
    copied, rounded = ops.convert_to_tensor(master), ops.cast(variable, "float32")
    is_same = ops.abs(copied - rounded) <= relative * ops.abs(rounded) + smallest
    return ops.where(is_same, copied, rounded)


def across_dtypes(model: Any, copies: Mapping[str, Any], weights: Mapping[str, Any]) -> tuple[dict, dict]:
    """Weights that take the values of a checkpoint's masters, and masters that take those of its weights.

    Args:
        model: whose optimizer is built; the checkpoint may be of another dtype.
        copies: arrays of the checkpoint's optimizer, by name.
        weights: arrays of its model, by path.

    Returns:
        The weights by names of `copies`, since they would be rounded twice from `weights`; and the masters by paths.
    """
    named = model.optimizer.named_variables()
    masters = {f"{MASTER}{each.path}": each for each in model.trainable_variables}
    rounded = {
        name: each
        for name, each in masters.items()
        if name in copies and weights[each.path].dtype.name != keras.backend.standardize_dtype(each.dtype)
    }
    return rounded, {each.path: named[name] for name, each in masters.items() if name in named and name not in copies}


def is_narrow(tensor) -> bool:
    """Whether a tensor or variable has 16 bits."""
    return keras.backend.standardize_dtype(tensor.dtype) in HALF_GAPS
