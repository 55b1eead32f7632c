"""What a user compiles a pre-training model with, and what layers add to its loss."""

import functools

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection, Sum
from rembed_keras.modeling.layers import draws
from tests.modeling import reference
from tests.modeling.forward import EAGER, QUICK, forward
from tests.modeling.objectives.test_objectives import make_detection
from tests.modeling.objectives.test_pretraining import expected_losses, make_batch, make_model
from tests.modeling.test_encoder import make_encoder

ROWS = ("token_ids", "segment_ids", "padding_mask")

JIT = {"jit_compile": keras.config.backend() == "jax"}


@pytest.mark.parametrize(
    ("micro_batches", "compiling"), [pytest.param(1, QUICK, marks=pytest.mark.any_backend), (2, JIT)], ids=["1", "2"]
)
def test_metrics_that_a_user_compiles_are_computed(micro_batches, compiling):
    model = MaskedLM(make_encoder(num_layers=1), 20, micro_batches=micro_batches)
    x, y, weights = make_batch()
    top = keras.metrics.SparseTopKCategoricalAccuracy(k=20, name="top")
    nats = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats")
    model.compile("sgd", metrics=["accuracy", top], weighted_metrics=[nats], **compiling)
    logits = forward(model, x)
    logs = model.train_on_batch(x, y, weights, return_dict=True)
    ranks = (logits > np.take_along_axis(logits, y[..., None], -1)).sum(-1)
    assert np.isclose(logs["top"], (ranks < 20).mean())
    expected = sum(reference.cross_entropy(logits[row], y[row]) @ weights[row] for row in range(2)) / weights.sum()
    assert np.isclose(logs["nats"], expected, rtol=1e-5) and np.isclose(logs["loss"], expected, rtol=1e-5)
    assert np.isclose(logs["accuracy"], ((ranks == 0) * weights).sum() / weights.sum())
    again = model.test_on_batch(x, y, weights, return_dict=True)
    assert again.keys() == logs.keys()


@pytest.mark.any_backend
def test_metrics_change_no_step():
    steps = []
    for metrics in (None, ["accuracy"]):
        model = make_model(num_layers=1)
        model.compile(keras.optimizers.SGD(0.5), metrics=metrics, run_eagerly=True)  # fused otherwise, bits may differ
        model.train_on_batch(*make_batch())
        steps.append([weight.numpy() for weight in model.weights])
    for plain, measured in zip(*steps, strict=True):
        np.testing.assert_array_equal(measured, plain)


@pytest.mark.any_backend
def test_detection_measures_the_generators_logits():
    model = make_detection(num_layers=1)
    top = keras.metrics.SparseTopKCategoricalAccuracy(k=20, name="top")
    model.compile("sgd", weighted_metrics=[top], **QUICK)
    x, y, weights = make_batch()
    logits = forward(model, x)["logits"]
    ranks = (logits > np.take_along_axis(logits, y[..., None], -1)).sum(-1)
    logs = model.test_on_batch(x, y, weights, return_dict=True)
    name = "get_item_1_top" if keras.__version__.startswith("3.10.") else "top"  # after an output's
    assert np.isclose(logs[name], ((ranks < 20) * weights).sum() / weights.sum())


@pytest.mark.any_backend
def test_labels_that_weigh_nothing_count_in_no_weighted_metric():
    model = MaskedLM(make_encoder(num_layers=1), 20)
    nats = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats")
    model.compile("sgd", weighted_metrics=[nats], **QUICK)
    x, y, weights = make_batch()
    weights[0, 0] = 0
    wanted = model.test_on_batch(x, y, weights, return_dict=True)
    y[0, 0] = -100
    assert model.test_on_batch(x, y, weights, return_dict=True) == wanted


@pytest.mark.any_backend
@pytest.mark.parametrize("arguments", [{"loss": "mse"}, {"loss_weights": [2.0]}])
@pytest.mark.parametrize("make", [MaskedLM, LateMaskedLM, ReplacedTokenDetection])
def test_another_loss_is_refused(make, arguments):
    model = make(make_encoder(num_layers=1), 20)
    with pytest.raises(UserError, match=f"^{make.__name__} brings its own loss: leave loss and loss_weights out"):
        model.compile("sgd", **arguments)


def test_a_compiled_model_is_saved_and_loaded_compiled(tmp_path):
    model = make_model()
    model.compile(keras.optimizers.SGD(0.1), weighted_metrics=["accuracy"], **QUICK)
    model.train_on_batch(*make_batch())
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.computes_metrics and int(again.optimizer.iterations) == 1


@keras.saving.register_keras_serializable(package="tests")
class Penalty(keras.layers.Dense):
    """A stranger's layer, which adds a loss."""

    def call(self, inputs, **arguments):
        outputs = super().call(inputs, **arguments)
        self.add_loss(keras.ops.mean(keras.ops.square(outputs)))
        return outputs


def with_penalty(make, strength=0.3, **arguments):
    """A model whose projection has regularizers, of what it makes and of its kernel."""
    encoder = make_encoder(num_layers=1)
    model = make(encoder, 20, **arguments)
    encoder.parts.projection.activity_regularizer = keras.regularizers.L2(strength)
    encoder.parts.projection.kernel.regularizer = keras.regularizers.L2(strength)
    return model


def penalty_of(model, x, strength=0.3):
    """The losses that `with_penalty` adds, in float64: an activity's is a mean over rows."""
    weights = reference.weights_of(model.encoder)
    parts = model.encoder.parts
    embedded = np.asarray(
        parts.embeddings(*(x[key] for key in ("token_ids", "segment_ids", "padding_mask"))), "float64"
    )
    projected = embedded @ weights["projection/kernel"] + weights["projection/bias"]
    return strength * (np.square(projected).sum() / len(projected) + np.square(weights["projection/kernel"]).sum())


def need_means_of_rows():
    """Skips where the loss that an activity adds is a sum over rows, as of Keras 3.10."""
    layer = keras.layers.Dense(1, kernel_initializer="ones", activity_regularizer=keras.regularizers.L2(1.0))
    layer(np.ones((2, 1), "float32"))
    if float(layer.losses[0]) == 2.0:
        pytest.skip("losses of activities are sums over rows in this Keras")


RATE = 0.01


@pytest.fixture(scope="module")
def penalized():
    """Of a plain model and of ones with penalties, all with the same weights: a test's logs, a step's, and its change.

    The ones with penalties are whole and in 2 micro-batches; the last of each is the model.
    """
    need_means_of_rows()
    models = {"plain": MaskedLM(make_encoder(num_layers=1), 20), 1: with_penalty(MaskedLM)}
    models[2] = with_penalty(MaskedLM, micro_batches=2)
    start, found = [weight.numpy() for weight in models["plain"].weights], {}
    for name, model in models.items():
        for weight, value in zip(model.weights, start, strict=True):
            weight.assign(value)
        model.compile(keras.optimizers.SGD(RATE), **QUICK)
        tested = model.test_on_batch(*make_batch(), return_dict=True)
        model.reset_metrics()
        trained = model.train_on_batch(*make_batch(), return_dict=True)
        moved = {weight.path: weight.numpy() - old for weight, old in zip(model.weights, start, strict=True)}
        found[name] = tested, trained, moved, model
    return found


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_losses_of_layers_are_added_once_and_logged(micro_batches, penalized):
    expected = penalty_of(with_penalty(MaskedLM), make_batch()[0])  # encoders are all the same
    nats = penalized["plain"][0]["loss"]
    *both, _, model = penalized[micro_batches]
    for logs in both:
        assert np.isclose(logs["layer_losses"], expected, rtol=1e-5)
        assert np.isclose(logs["loss"], nats + expected, rtol=1e-5)
        assert np.isclose(model.nats_of(logs), nats, rtol=1e-4)


def test_micro_batches_take_the_step_of_the_whole_with_losses_of_layers(penalized):
    (*_, whole, _), (*_, parts, _) = penalized[1], penalized[2]
    for path, expected in whole.items():
        np.testing.assert_allclose(parts[path], expected, atol=2e-5, err_msg=path)


def test_losses_of_layers_move_what_they_are_of(penalized):
    """Against finite differences of the penalty in float64."""
    x, model = make_batch()[0], with_penalty(MaskedLM)
    kernel = model.encoder.parts.projection.kernel
    start, rng = kernel.numpy(), np.random.default_rng(0)
    directions, slopes = rng.normal(0, 1, (3, *start.shape)), []
    for direction in directions:
        values = []
        for sign in (1, -1):
            kernel.assign(start + sign * 1e-3 * direction)
            values.append(penalty_of(model, x))
        slopes.append((values[0] - values[1]) / 2e-3)
    moved = (penalized["plain"][2][kernel.path] - penalized[1][2][kernel.path]) / RATE
    np.testing.assert_allclose((moved * directions).sum((1, 2)), slopes, rtol=1e-2)


def with_losses_in_a_block(make, rematerialize, **arguments):
    """A model whose blocks have a layer with an activity regularizer, and a stranger's that adds a loss."""
    keras.utils.set_random_seed(3)
    model = make(make_encoder(num_layers=2, rematerialize=rematerialize), **arguments)
    for block in model.encoder.parts.blocks:
        block.attention.norm.activity_regularizer = keras.regularizers.L2(0.1)
        block.feed_forward.up.__class__ = Penalty
    return model


@functools.cache
def two_steps(make, rematerialize, **arguments):
    """Losses among the logs of two steps, and what they move."""
    x, y, weights = make_batch()
    batch = (x, y, weights) if make is MaskedLM else ({key: x[key] for key in ROWS}, np.array([0, 1]))
    model = with_losses_in_a_block(make, rematerialize, **arguments)
    before = [weight.numpy() for weight in model.weights]
    model.compile(keras.optimizers.SGD(0.1), **(JIT if rematerialize else QUICK))
    logs = [model.train_on_batch(*batch, return_dict=True) for _ in range(2)]
    losses = [[float(each[name]) for name in each if "loss" in name] for each in logs]
    return losses, [weight.numpy() - old for weight, old in zip(model.weights, before, strict=True)]


@pytest.mark.parametrize(
    ("make", "arguments", "in_parts"),
    [
        pytest.param(MaskedLM, {"output_embedding_dim": 20}, {}, marks=pytest.mark.any_backend, id="whole"),
        pytest.param(MaskedLM, {"output_embedding_dim": 20}, {"micro_batches": 2}, id="micro-batches"),
        pytest.param(Classifier, {"num_classes": 2, "dropout": 0.0}, {}, id="a task"),
    ],
)
def test_rematerialized_blocks_add_their_losses_once_and_learn_of_them(make, arguments, in_parts):
    if in_parts:
        need_means_of_rows()
    plain, moves = two_steps(make, False, **arguments)
    again, same = two_steps(make, True, **arguments, **in_parts)
    np.testing.assert_allclose(again, plain, rtol=1e-4)
    for move, other in zip(moves, same, strict=True):
        np.testing.assert_allclose(other, move, atol=2e-5)


def test_a_strangers_layer_adds_its_loss_to_pre_training_and_to_tasks():
    encoder = Encoder(50, 1, 2, 16, 24, 6, max_sequence_length=12)
    encoder.parts.projection.__class__ = Penalty
    model, task = MaskedLM(encoder, 20), Classifier(encoder, 2, dropout=0.0)
    x, y, weights = make_batch()
    model.compile("sgd", **QUICK)
    logs = model.test_on_batch(x, y, weights, return_dict=True)
    assert logs["layer_losses"] > 0
    inputs = {key: x[key] for key in ("token_ids", "segment_ids", "padding_mask")}
    labels = np.array([0, 1])
    logits = task(inputs, training=False)
    (added,) = task.losses
    nats = reference.cross_entropy(np.asarray(logits, "float64"), labels).mean()
    assert np.isclose(float(task.compute_loss(inputs, labels, logits)), nats + float(added), rtol=1e-5)


def test_a_model_without_losses_of_layers_has_no_such_log():
    model = make_model()
    model.compile("sgd", **EAGER)
    x, y, weights = make_batch()
    logs = model.test_on_batch(x, y, weights, return_dict=True)
    assert "layer_losses" not in logs
    assert np.isclose(logs["loss"], (expected_losses(model, x, y) * weights).sum() / 4, atol=1e-5)


def make_objective(name):
    encoder = make_encoder(num_layers=1)
    makes = {
        "masked": lambda: MaskedLM(encoder, 20),
        "late": lambda: LateMaskedLM(encoder, 20, decoder_layers=1),
        "detection": lambda: ReplacedTokenDetection(encoder, 20, generator_layers=1, generator_scale=0.5),
        "sum": lambda: Sum(encoder, [lambda each: MaskedLM(each, 20), lambda each: LateMaskedLM(each, 20, 1)]),
    }
    return makes[name]()


@pytest.mark.parametrize(
    "name", [*(pytest.param(each, marks=pytest.mark.any_backend) for each in ("masked", "late", "detection")), "sum"]
)
def test_lists_have_each_log_once(name, monkeypatch):
    monkeypatch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))
    model = make_objective(name)
    model.compile("sgd", **QUICK)
    x, y, weights = make_batch()
    logs = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    listed = model.evaluate(x, y, sample_weight=weights, verbose=0)
    assert sorted(listed) == pytest.approx(sorted(logs.values()))
    assert listed[0] == pytest.approx(logs["loss"])
    assert listed[1] == pytest.approx(logs["accuracy"])
    assert len(set(model.metrics_names)) == len(model.metrics_names)
    assert len(model.test_on_batch(x, y, weights)) == len(logs)
    assert len(model.train_on_batch(x, y, weights)) == len(logs)
    if name == "masked":
        loss, _ = model.evaluate(x, y, sample_weight=weights, verbose=0)
        assert loss == model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)["loss"]
