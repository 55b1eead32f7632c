import keras
import numpy as np
import pytest

from rembed_keras.adaptation.methods import Adapters, LayerwiseDecay, Lora, Norms
from rembed_keras.adaptation.tuning import learning_rate_multipliers, tune
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.optimizers.adamw import AdamW
from rembed_keras.training.optimizers.schedules import WarmupLinearDecay
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer
from tests.modeling.forward import EAGER
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

NAMES = ("kernel", "bias", "gamma", "table")
SHARES = {"kernel": 0.9**3, "bias": 0.9**2, "gamma": 1.0}  # the table has none
INPUTS = make_inputs([[FIRST], [SECOND]], 8)
LABELS = np.array([0, 2])


def make_values():
    rng = np.random.default_rng(0)
    shapes = ((3, 2), (2,), (2,), (4, 3))
    return [rng.normal(size=shape) for shape in shapes], [rng.normal(size=shape) for shape in shapes]


def step(gradients, values, names=NAMES, steps=3, clip_norm=1.0, multipliers=None, **arguments):
    """Values after some steps of AdamW."""
    variables = [keras.Variable(value, name=name) for value, name in zip(values, names, strict=True)]
    optimizer = TrainingOptimizer(AdamW(**arguments), clip_norm, multipliers=multipliers)
    optimizer.build(variables)
    for _ in range(steps):
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32") for gradient in gradients], variables)
    return [np.array(variable.numpy()) for variable in variables]


def reference(value, gradient, rates, decay, scale):
    """One variable's AdamW in float64."""
    first = second = 0.0
    for t, rate in enumerate(rates, start=1):
        g = gradient * scale
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        corrected = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-6 / np.sqrt(1 - 0.999**t))
        value = value - rate * decay * value - rate * corrected
    return value


@pytest.mark.parametrize("clip_norm", [0.5, None])
def test_steps_equal_a_reference_in_float64(clip_norm):
    values, gradients = make_values()
    schedule = WarmupLinearDecay(0.1, 2, 10)
    found = step(gradients, values, learning_rate=schedule, weight_decay=0.2, clip_norm=clip_norm, multipliers=SHARES)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    scale = min(1.0, clip_norm / (norm + 1e-6)) if clip_norm else 1.0
    for name, value, gradient, ours in zip(NAMES, values, gradients, found, strict=True):
        rates = [SHARES.get(name, 1.0) * rate for rate in (0.0, 0.05, 0.1)]
        expected = reference(value, gradient, rates, 0.0 if name in ("bias", "gamma") else 0.2, scale)
        np.testing.assert_allclose(ours, expected, atol=2e-6, err_msg=name)  # 1 - 0.999^t has 4 digits in float32
        assert np.abs(ours - value).max() > 0.05


def test_a_multiplier_is_another_learning_rate_to_the_bit():
    values, gradients = make_values()
    shares = {"kernel": 0.25, "bias": 0.5}  # products with a power of 2 are not rounded
    ours = step(gradients, values, learning_rate=0.1, weight_decay=0.2, clip_norm=None, multipliers=shares)
    for i, name in enumerate(NAMES):
        rate = 0.1 * shares.get(name, 1.0)
        alone = step(
            gradients[i : i + 1], values[i : i + 1], (name,), learning_rate=rate, weight_decay=0.2, clip_norm=None
        )
        np.testing.assert_array_equal(ours[i], alone[0], err_msg=name)


def test_multipliers_of_one_change_nothing():
    values, gradients = make_values()
    plain = step(gradients, values, learning_rate=0.1, weight_decay=0.2)
    ones = step(gradients, values, learning_rate=0.1, weight_decay=0.2, multipliers=dict.fromkeys(NAMES, 1.0))
    for ours, theirs in zip(ones, plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_layers_of_a_model_learn_at_their_own_rates():
    """Adam's first step is the learning rate wherever a gradient is not tiny, so that rates can be read from it."""
    keras.utils.set_random_seed(0)
    model = Classifier(make_encoder(), 3, dropout=0.0)
    methods = [LayerwiseDecay(0.5)]
    tune(model, methods)
    shares = learning_rate_multipliers(model, methods)
    model.compile(
        TrainingOptimizer(AdamW(1e-3, weight_decay=0.0, epsilon=1e-12), None, multipliers=shares),
        jit_compile=True,
    )
    before = {weight.path: np.array(weight.numpy()) for weight in model.weights}
    model.train_on_batch(INPUTS, LABELS)
    for weight in model.trainable_variables:
        if not weight.path.endswith("key/bias"):
            change = np.abs(weight.numpy() - before[weight.path]).max()
            np.testing.assert_allclose(change, 1e-3 * shares.get(weight.path, 1.0), rtol=2e-3, err_msg=weight.path)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_two_replicas_take_the_step_of_one_device():
    found = []
    methods = [Lora(2), Adapters(3), Norms(), LayerwiseDecay(0.5)]
    for strategy in ("mirrored", "one_device"):
        placement = place(strategy, batch_size=2, jit_compile=False)
        assert placement.replicas == (2 if strategy == "mirrored" else 1)
        with placement.scope():
            model = Classifier(make_encoder(), 3, dropout=0.0)
            tune(model, methods)
            rng = np.random.default_rng(3)
            for weight in model.weights:
                weight.assign(rng.normal(0, 0.3, weight.shape))
            shares = learning_rate_multipliers(model, methods)
            inner = AdamW(1e-2, weight_decay=0.1)
            model.compile(TrainingOptimizer(inner, 0.5, multipliers=shares), jit_compile=False, run_eagerly=True)
            model.optimizer.build(model.trainable_variables)
        for _ in range(2):
            model.train_on_batch(INPUTS, LABELS)
        found.append({weight.path: np.array(keras.ops.convert_to_numpy(weight.value)) for weight in model.weights})
    for path, value in found[0].items():
        np.testing.assert_allclose(value, found[1][path], atol=2e-5, err_msg=path)


def test_the_optimizer_comes_back_with_its_multipliers():
    optimizer = TrainingOptimizer(AdamW(learning_rate=WarmupLinearDecay(1e-3, 10, 100)), multipliers=SHARES)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert again.get_config() == optimizer.get_config()
    assert again.multipliers == SHARES
    assert TrainingOptimizer(AdamW()).get_config()["multipliers"] == {}


def test_multipliers_of_what_is_not_trained_are_a_mistake():
    keras.utils.set_random_seed(0)
    model = Classifier(make_encoder(), 3)
    shares = learning_rate_multipliers(model, [LayerwiseDecay(0.5)])
    tune(model, [Lora(2)])
    with pytest.raises(UserError, match=r"there is a multiplier of block_0/attention/heads/.*, which is not trained"):
        TrainingOptimizer(AdamW(), multipliers=shares).build(model.trainable_variables)


@pytest.mark.any_backend
def test_an_optimizer_that_takes_no_rates_by_layer_is_warned_of():
    model = Classifier(make_encoder(num_layers=1), 3)
    tune(model, [LayerwiseDecay(0.5)])
    model.compile("adam", **EAGER)
    with pytest.warns(
        UserWarning, match=r"^LayerwiseDecay\(factor=0.5\) gives layers learning rates of their own, which"
    ):
        model.train_on_batch(INPUTS, LABELS)
    rates = learning_rate_multipliers(model, model.methods)
    model.compile(TrainingOptimizer(keras.optimizers.Adam(), multipliers=rates), **EAGER)
    model.train_on_batch(INPUTS, LABELS)
