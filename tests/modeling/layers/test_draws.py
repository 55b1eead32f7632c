"""Draws are Keras's own, to the bit, compiled or not."""

import keras
import numpy as np
import pytest

from rembed_keras import compat
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks import Bottleneck, PostNorm
from rembed_keras.modeling.layers.draws import Dropout, uniform

INPUTS = np.linspace(1, 2, 600, dtype="float32").reshape(20, 30)


def compiled(function):
    """A function of no arguments as a step computes it."""
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True, autograph=False)
    return function


@pytest.mark.parametrize("how", [lambda function: function, compiled], ids=["plain", "compiled"])
def test_draws_are_kerass(how):
    ours, theirs = Dropout(0.3, seed=4), keras.layers.Dropout(0.3, seed=4)
    for _ in range(2):  # the state moves on alike
        dropped = np.asarray(how(lambda: ours(INPUTS, training=True))())
        np.testing.assert_array_equal(dropped, np.asarray(how(lambda: theirs(INPUTS, training=True))()))
    assert 0.6 < (dropped > 0).mean() < 0.8
    first, second = (keras.random.SeedGenerator(5) for _ in range(2))
    drawn = np.asarray(how(lambda: uniform((7, 9), minval=0.25, maxval=1.0, seed=first))())
    expected = np.asarray(how(lambda: keras.random.uniform((7, 9), minval=0.25, maxval=1.0, seed=second))())
    np.testing.assert_array_equal(drawn, expected)


def test_nothing_is_dropped_where_nothing_trains_or_the_rate_is_0():
    for layer, training in ((Dropout(0.5), False), (Dropout(0.0), True)):
        np.testing.assert_array_equal(np.asarray(layer(INPUTS, training=training)), INPUTS)


@pytest.mark.parametrize("block", [PostNorm, Bottleneck])
def test_every_dropout_of_an_encoder_draws_so(block):
    encoder = Encoder(60, 1, 2, 8, 16, 6, max_sequence_length=16, dropout=0.1, block=block)
    kinds = [type(each) for each in compat.layers_of(encoder) if isinstance(each, keras.layers.Dropout)]
    assert len(kinds) > 3 and {*kinds} == {Dropout}


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_replicas_draw_numbers_of_their_own(mirrored):
    import tensorflow as tf

    with mirrored.scope():
        layer, seed = Dropout(0.3, seed=4), keras.random.SeedGenerator(5)
    step = tf.function(lambda: (layer(INPUTS, training=True), uniform((7, 9), 0.0, 1.0, seed)), autograph=False)
    alone, other = keras.layers.Dropout(0.3, seed=4), keras.random.SeedGenerator(5)
    for _ in range(2):
        dropped, drawn = (mirrored.experimental_local_results(each) for each in mirrored.run(step))
        np.testing.assert_array_equal(dropped[0], alone(INPUTS, training=True))
        np.testing.assert_array_equal(drawn[0], keras.random.uniform((7, 9), seed=other))
        assert 0.5 < np.mean((dropped[0] > 0) == (dropped[1] > 0)) < 0.66  # by chance 0.7^2 + 0.3^2
        assert abs(np.corrcoef(np.ravel(drawn[0]), np.ravel(drawn[1]))[0, 1]) < 0.4
