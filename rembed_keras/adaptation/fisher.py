"""How much a task's loss depends on each parameter of a model: the diagonal of the empirical Fisher information.

It is the mean over examples of the squared gradient of each example's loss, which is not the square of a batch's
gradient: examples go through the model one at a time, by one program.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from rembed_keras.modeling.losses.row_weights import counted
from rembed_keras.modeling.replicas import weighted_mean


def diagonal_fisher(model, batches: Iterable[Any], variables) -> list[np.ndarray]:
    """The diagonal of the empirical Fisher information of some variables, with dropout off.

    Args:
        model: a task model.
        batches: `(inputs, targets)` or `(inputs, targets, weights)`, each of at least one example.
        variables: some of the model's trainable variables.

    Returns:
        An array for each variable, of its shape.

    Source: Sung et al. 2021, equation 5.
    """
    squares = _squares(model, variables)
    sums = [np.zeros(variable.shape, "float64") for variable in variables]
    count = 0
    for batch in batches:
        rows = len(keras.tree.flatten(batch)[0])
        for row in range(rows):
            one = keras.tree.map_structure(lambda column, row=row: np.asarray(column)[row : row + 1], batch)
            found = squares(*keras.utils.unpack_x_y_sample_weight(one))
            sums = [total + ops.convert_to_numpy(square) for total, square in zip(sums, found, strict=True)]
        count += rows
    return [total / max(count, 1) for total in sums]


def _squares(model, variables):
    """A function from one example to the squares of its gradients, compiled once."""

    def loss(x, y, sample_weight):
        return weighted_mean(model.losses_of(counted(y, sample_weight), model(x, training=False)), sample_weight)

    if keras.config.backend() == "tensorflow":
        return _squares_on_tensorflow(loss, variables)
    return _squares_on_jax(loss, model, variables)


def _square(gradient):
    dtype = keras.backend.result_type(keras.backend.standardize_dtype(gradient.dtype), "float32")
    return ops.square(ops.cast(gradient, dtype))  # 16 bits have no 1e-9


def _squares_on_tensorflow(loss, variables):
    import tensorflow as tf

    values = [variable.value for variable in variables]

    @tf.function(reduce_retracing=True)
    def squares(*example):
        with tf.GradientTape() as tape:
            of_example = loss(*example)
        gradients = tape.gradient(of_example, values, unconnected_gradients="zero")
        return [_square(tf.convert_to_tensor(gradient)) for gradient in gradients]  # rows of a table are summed first

    if not tf.distribute.has_strategy():
        return squares

    def of_example(*example):  # by a thread of its own: within a strategy's scope its variables have no gradients
        with ThreadPoolExecutor(1) as outside:
            return outside.submit(squares, *example).result()

    return of_example


def _squares_on_jax(loss, model, variables):
    import jax

    chosen = {id(variable) for variable in variables}
    others = [variable for variable in model.variables if id(variable) not in chosen]

    def of_values(values, rest, *example):
        pairs = [*zip(variables, values, strict=True), *zip(others, rest, strict=True)]
        with keras.StatelessScope(state_mapping=pairs):
            return loss(*example)

    @partial(jax.jit, out_shardings=[_whole(variable.value.sharding) for variable in variables])
    def squares(values, rest, *example):
        return [_square(gradient) for gradient in jax.grad(of_values)(values, rest, *example)]

    def of_example(*example):  # weights are arguments: as constants they would be compiled in
        return squares([each.value for each in variables], [each.value for each in others], *example)

    return of_example


def _whole(sharding):
    """A sharding of JAX, or the one that has the whole array on each of its devices, where any process can read it."""
    from jax.sharding import NamedSharding, PartitionSpec

    return sharding if sharding.is_fully_replicated else NamedSharding(sharding.mesh, PartitionSpec())
