"""The chunked loss and its gradients, against a closed form in NumPy and float64 and against Keras's own loss."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembed_keras.analysis.programs.counting import traffic_of
from rembed_keras.analysis.programs.text import read
from rembed_keras.modeling import LateMaskedLM, MaskedLM
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.heads.vocabulary_loss import vocabulary_losses
from rembed_keras.training.distributed import meshes
from tests.modeling.forward import QUICK
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import make_encoder


def value_and_gradients(loss_of, arrays):
    """A loss, what comes with it, and its gradients by float arrays, on the backend of the tests."""
    if keras.config.backend() == "jax":
        import jax

        gradients_of = jax.value_and_grad(loss_of, argnums=tuple(range(len(arrays))), has_aux=True)
        (loss, others), gradients = jax.jit(gradients_of)(*arrays)
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
    shape=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    chunk_size=st.integers(1, 11),
    bands=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 7)), min_size=1, max_size=3),
)
def test_losses_and_gradients_equal_a_closed_form_in_float64(seed, shape, chunk_size, bands):
    count = shape[0] * shape[1]
    rng = np.random.default_rng(seed)
    vocabulary = sum(rows for rows, _ in bands)
    features = [rng.normal(0, 2, (count, width)).astype("float32") for _, width in bands]
    rows = [rng.normal(0, 2, band).astype("float32") for band in bands]
    bias = rng.normal(0, 1, vocabulary).astype("float32")
    targets = rng.integers(0, vocabulary, count)
    weights = rng.choice([0.0, 0.25, 1.0], count).astype("float32")

    def loss_of(*tensors):
        features = [keras.ops.reshape(each, (*shape, -1)) for each in tensors[: len(bands)]]
        pairs = list(zip(features, tensors[len(bands) : -1], strict=True))
        labels = (each.reshape(shape) for each in (targets, weights))
        total, *others = vocabulary_losses(pairs, tensors[-1], *labels, chunk_size)
        return 3.0 * total, others  # 3: what flows back is not always 1

    loss, (losses, hits), gradients = value_and_gradients(loss_of, [*features, *rows, bias])
    wide = [[array.astype("float64") for array in arrays] for arrays in (features, rows)]
    expected_losses, expected_hits, expected = closed_form(*wide, bias, targets, weights)
    np.testing.assert_allclose(losses, expected_losses.reshape(shape), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(hits, expected_hits.reshape(shape))
    assert np.isclose(loss, 3 * (expected_losses * weights).sum(), rtol=1e-5, atol=1e-4)
    for gradient, right in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, 3 * right, rtol=1e-4, atol=2e-5)


def test_losses_do_not_overflow_and_gradients_stay_finite():
    features, rows = np.full((1, 2, 1), 1e4, "float32"), np.array([[1.0], [-1.0], [0.5]], "float32")

    def loss_of(features):
        labels = np.array([[0, 1]]), np.ones((1, 2))
        total, *others = vocabulary_losses([(features, rows)], np.zeros(3), *labels, chunk_size=1)
        return total, others

    loss, (losses, hits), (gradient,) = value_and_gradients(loss_of, [features])
    assert loss == 20000
    assert losses.tolist() == [[0, 20000]] and hits.tolist() == [[1, 0]]
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("make", "width", "options", "block"),
    [
        (MaskedLM, 20, {"output_cutoffs": (20,)}, PostNorm),
        (MaskedLM, 6, {"coupling": "coupled"}, PostNorm),
        (MaskedLM, 6, {"coupling": "gdes"}, PreNorm),
        pytest.param(LateMaskedLM, 20, {}, PostNorm, marks=pytest.mark.any_backend),
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
            learner.compile(keras.optimizers.SGD(0.5), **QUICK)
        else:
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
            learner.compile(keras.optimizers.SGD(0.5 / float(weights.sum())), loss=loss, **QUICK)
            x = {key: value for key, value in x.items() if key != "language_ids"}
        before = [weight.numpy() for weight in model.weights]
        learner.train_on_batch(x, y, weights)
        stepped.append([weight.numpy() - old for weight, old in zip(model.weights, before, strict=True)])
    whole, *chunked = stepped
    assert sum(np.abs(step).max() > 1e-4 for step in whole) > 20
    for steps in chunked:
        for right, step in zip(whole, steps, strict=True):
            np.testing.assert_allclose(step, right, rtol=1e-6, atol=1e-6)  # eight roundings of the largest


def test_bfloat16_keeps_the_loss_within_a_percent_and_the_gradient_within_three():
    rng = np.random.default_rng(5)
    features, rows = (rng.normal(0, 0.3, shape).astype("float32") for shape in ((64, 32), (500, 32)))
    targets, weights = rng.integers(0, 500, 64), np.ones(64, "float32")

    def loss_of(features, rows):
        narrow = keras.ops.reshape(keras.ops.cast(features, "bfloat16"), (4, 16, 32)), keras.ops.cast(rows, "bfloat16")
        labels = (each.reshape(4, 16) for each in (targets, weights))
        total, *others = vocabulary_losses([narrow], np.zeros(500), *labels, chunk_size=24)
        return total, others

    loss, (losses, _), gradients = value_and_gradients(loss_of, [features, rows])
    right, _, expected = closed_form([features.astype("float64")], [rows.astype("float64")], 0.0, targets, weights)
    assert losses.dtype == np.float32
    assert abs(loss / right.sum() - 1) < 0.01
    for gradient, each in zip(gradients, expected, strict=False):
        assert np.linalg.norm(gradient - each) < 0.03 * np.linalg.norm(each)


@pytest.mark.skipif(keras.config.backend() != "jax", reason="meshes are JAX's")
@pytest.mark.parametrize("shares_tables", [False, True])
def test_devices_ask_for_each_others_rows_once_however_many_chunks_there_are(shares_tables):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    spread = (meshes.model_parallel if shares_tables else meshes.data_parallel)()
    devices = spread.device_mesh.devices.size
    rng = np.random.default_rng(6)
    features, table = (rng.normal(0, 1, shape).astype("float32") for shape in ((4, 6, 8), (40, 8)))
    targets, weights = rng.integers(0, 40, (4, 6)), rng.random((4, 6)).astype("float32")
    of_rows, of_losses = (spread.get_data_layout(shape).backend_layout for shape in (features.shape, targets.shape))
    whole = NamedSharding(of_rows.mesh, PartitionSpec())
    of_table = NamedSharding(of_rows.mesh, PartitionSpec(of_rows.spec[0])) if shares_tables else whole
    arrays = jax.device_put(features, of_rows), jax.device_put(table, of_table)
    found, traffics = [], []
    for chunk_size in (100, 12, 4):  # one chunk, 2, and 6

        def loss_of(features, table, chunk_size=chunk_size):
            total, *others = vocabulary_losses([(features, table)], np.zeros(40), targets, weights, chunk_size)
            return total, others

        step = jax.jit(
            jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True),
            out_shardings=((whole, [of_losses, of_losses]), (of_rows, of_table)),
        )
        with spread.scope():
            compiled = step.lower(*arrays).compile()
        found.append([np.asarray(each) for each in jax.tree.leaves(compiled(*arrays))])
        traffics.append(traffic_of(read(compiled.as_text()), devices))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    _, few, many = traffics
    sums = [each.collectives.pop("all-reduce") for each in (few, many)]
    assert few.collectives == many.collectives
    assert sum(many.sent.values()) == pytest.approx(sum(few.sent.values()))
    of_a_chunk = 3 if shares_tables else 0  # scores' maxima and the sums of their powers are those of all tokens
    assert sums[1] - sums[0] == of_a_chunk * (6 - 2)


@pytest.mark.any_backend
def test_refuses_a_chunk_of_nothing():
    with pytest.raises(ValueError, match="loss_chunk is 0; it must be a positive whole number"):
        MaskedLM(make_encoder(), 6, loss_chunk=0)
