"""The chunked loss and its gradients, against a closed form in NumPy and float64 and against Keras's own loss."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembed_keras.modeling import LateMaskedLM, MaskedLM
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.heads.vocabulary_loss import vocabulary_losses
from tests.forward import EAGER
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import make_encoder


def value_and_gradients(loss_of, arrays):
    """A loss, what comes with it, and its gradients by float arrays, on the backend of the tests."""
    if keras.config.backend() == "jax":
        import jax

        (loss, others), gradients = jax.value_and_grad(loss_of, argnums=tuple(range(len(arrays))), has_aux=True)(
            *arrays
        )
    else:
        import tensorflow as tf

        tensors = [tf.constant(array) for array in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss, others = loss_of(*tensors)
        gradients = tape.gradient(loss, tensors)
    return float(loss), [np.asarray(each) for each in others], [np.asarray(each, "float64") for each in gradients]


def closed_form(features, rows, bias, targets, weights):
    """Losses, hits, and gradients of their weighted sum, in float64, whole."""
    logits = np.concatenate([part @ row.T for part, row in zip(features, rows, strict=True)], 1) + bias
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = shifted / shifted.sum(1, keepdims=True)
    index = np.arange(len(targets))
    slope = probabilities.copy()
    slope[index, targets] -= 1
    slope *= weights[:, None]
    slopes = np.split(slope, np.cumsum([len(row) for row in rows])[:-1], axis=1)
    by_features = [part @ row for part, row in zip(slopes, rows, strict=True)]
    by_rows = [part.T @ feature for part, feature in zip(slopes, features, strict=True)]
    return -np.log(probabilities[index, targets]), logits.argmax(1) == targets, [*by_features, *by_rows, slope.sum(0)]


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 9),
    chunk_size=st.integers(1, 11),
    bands=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 7)), min_size=1, max_size=3),
)
def test_losses_and_gradients_equal_a_closed_form_in_float64(seed, count, chunk_size, bands):
    rng = np.random.default_rng(seed)
    vocabulary = sum(rows for rows, _ in bands)
    features = [rng.normal(0, 2, (count, width)).astype("float32") for _, width in bands]
    rows = [rng.normal(0, 2, band).astype("float32") for band in bands]
    bias = rng.normal(0, 1, vocabulary).astype("float32")
    targets = rng.integers(0, vocabulary, count)
    weights = rng.choice([0.0, 0.25, 1.0], count).astype("float32")

    def loss_of(*tensors):
        pairs = list(zip(tensors[: len(bands)], tensors[len(bands) : -1], strict=True))
        total, *others = vocabulary_losses(pairs, tensors[-1], targets, weights, chunk_size)
        return 3.0 * total, others  # 3: what flows back is not always 1

    loss, (losses, hits), gradients = value_and_gradients(loss_of, [*features, *rows, bias])
    wide = [[array.astype("float64") for array in arrays] for arrays in (features, rows)]
    expected_losses, expected_hits, expected = closed_form(*wide, bias, targets, weights)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(hits, expected_hits)
    assert np.isclose(loss, 3 * (expected_losses * weights).sum(), rtol=1e-5, atol=1e-4)
    for gradient, right in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, 3 * right, rtol=1e-4, atol=2e-5)


def test_losses_do_not_overflow_and_gradients_stay_finite():
    features, rows = np.full((2, 1), 1e4, "float32"), np.array([[1.0], [-1.0], [0.5]], "float32")

    def loss_of(features):
        total, *others = vocabulary_losses([(features, rows)], np.zeros(3), np.array([0, 1]), np.ones(2), chunk_size=1)
        return total, others

    loss, (losses, hits), (gradient,) = value_and_gradients(loss_of, [features])
    assert loss == 20000
    assert losses.tolist() == [0, 20000] and hits.tolist() == [1, 0]
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("make", "width", "options", "block"),
    [
        (MaskedLM, 20, {"output_cutoffs": (20,)}, PostNorm),
        (MaskedLM, 6, {"coupling": "coupled"}, PostNorm),
        (MaskedLM, 6, {"coupling": "gdes"}, PreNorm),
        (LateMaskedLM, 20, {}, PostNorm),
    ],
)
def test_a_step_is_that_of_kerass_loss_over_whole_logits(make, width, options, block):
    x, y, weights = make_batch()
    stepped = []
    for loss_chunk in (None, 3):
        keras.utils.set_random_seed(3)
        model = make(make_encoder(block=block), width, loss_chunk=loss_chunk or 1, **options)
        model.encoder.parts.pooler.trainable = False  # which no loss here reads
        learner = model if loss_chunk else keras.Model(model.input, model.output)
        if loss_chunk:
            learner.compile(keras.optimizers.SGD(0.5), **EAGER)
        else:
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
            learner.compile(keras.optimizers.SGD(0.5 / float(weights.sum())), loss=loss, **EAGER)
            x = {key: value for key, value in x.items() if key != "language_ids"}
        before = [weight.numpy() for weight in model.weights]
        learner.train_on_batch(x, y, weights)
        stepped.append([weight.numpy() - old for weight, old in zip(model.weights, before, strict=True)])
    whole, *chunked = stepped
    assert sum(np.abs(step).max() > 1e-4 for step in whole) > 20
    for steps in chunked:
        for right, step in zip(whole, steps, strict=True):
            np.testing.assert_allclose(step, right, atol=2e-6)


def test_bfloat16_keeps_the_loss_within_a_percent_and_the_gradient_within_three():
    rng = np.random.default_rng(5)
    features, rows = (rng.normal(0, 0.3, shape).astype("float32") for shape in ((64, 32), (500, 32)))
    targets, weights = rng.integers(0, 500, 64), np.ones(64, "float32")

    def loss_of(features, rows):
        narrow = [(keras.ops.cast(features, "bfloat16"), keras.ops.cast(rows, "bfloat16"))]
        total, *others = vocabulary_losses(narrow, np.zeros(500), targets, weights, chunk_size=24)
        return total, others

    loss, (losses, _), gradients = value_and_gradients(loss_of, [features, rows])
    right, _, expected = closed_form([features.astype("float64")], [rows.astype("float64")], 0.0, targets, weights)
    assert losses.dtype == np.float32
    assert abs(loss / right.sum() - 1) < 0.01
    for gradient, each in zip(gradients, expected, strict=False):
        assert np.linalg.norm(gradient - each) < 0.03 * np.linalg.norm(each)


@pytest.mark.any_backend
def test_refuses_a_chunk_of_nothing():
    with pytest.raises(ValueError, match="loss_chunk is 0; it must be a positive whole number"):
        MaskedLM(make_encoder(), 6, loss_chunk=0)
