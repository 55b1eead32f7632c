"""The global norm of a gradient, and gradients that are divided by it, in float32 where the gradient has 16 bits."""

import math
from collections.abc import Iterable

import keras
from keras import ops

from rembed_keras.training.optimizers.masters import is_narrow

BLOCK = 2**22  # numbers of a gradient whose squares exist at a time


def whole(gradients: Iterable) -> list:
    """Gradients as tensors: of a table of Keras's own TensorFlow has one for each time that a row was read.

    Args:
        gradients: as TensorFlow or JAX gives them; None for a variable that has none.
    """
    if keras.config.backend() != "tensorflow":
        return [*gradients]
    import tensorflow as tf

    return [None if each is None else tf.convert_to_tensor(each) for each in gradients]


def global_norm(gradients: Iterable):
    """The root of the sum of all squares, a float32 scalar.

    Args:
        gradients: tensors; None for a variable that has none.
    """
    return ops.sqrt(sum(_sum_of_squares(each) for each in gradients if each is not None))


def scaled(gradients: Iterable, factor) -> list:
    """Gradients times a number, in float32 if they have 16 bits.

    Args:
        gradients: as in `global_norm`.
        factor: a number or a float32 scalar.
    """
    wide = [ops.cast(each, "float32") if each is not None and is_narrow(each) else each for each in gradients]
    return [None if each is None else each * ops.cast(factor, each.dtype) for each in wide]


def _sum_of_squares(gradient):
    """Sum of the squares of a gradient, in float32.

    XLA on CPU writes the squares down before it sums them; of a large table that is as much memory again, so they are
    taken a few rows at a time. On JAX a table may be spread over devices, and its rows stay where they are.
    """
    is_known = len(gradient.shape) > 0 and None not in tuple(gradient.shape)  # as that of every table is
    rows = max(1, BLOCK // math.prod(gradient.shape[1:])) if is_known else 1
    blocks = gradient.shape[0] // rows if is_known else 0
    if blocks < 2 or keras.config.backend() != "tensorflow":
        return ops.sum(ops.square(ops.cast(gradient, "float32")))
    rest = [0] * (len(gradient.shape) - 1)

    def add(block, total):
        part = ops.slice(gradient, [block * rows, *rest], (rows, *gradient.shape[1:]))
        return total + ops.sum(ops.square(ops.cast(part, "float32")))

    total = ops.fori_loop(0, blocks, add, ops.zeros((), "float32"))
    return total + ops.sum(ops.square(ops.cast(gradient[blocks * rows :], "float32")))
