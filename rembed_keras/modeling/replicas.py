"""Sums across the replicas of a distribution strategy.

A batch spread over replicas is one batch: its loss has one denominator and its gradient one norm. Keras averages what
each replica averaged, which is another number as soon as replicas hold different counts of predictions, and clips each
replica's gradient by itself. Both are mended by a sum over replicas, the one thing for which a model must ask the
backend: only `tf.distribute` splits a step into replica programs that see a part each. On JAX arrays are global, a sum
over the batch is already the sum over devices, and there is nothing to add.
"""

import keras


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
