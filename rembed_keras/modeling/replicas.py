"""Sums across the replicas of a distribution strategy.

A batch spread over replicas is one batch: its loss has one denominator and its gradient one norm. Keras averages what
each replica averaged, which is another number as soon as replicas hold different counts of predictions, and clips each
replica's gradient by itself. Both are mended by a sum over replicas, the one thing for which a model must ask the
backend: only `tf.distribute` splits a step into replica programs that see a part each. On JAX arrays are global, a sum
over the batch is already the sum over devices, and there is nothing to add.
"""

from typing import Any

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.modeling.losses.row_weights import of_each


def num_replicas() -> int:
    """Number of replicas that run the present step together: 1 wherever arrays are global.

    >>> num_replicas()
    1
    """
    if keras.config.backend() != "tensorflow":
        return 1
    import tensorflow as tf  # only here: modeling works where TensorFlow is not installed

    # outside a replica's program, for instance while a model is built in a strategy's scope, nothing runs together
    return 1 if tf.distribute.in_cross_replica_context() else tf.distribute.get_strategy().num_replicas_in_sync


def row_groups(rows) -> tuple[int, bool]:
    """How many devices of JAX share a batch, as many neighboring rows each, and whether each has all variables whole.

    Args:
        rows: B, of the batch; an int, or a tensor of TensorFlow's.

    Returns:
        1 and True without a distribution, and for rows that its devices cannot share evenly.

    >>> row_groups(8)
    (1, True)
    """
    spread = keras.distribution.distribution()
    if spread is None or not isinstance(rows, int):
        return 1, True
    devices = int(spread.device_mesh.devices.size)
    return (1, True) if rows % devices else (devices, isinstance(spread, keras.distribution.DataParallel))


def devices_of_batch() -> int:
    """How many devices of a distribution of JAX share a batch; 1 without one, and where processes have a part each.

    >>> devices_of_batch()
    1
    """
    spread: Any = keras.distribution.distribution()
    if spread is None or keras.config.backend() != "jax":
        return 1
    import jax

    if jax.process_count() > 1:
        return 1
    devices = int(spread.device_mesh.devices.size)  # along all axes of a mesh, of which rows may be spread over some
    return devices // spread.get_data_layout((devices,)).backend_layout.shard_shape((devices,))[0]


def on_every_device(tensor):
    """A tensor of which every device of a distribution of JAX has all rows; asked where `row_groups` are several."""
    spread: Any = keras.distribution.distribution()
    layout = keras.distribution.TensorLayout([None] * len(tensor.shape), spread.device_mesh)
    return keras.distribution.distribute_tensor(tensor, layout)


def take_places(variables) -> None:
    """Puts variables where a distribution of JAX has its own, if one is open: those that were made before it was."""
    spread: Any = keras.distribution.distribution()
    for variable in variables if spread is not None else ():
        if len(variable.value.sharding.device_set) < spread.device_mesh.devices.size:
            layout = spread.get_variable_layout(variable)
            variable.assign(keras.distribution.distribute_tensor(variable.value, layout))


def on_own_rows(function, *arrays):
    """What a function makes of arrays, on JAX, each device computing its own rows: for kernels that cannot be cut.

    Args:
        function: of arrays [B, ...], which makes [B, ...] of them, a row of each row.
        arrays: [B, ...]; devices that share a batch share B evenly, see `row_groups`.
    """
    if row_groups(arrays[0].shape[0])[0] == 1:
        return function(*arrays)
    import jax

    layout: Any = keras.distribution.distribution()
    spread = layout.get_data_layout(arrays[0].shape).backend_layout
    rows = jax.sharding.PartitionSpec(spread.spec[0])
    each = tuple(rows for _ in arrays)
    return jax.shard_map(function, mesh=spread.mesh, in_specs=each, out_specs=rows, check_vma=False)(*arrays)


def sum_over_replicas(tensors):
    """Sums each tensor over the replicas of the present step.

    Args:
        tensors: a tensor or a list of tensors, of the same shapes on every replica.

    Returns:
        The same structure; the argument itself where there is one replica.

    >>> sum_over_replicas(3.0)
    3.0
    """
    if num_replicas() == 1:
        return tensors
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce("sum", tensors)


def largest_of_replicas(tensors: list) -> list:
    """The largest of what each replica of the present step has at a place of a tensor.

    Args:
        tensors: of the same shapes on every replica.

    Returns:
        The same list; the argument itself where there is one replica.

    >>> largest_of_replicas([3.0])
    [3.0]
    """
    if num_replicas() == 1 or not tensors:
        return tensors
    import tensorflow as tf

    everywhere = tf.distribute.get_replica_context().all_gather([tensor[None] for tensor in tensors], axis=0)
    return [ops.max(each, axis=0) for each in everywhere]


def weighted_mean(values, weights=None):
    """Mean over all values of all replicas, as a loss needs it.

    Args:
        values: float tensor of any shape, this replica's part.
        weights: of the same shape, or of rows, [B] or [B, 1]; 0 takes a value out. None counts every value.

    Returns:
        A scalar: this replica's share of the mean, to which the shares of the others are added with the gradients. 0
        if no value counts.

    Raises:
        UserError: for weights of other shapes.

    >>> float(weighted_mean(np.array([1.0, 3.0, 5.0], "float32"), np.array([1.0, 1.0, 0.0], "float32")))
    2.0
    """
    weights = ops.ones_like(values) if weights is None else of_each(weights, values)
    return ops.divide_no_nan(ops.sum(values * weights), sum_over_replicas(ops.sum(weights)))


def shares(weights):
    """Weights, of any shape, as shares of the sum of those of all replicas; zeros where that is 0.

    >>> ops.convert_to_numpy(shares(np.array([1.0, 3.0], "float32"))).tolist()
    [0.25, 0.75]
    """
    return ops.divide_no_nan(weights, sum_over_replicas(ops.sum(weights)))


def gathered(rows):
    """Rows of all replicas, in their order, and which of them is this replica's first.

    Args:
        rows: [B, ...], float; of a replica that holds fewer than another, rows of zeros come after its own.

    Returns:
        [R x B, ...], B being the most that any has, and an int. Gradients flow to the rows of every replica.

    >>> gathered(np.ones((2, 3)))[1]
    0
    """
    count = num_replicas()
    if count == 1:
        return rows, 0
    import tensorflow as tf

    index = tf.distribute.get_replica_context().replica_id_in_sync_group
    place = ops.one_hot(index, count, dtype=rows.dtype)
    most = ops.shape(rows)[0]
    if not isinstance(most, int):  # of a batch that may be left over, which none shares evenly
        own, most = most, ops.max(sum_over_replicas(ops.one_hot(index, count, dtype="int32") * most))
        rows = ops.concatenate([rows, ops.zeros((most - own, *ops.shape(rows)[1:]), rows.dtype)])
    here = ops.reshape(place, (count, *[1] * len(rows.shape)))
    spread = sum_over_replicas(here * rows[None])  # [B, ...] -> [R, B, ...]
    return ops.reshape(spread, (-1, *rows.shape[1:])), index * most


def layers_loss(model: keras.Model):
    """What a model's layers added to the loss when it was last called, and its regularizers add: a float32 scalar.

    A layer's loss is taken to be a mean over rows, as Keras's activity regularizers are. So a replica's share of it, or
    a micro-batch's, is that of its rows, and a regularizer of weights, which each of them computes, counts once.
    """
    return sum((ops.cast(ops.sum(loss), "float32") for loss in model.losses), start=ops.zeros((), "float32"))


def may_add_losses(layer: keras.layers.Layer) -> bool:
    """Whether a layer may have a loss of its own: it has a regularizer, or is neither Keras's nor ours.

    >>> may_add_losses(keras.layers.Dense(2)), may_add_losses(keras.layers.Dense(2, activity_regularizer="l2"))
    (False, True)
    """
    if type(layer).__module__.split(".")[0] not in ("keras", "rembed_keras"):  # whose `call` may use `add_loss`
        return True
    weights = [weight for weight in layer.weights if weight.regularizer is not None]
    return layer.activity_regularizer is not None or bool(weights)


class OnReplicas(compat.BuildsFromItsReplica):
    """Mends what Keras's `fit` does under strategies of TensorFlow; a mixin that stands before the model's class.

    Keras looks at a first batch to build what is not built, which it cannot do where processes see a part of it each;
    and it asks all processes for the mean of what a step returns, for which numbers need a dimension, and for every
    number an exchange. There a step returns its loss alone: all else is in the metrics. And without a strategy it has
    TensorFlow trace the first step twice, the second time with the variables that the optimizer made in the first.
    """

    @property
    def has_replicas(self) -> bool:
        """Whether the model was made under a strategy of TensorFlow's."""
        return keras.config.backend() == "tensorflow" and compat.strategy_of(self) is not None

    @property
    def makes_variables_in_steps(self) -> bool:
        """Whether Keras leaves variables to the first step, as it does on TensorFlow without a strategy."""
        return keras.config.backend() == "tensorflow" and not self.has_replicas

    def whole_step(self, jit_compile: bool | str) -> bool | str:
        """What Keras is asked to compile: no step that ends in an all-reduce of TensorFlow's, which XLA cannot do."""
        return jit_compile if jit_compile == "auto" or not self.has_replicas else False

    def make_train_function(self, force=False):
        """Keras's, after the optimizer's variables were made."""
        model: Any = self
        if self.makes_variables_in_steps and model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        return super().make_train_function(force)  # type: ignore[misc] # the model's

    def train_step(self, *args):
        """Keras's."""
        return self.reported(super().train_step(*args))  # type: ignore[misc] # the model's

    def test_step(self, *args):
        """Keras's."""
        return self.reported(super().test_step(*args))  # type: ignore[misc] # the model's

    def reported(self, outcome):
        """What a step returns of its outcome: all of it, but where several processes work together."""
        if not _is_one_of_several():
            return outcome
        return {"loss": ops.reshape(outcome["loss"], (1,))}


def _is_one_of_several():
    """Whether the present step is one of several processes of TensorFlow's."""
    if keras.config.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy)
