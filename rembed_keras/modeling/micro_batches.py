"""A step that takes its batch a part at a time: as much memory as a part needs, the numbers of the whole.

Gradients of the parts are summed before the optimizer sees them, inside the step, so that clipping, the optimizer's
clock, dropout and what replicas exchange are those of one batch. Losses must be shares of the whole batch's loss
already. Keras's own gradient accumulation divides by steps instead of predictions, and fails under a strategy.
"""

import contextlib

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.modeling.sizes import NARROW


def step_in_parts(model: keras.Model, count: int, *args):
    """Keras's `train_step` of a model, a part of the batch at a time.

    Args:
        model: whose `compute_loss` gives a part's share of the loss of the whole batch, and whose metrics are running
            means.
        count: M, number of parts; rows of the batch must be a multiple.
        args: what Keras calls `train_step` with: the batch, and on JAX the state before it.

    Returns:
        What Keras's `train_step` returns.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(args[-1])
    parts = keras.tree.map_structure(lambda tensor: _split(tensor, count), (x, y, sample_weight))
    if keras.config.backend() == "jax":
        return _jax_step(model, count, parts, *args[:-1])
    return _tensorflow_step(model, count, parts)


def optimizer_at(optimizer: keras.optimizers.Optimizer, *state):
    """A context in which an optimizer's variables are those of the state that JAX hands to a step, if there is one."""
    if not state:
        return contextlib.nullcontext()
    ((_, _, values, _),) = state
    return keras.StatelessScope(state_mapping=list(zip(optimizer.variables, values, strict=True)))


def _split(tensor, count):
    """Parts [M, B/M, ...] of [B, ...]: every M-th row, so that no row of a sharded batch leaves its device."""
    shape = ops.shape(tensor)
    tensor = ops.reshape(tensor, (-1, count, *shape[1:]))  # [B, ...] -> [B/M, M, ...]
    return ops.moveaxis(tensor, 1, 0)


def _summed_in(variable):
    """The dtype that gradients of parts are summed in: float32 where they have 16 bits."""
    dtype = keras.backend.standardize_dtype(variable.dtype)
    return "float32" if dtype in NARROW else dtype


def _tensorflow_step(model, count, parts):
    import tensorflow as tf  # only here: modeling works where TensorFlow is not installed

    variables = model.trainable_variables

    def gradients_of(part):
        x, y, sample_weight = part
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, sample_weight)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        model.compute_metrics(x, y, outputs, sample_weight)
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def add(index, sums):
        gradients = gradients_of(keras.tree.map_structure(lambda tensor: tensor[index], parts))
        return index + 1, [total + tf.cast(part, total.dtype) for total, part in zip(sums, gradients, strict=True)]

    def sums_of_all():
        if count == 1:
            return gradients_of(keras.tree.map_structure(lambda tensor: tensor[0], parts))
        sums = [tf.zeros(variable.shape, _summed_in(variable)) for variable in variables]
        _, sums = tf.while_loop(
            lambda index, _: index < count, add, (0, sums), parallel_iterations=1, maximum_iterations=count
        )
        return sums

    if model.compiles_gradients:
        sums_of_all = tf.function(sums_of_all, autograph=False, jit_compile=True)
    model.optimizer.apply_gradients(zip(sums_of_all(), variables, strict=True))
    return model.get_metrics_result()


def _jax_step(model, count, parts, state):
    import jax

    trainable, non_trainable, optimizer, metrics = state
    gradients_of = jax.value_and_grad(model.compute_loss_and_updates, has_aux=True)

    def add(carry, part):
        sums, non_trainable, metrics = carry
        x, y, sample_weight = part
        (_, (loss, outputs, non_trainable, metrics)), gradients = gradients_of(
            trainable, non_trainable, metrics, x, y, sample_weight, training=True, optimizer_variables=optimizer
        )
        logs, metrics = compat.update_metrics(model, metrics, loss, x, y, outputs, sample_weight)
        sums = [total + gradient for total, gradient in zip(sums, gradients, strict=True)]
        return (sums, non_trainable, metrics), logs

    zeros = [ops.zeros_like(variable, dtype=_summed_in(variable)) for variable in trainable]
    (sums, non_trainable, metrics), logs = jax.lax.scan(add, (zeros, non_trainable, metrics), parts, length=count)
    trainable, optimizer = model.optimizer.stateless_apply(optimizer, sums, trainable)
    last = {name: values[-1] for name, values in logs.items()}
    return last, (trainable, non_trainable, optimizer, metrics)
