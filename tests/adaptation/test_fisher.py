"""Which units FisherChosen trains, against gradients that are taken one example at a time, and in closed form."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.fisher import diagonal_fisher
from rembed_keras.adaptation.methods import FisherChosen
from rembed_keras.adaptation.tuning import tune
from rembed_keras.errors import UserError
from rembed_keras.modeling import Tagger
from rembed_keras.training.distributed.strategies import place
from tests.adaptation.test_tuning import INPUTS, LABELS, learn, make_model, moved, values

BATCHES = [
    ({name: column[:3] for name, column in INPUTS.items()}, LABELS[:3]),
    ({name: column[3:] for name, column in INPUTS.items()}, LABELS[3:]),
]


def loss_of(model, row, targets, weights=None):
    """The loss of one example, as a number."""
    outputs = model({name: column[row : row + 1] for name, column in INPUTS.items()}, training=False)
    losses = np.asarray(model.losses_of(targets[row : row + 1], outputs), "float64")
    return float(np.average(losses, weights=None if weights is None else weights[row : row + 1]))


def squared_difference(model, variable, index, *targets):
    """The mean over examples of the squared derivative of each one's loss by one number, by finite differences."""
    value, step = np.array(variable.numpy()), 1e-2
    squares = []
    for row in range(len(LABELS)):
        sides = []
        for sign in (1, -1):
            changed = value.copy()
            changed[index] += sign * step
            variable.assign(changed)
            sides.append(loss_of(model, row, *targets))
        squares.append(((sides[0] - sides[1]) / (2 * step)) ** 2)
    variable.assign(value)
    return np.mean(squares)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="JAX has no products of float16 on CPUs")
def test_squares_of_16_bits_are_those_of_32():
    models = [make_model(), make_model(dtype="float16")]
    (head,) = (weight for weight in models[0].weights if weight.path == "head/kernel")
    head.assign(0.01 * head)
    for weight, value in zip(models[1].weights, models[0].weights, strict=True):
        weight.assign(keras.ops.cast(value, weight.dtype))
    kernels = [model.encoder.parts.blocks[0].feed_forward.up.kernel for model in models]
    pairs = zip(models, kernels, strict=True)
    expected, ours = (diagonal_fisher(model, BATCHES, [kernel])[0] for model, kernel in pairs)
    assert np.median(expected) < 6e-8, "which float16 does not have"
    np.testing.assert_allclose(ours.mean(), expected.mean(), rtol=0.05)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_within_the_scope_of_a_strategy_squares_are_those_outside():
    model = make_model()
    (expected,) = diagonal_fisher(model, BATCHES, model.encoder.parts.projection.weights[:1])
    with place("mirrored", batch_size=4).scope():
        spread = make_model()
        spread.set_weights(model.get_weights())
        (found,) = diagonal_fisher(spread, BATCHES, spread.encoder.parts.projection.weights[:1])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["classifier", "tagger with weights"])
def test_the_diagonal_is_the_mean_of_each_examples_square(kind):
    if kind == "classifier":
        model, batches, targets = make_model(), BATCHES, (LABELS,)
    else:
        model = make_model(lambda encoder: Tagger(encoder, 3))
        targets = (np.tile(LABELS[:, None], (1, 8)), np.arange(32.0).reshape(4, 8) % 3)
        batches = [(INPUTS, *targets)]
    encoder = model.encoder
    variables = [encoder.parts.blocks[1].feed_forward.norm.gamma, encoder.token_embedding.embeddings]
    fisher = diagonal_fisher(model, batches, variables)
    assert [each.shape for each in fisher] == [tuple(each.shape) for each in variables]
    token = int(INPUTS["token_ids"][0, 1])
    for variable, diagonal, index in zip(variables, fisher, ((0,), (token, 1)), strict=True):
        expected = squared_difference(model, variable, index, *targets)
        np.testing.assert_allclose(diagonal[index], expected, rtol=0.02, atol=1e-8)
    assert not np.any(fisher[1][-1]), "of a token that no example has"


class Reads(keras.layers.Layer):
    """Logits that are twice read of a table of Keras's own, of which TensorFlow has a gradient for each time."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def losses_of(self, y, y_pred):
        return y_pred[:, 0]

    def call(self, x, training=None):
        return self.table(x)[:, 0] + 2.0 * self.table(x)[:, 1]  # [B, 2] -> [B, 1]


def test_of_a_table_that_an_example_reads_twice_the_sum_is_squared():
    table = keras.layers.Embedding(3, 1)
    table.build()
    (fisher,) = diagonal_fisher(Reads(table), [(np.array([[1, 1], [1, 2]]), np.zeros(2))], [table.embeddings])
    np.testing.assert_allclose(fisher[:, 0], [0.0, (3**2 + 1**2) / 2, 2**2 / 2])


def test_of_the_heads_bias_it_is_what_probabilities_lack():
    model = make_model()
    (fisher,) = diagonal_fisher(model, BATCHES, [model.head.bias])
    logits = np.asarray(model(INPUTS, training=False), "float64")
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fisher, np.mean((probabilities - np.eye(3)[LABELS]) ** 2, axis=0), rtol=1e-5)


@pytest.mark.parametrize("units", ["norms", "blocks"])
def test_the_units_that_matter_most_are_trained(units):
    model = make_model()
    method = FisherChosen(units, count=2 if units == "norms" else 1, batches=2).settle(model, iter(BATCHES))
    encoder = model.encoder
    candidates = {f"block_{i}": block.weights for i, block in enumerate(encoder.parts.blocks)}
    if units == "norms":
        layers = [layer for layer in encoder._flatten_layers() if isinstance(layer, keras.layers.LayerNormalization)]
        candidates = {layer.path: layer.weights for layer in layers}
    squares = iter(diagonal_fisher(model, BATCHES, [weight for weights in candidates.values() for weight in weights]))
    scores = {
        name: np.concatenate([next(squares).ravel() for _ in weights]).mean() for name, weights in candidates.items()
    }
    assert len(scores) == (5 if units == "norms" else 2)
    assert method.chosen == sorted(scores, key=scores.get, reverse=True)[: len(method.chosen)]
    again = FisherChosen.from_config(method.get_config())
    assert again.settle(model, BATCHES) is again
    tune(model, [again])
    before = values(model)
    learn(model)
    expected = {weight.path for name in method.chosen for weight in candidates[name]}
    assert {path for path in moved(model, before) if not path.startswith("head/")} <= expected
    assert {weight.path for weight in model.trainable_variables} == expected | {"head/kernel", "head/bias"}


def test_mistakes_are_named():
    with pytest.raises(UserError, match="units of FisherChosen are 'heads'; they can be norms or blocks"):
        FisherChosen("heads")
    with pytest.raises(UserError, match="give `tune` what its `settle` returns"):
        tune(make_model(), [FisherChosen()])
    with pytest.raises(UserError, match="is to train 3 blocks; this encoder has 2"):
        FisherChosen("blocks", 3).settle(make_model(), BATCHES)
    with pytest.raises(UserError, match="has chosen 'block_7', which this encoder has not"):
        tune(make_model(), [FisherChosen("blocks", chosen=["block_7"])])
    with pytest.raises(UserError, match="has chosen 'block_2', which this encoder has not"):
        FisherChosen("blocks", chosen=["block_0", "block_2"]).check({"num_layers": 2})
