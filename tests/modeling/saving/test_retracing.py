"""A model that was used, then changed, computes what it is now."""

import copy

import keras
import numpy as np
import pytest

from rembed_keras.adaptation import Adapters, Lora, tune
from rembed_keras.compat import layers_of
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Tagger
from rembed_keras.modeling.layers.adapters import insert_adapters
from tests.modeling.forward import QUICK, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")  # of norms
INPUTS = make_inputs([[FIRST], [SECOND]], 8)
LABELS = np.array([0, 2])


def with_adapters(encoder):
    insert_adapters(encoder, encoder.parts.blocks, 3)
    _fill_added(encoder)


def with_lora(encoder):
    encoder.enable_lora(2)
    _fill_added(encoder)


def _fill_added(encoder):
    """What is added begins as nothing; here it is something."""
    rng = np.random.default_rng(0)
    for weight in encoder.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))


CHANGES = {"int8": lambda encoder: encoder.quantize("int8"), "adapters": with_adapters, "lora": with_lora}


@pytest.mark.usefixtures("without_old_garbage")
@pytest.mark.parametrize("change", ["int8", "adapters", pytest.param("lora", marks=pytest.mark.any_backend)])
def test_a_changed_encoder_is_what_a_model_on_it_predicts(change):
    keras.utils.set_random_seed(1)
    encoder = make_encoder(num_layers=1)
    model = Classifier(encoder, 3)
    model.compile("adam")
    before = model.predict(INPUTS, verbose=0), encoder.predict(INPUTS, verbose=0)["pooled_output"]
    losses = [model.evaluate(INPUTS, LABELS, verbose=0)[0]]
    CHANGES[change](encoder)
    after = model.predict(INPUTS, verbose=0), encoder.predict(INPUTS, verbose=0)["pooled_output"]
    losses.append(model.evaluate(INPUTS, LABELS, verbose=0)[0])
    expected = forward(model, INPUTS), forward(encoder, INPUTS)["pooled_output"]
    for old, new, whole in zip(before, after, expected, strict=True):
        assert np.abs(new - old).max() > 1e-5
        np.testing.assert_allclose(new, whole, atol=1e-5)
    assert losses[0] != losses[1]


def freeze(encoder):
    encoder.trainable = False


@pytest.mark.parametrize("change", [pytest.param(with_lora, marks=pytest.mark.any_backend), freeze])
def test_an_optimizer_of_other_weights_trains_nothing(change):
    encoder = make_encoder(num_layers=1)
    model = Classifier(encoder, 3)
    model.compile("lion")
    model.fit(INPUTS, LABELS, verbose=0)
    change(encoder)
    kept = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    with pytest.raises(UserError, match="compile again with a new optimizer"):
        model.fit(INPUTS, LABELS, verbose=0)
    for weight, value in zip(model.weights, kept, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(weight), value)
    model.compile("lion")
    assert np.isfinite(model.fit(INPUTS, LABELS, verbose=0).history["loss"][0])
    assert np.isfinite(model.fit(INPUTS, LABELS, verbose=0).history["loss"][0])
    changed = [not np.array_equal(weight, value) for weight, value in zip(model.get_weights(), kept, strict=True)]
    trained = {id(weight) for weight in model.trainable_variables}
    assert changed == [id(weight) in trained for weight in model.weights]


@pytest.mark.any_backend
@pytest.mark.parametrize("is_trained", [True, False])
def test_an_optimizer_that_was_read_trains_the_weights_that_it_was_saved_with(is_trained):
    """Keras would end in an error about its optimizer, or, where fewer weights are trained on TensorFlow, in none."""
    model = Classifier(make_encoder(num_layers=1, trainable=is_trained), 3)
    model.compile("lion", **QUICK)
    model.train_on_batch(INPUTS, LABELS)
    copied = copy.deepcopy(model)
    assert np.isfinite(copied.train_on_batch(INPUTS, LABELS)[0])
    copied = copy.deepcopy(model)
    copied.encoder.trainable = not is_trained
    with pytest.raises(UserError, match="compile again with a new optimizer"):
        copied.train_on_batch(INPUTS, LABELS)
    copied.compile("lion", **QUICK)
    assert np.isfinite(copied.train_on_batch(INPUTS, LABELS)[0])


@pytest.mark.any_backend
def test_labels_and_weights_with_other_axes_than_before_are_taken():
    model = Tagger(make_encoder(num_layers=1, trainable=False), 3, dropout=0.0)  # less to trace, twelve times
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    tags = np.arange(16).reshape(2, 8) % 3
    weights = (np.array([1.0, 3.0]), np.array([[1.0], [3.0]]), np.tile([[1.0], [3.0]], 8))
    losses = []
    column = tags[..., None]
    for labels, weight in ((tags, weights[0]), (tags, weights[1]), (column, weights[1]), (column, weights[2])):
        losses += model.fit(INPUTS, labels, sample_weight=weight, verbose=0).history["loss"]
        losses.append(model.evaluate(INPUTS, labels, sample_weight=weight, verbose=0)[0])
        losses.append(model.train_on_batch(INPUTS, labels, sample_weight=weight)[0])
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("form", ["keras", "weights"])
def test_keras_lora_that_was_folded_into_a_file_learns_again(form, tmp_path):
    model = Classifier(make_encoder(num_layers=1), 2, dropout=0.0)
    tune(model, [Lora(2, per_head=True, targets=["query"])])
    last = next(weight for weight in model.weights if weight.name == "lora_kernel_b")
    last.assign(last + 0.3)
    before = forward(model, INPUTS)
    if form == "keras":
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras")
    else:
        model.save_weights(tmp_path / "model.weights.h5")
        model.load_weights(tmp_path / "model.weights.h5")
    last = next(weight for weight in model.weights if weight.name == "lora_kernel_b")
    assert not keras.ops.any(last != 0)
    model.compile(keras.optimizers.SGD(1.0), **QUICK)
    np.testing.assert_allclose(forward(model, INPUTS), before, atol=1e-5)
    model.train_on_batch(INPUTS, np.array([0, 1]))
    assert keras.ops.any(last != 0)


def test_int8_of_a_part_in_float16_is_refused_before_anything_is_quantized():
    narrow = {"block_0/feed_forward/down": keras.DTypePolicy("mixed_float16")}
    mapped = keras.dtype_policies.DTypePolicyMap("float32", narrow)
    encoder = make_encoder(num_layers=1, dtype=mapped)
    with pytest.raises(UserError, match="block_0/feed_forward/down computes in float16, which has no int8"):
        encoder.quantize("int8")
    assert {layer.quantization_mode for layer in layers_of(encoder, include_self=False)} == {None}


def test_an_int8_encoder_is_not_read_in_float16():
    encoder = make_encoder(num_layers=1)
    encoder.quantize("int8")
    with pytest.raises(UserError, match="computes in float16, which has no int8"):
        type(encoder).from_config(encoder.get_config() | {"dtype": "mixed_float16"})


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["GPTQConfig", "AWQConfig"])
def test_a_mode_that_a_file_could_not_say_is_refused_before_anything_is_quantized(kind):
    if not hasattr(keras.quantizers, kind):
        pytest.skip("this Keras has no such mode")
    encoder = make_encoder(num_layers=1)
    with pytest.raises(UserError, match=r"quantize takes the modes int8, int4, float8, and not '(gptq|awq)'"):
        encoder.quantize(config=getattr(keras.quantizers, kind)(dataset=["a"], tokenizer=str.split))
    assert {layer.quantization_mode for layer in layers_of(encoder, include_self=False)} == {None}


@pytest.mark.any_backend
@pytest.mark.parametrize("methods", [[Lora(2)], [Adapters(2)]], ids=["lora", "adapters"])
def test_weights_of_added_layers_are_not_left_out_without_a_word(methods, tmp_path):
    """Keras reads of a file of weights what a model has a place for, and passes over the rest."""
    tuned, again, plain = (Classifier(make_encoder(num_layers=1), 3) for _ in range(3))
    for model in (tuned, again):
        tune(model, methods)
    path, before = tmp_path / "tuned.weights.h5", plain.head.kernel.numpy()
    tuned.save_weights(path)
    with pytest.raises(UserError, match=f"^{path} has what fine-tuning added, .* apply the same methods first"):
        plain.load_weights(path)
    np.testing.assert_array_equal(plain.head.kernel.numpy(), before)
    plain.load_weights(path, skip_mismatch=True)
    again.load_weights(str(path))
    for model in (plain, again):
        np.testing.assert_array_equal(model.head.kernel.numpy(), tuned.head.kernel.numpy())
