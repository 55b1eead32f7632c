import keras
import numpy as np
import pytest

from rembed_keras.adaptation.projections import Rotations
from rembed_keras.errors import UserError
from rembed_keras.training.optimizers.matrices import matrix_shape
from rembed_keras.training.optimizers.muon import Muon


def newton_schulz(matrix):
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / (np.linalg.norm(wide) + 1e-7)
    for _ in range(5):
        square = wide @ wide.T
        wide = 3.4445 * wide + (-4.7750 * square + 2.0315 * square @ square) @ wide
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide


@pytest.mark.parametrize(("shape", "matrix"), [((6, 2, 4), (6, 8)), ((2, 4, 6), (8, 6)), ((6, 9), (6, 9))])
def test_attention_kernels_are_orthogonalized_as_the_matrices_they_are(shape, matrix):
    rng = np.random.default_rng(0)
    value, gradients = rng.normal(size=shape), rng.normal(size=(3, *shape))
    variable = keras.Variable(value.astype("float32"), name="kernel")
    optimizer = Muon(0.1)
    optimizer.build([variable])
    optimizer.weight_decay = optimizer.adam_weight_decay = None
    expected, momentum = value.reshape(matrix), np.zeros(matrix)
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")])
        momentum = 0.95 * momentum + gradient.reshape(matrix)
        update = newton_schulz(gradient.reshape(matrix) + 0.95 * momentum)
        expected = expected - 0.1 * update * np.sqrt(max(matrix)) * 0.2
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable.value).reshape(matrix), expected, atol=1e-5)


def test_of_two_axes_keras_takes_the_same_step():
    rng = np.random.default_rng(1)
    value, gradient = (rng.normal(size=(5, 3)).astype("float32") for _ in range(2))
    found = []
    for make in (Muon, keras.optimizers.Muon):
        variable = keras.Variable(value, name="kernel")
        optimizer = make(0.1, weight_decay=0.004)
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
        found.append(keras.ops.convert_to_numpy(variable.value))
    np.testing.assert_array_equal(*found)


def test_a_keras_whose_muon_is_another_is_a_mistake_of_one_line(monkeypatch):
    monkeypatch.setattr(keras.optimizers.Muon, "__init__", lambda self, learning_rate, adam_beta_1: None)
    with pytest.raises(UserError, match=r"Muon needs Keras 3\.13"):
        Muon(0.1)


def test_tables_biases_and_norms_are_no_matrices():
    variables = [keras.Variable(np.zeros(shape), name=name) for shape, name in (((4, 3), "bias"), ((4,), "kernel"))]
    layer = keras.layers.Embedding(9, 4)
    layer.build()
    assert [matrix_shape(variable) for variable in (*variables, layer.embeddings)] == [None] * 3


def test_angles_and_scales_of_road_are_no_matrices():
    change = Rotations(variant=2)
    change.build((None, None, 3), (None, None, 8))
    assert [matrix_shape(variable) for variable in change.weights] == [None] * 2
