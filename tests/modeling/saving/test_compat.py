"""A canary of `compat.saved_in_pieces`, as those of tests/test_compat.py."""

import keras
import numpy as np

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
