"""Canaries of `compat` that JAX needs too, as those of tests/test_compat.py."""

from collections import Counter

import keras
import numpy as np
import pytest

from rembed_keras import compat


def test_weights_are_saved_in_pieces(tmp_path):
    """Keras writes each variable by the one method, and reads the same."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    seen = []

    def pieces(value):
        seen.append(value.path)
        return [value.numpy()[:1], value.numpy()[1:]] if len(value.shape) == 2 else []

    with compat.saved_in_pieces(pieces):
        model.save_weights(tmp_path / "pieces.weights.h5")
    assert seen == [weight.path for weight in model.weights]
    other = keras.models.clone_model(model)
    other.load_weights(tmp_path / "pieces.weights.h5")
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.skipif(keras.config.backend() != "jax", reason="of JAX's")
def test_a_loop_takes_the_values_of_a_model():
    """Keras holds what a loop computes in `_jax_state`, and what it took has no `_value`."""
    seen, model = [], keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])

    class Looks(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch, logs=None):
            values = [variable._value for variable in model.variables]  # a callback's own `model` has them again
            state = model._jax_state["trainable_variables"]
            seen.append((values, len(state), compat.end_of_loop(model, model.variables)))

    model.predict(np.ones((2, 3)), verbose=0, callbacks=[Looks()])
    assert seen == [([None, None], 2, set())] and model._jax_state is None


def test_keras_numbers_the_names_that_it_makes():
    before, made = keras.layers.Dense(1).name, Counter()
    with compat.numbering_names(made):
        assert [keras.layers.Dense(1).name for _ in range(2)] == ["dense", "dense_1"]
    assert made["dense"] == 2 and keras.layers.Dense(1).name != before
