"""Random numbers of training: Keras's own, to the bit, in a form that XLA computes once, and others on each replica.

Left to choose, TensorFlow has XLA derive the key of a draw beside each number that is drawn with it, which on a CPU
takes many times as long as the numbers themselves. With the generator named (Philox, the one that it chooses) the key
is derived once. Replicas of tf.distribute have the same state and so would draw the same; only the first draws Keras's.
Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
"""

import keras

from rembed_keras.modeling.replicas import num_replicas

STRIDE = 1_000_003  # between seeds of replicas; those of layers, where a user sets them, are often neighbours


@keras.saving.register_keras_serializable(package="rembed_keras")
class Dropout(keras.layers.Dropout):
    """Keras's, with the same draws, but that each of TensorFlow's replicas has its own.

    Args:
        rate: share of the numbers that are set to 0 in training; the others are divided by what is left.
        noise_shape: as in Keras.
        seed: as in Keras.

    >>> float(Dropout(0.5)(np.ones((1, 2)), training=False)[0, 0])
    1.0
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1 or keras.config.backend() != "tensorflow":
            return super().call(inputs, training=training)
        import tensorflow as tf  # only here: modeling works where TensorFlow is not installed

        return tf.nn.experimental.stateless_dropout(
            inputs, self.rate, _next(self.seed_generator), noise_shape=self.noise_shape, rng_alg="philox"
        )


def uniform(shape, minval: float, maxval: float, seed: keras.random.SeedGenerator):
    """As `keras.random.uniform`, with the same draws, but that each of TensorFlow's replicas has its own.

    Args:
        shape: of what is drawn.
        minval: the least number.
        maxval: the bound, which is never drawn.
        seed: moves on by a draw.

    Returns:
        float32 of that shape.

    >>> uniform((2, 3), 0.0, 1.0, keras.random.SeedGenerator(1)).shape == (2, 3)
    True
    """
    if keras.config.backend() != "tensorflow":
        return keras.random.uniform(shape, minval, maxval, seed=seed)
    import tensorflow as tf

    return tf.random.stateless_uniform(shape, _next(seed), minval, maxval, alg="philox")


def _next(seed):
    """The seed of a draw, as Keras casts it for XLA, int32 [2], and moved on for the replica that draws."""
    import tensorflow as tf

    drawn = tf.cast(tf.math.floormod(seed.next(), tf.int32.max - 1), "int32")
    if num_replicas() == 1:
        return drawn
    return tf.add(drawn, [tf.distribute.get_replica_context().replica_id_in_sync_group * STRIDE, 0])
