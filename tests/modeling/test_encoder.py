import json

import keras
import keras_hub
import numpy as np
import pytest

from rembed_keras.analysis import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, MaskedLM, ReplacedTokenDetection, SpanExtractor, attention
from tests.modeling import reference
from tests.modeling.forward import forward

SIZES = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "input_embedding_dim": 6,
    "max_sequence_length": 12,
}


def make_encoder(**changes):
    keras.utils.set_random_seed(7)
    encoder = Encoder(**(SIZES | changes))
    rng = np.random.default_rng(0)  # weights of a size that makes every part matter, norms and biases included
    for weight in encoder.weights:
        weight.assign(weight.numpy() + rng.normal(0, 0.3, weight.shape))
    return encoder


def make_inputs(documents, length):
    """Packs rows, each a list of documents, into the encoder's inputs."""
    inputs = {key: np.zeros((len(documents), length), "int32") for key in ("token_ids", "segment_ids", "padding_mask")}
    for row, parts in enumerate(documents):
        start = 0
        for number, (tokens, segments) in enumerate(parts, start=1):
            span = slice(start, start + len(tokens))
            inputs["token_ids"][row, span] = tokens
            inputs["segment_ids"][row, span] = segments
            inputs["padding_mask"][row, span] = number
            start += len(tokens)
    return inputs


FIRST = ([2, 11, 12, 13, 3, 21, 3], [0, 0, 0, 0, 0, 1, 1])
SECOND = ([2, 31, 32, 3], [0, 0, 0, 0])


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_equals_the_reference_in_float64(activation):
    encoder = make_encoder(activation=activation)
    outputs = forward(encoder, make_inputs([[FIRST]], 7))
    states, pooled = reference.encode(encoder, *map(np.array, FIRST), activation=getattr(reference, activation))
    assert len(outputs["hidden_states"]) == 3
    for ours, theirs in zip(outputs["hidden_states"], states, strict=True):
        np.testing.assert_allclose(ours[0], theirs, atol=2e-5)
    np.testing.assert_array_equal(outputs["sequence_output"], outputs["hidden_states"][-1])
    np.testing.assert_allclose(outputs["pooled_output"][0], pooled, atol=2e-5)


def test_a_mask_of_truth_values_is_one_of_numbers():
    encoder = make_encoder()
    numbers = make_inputs([[FIRST], [SECOND]], 8)
    truth = numbers | {"padding_mask": numbers["padding_mask"].astype(bool)}
    ours, theirs = (forward(encoder, inputs)["sequence_output"] for inputs in (truth, numbers))
    np.testing.assert_array_equal(ours, theirs)
    spans = SpanExtractor(encoder)
    np.testing.assert_array_equal(*(forward(spans, inputs) for inputs in (truth, numbers)))


def test_a_packed_row_equals_its_documents_alone():
    encoder = make_encoder()
    packed = forward(encoder, make_inputs([[FIRST, SECOND]], 12))["sequence_output"][0]
    alone = forward(encoder, make_inputs([[FIRST], [SECOND]], 7))["sequence_output"]
    np.testing.assert_allclose(packed[:7], alone[0], atol=1e-5)
    np.testing.assert_allclose(packed[7:11], alone[1, :4], atol=1e-5)


def test_padding_changes_nothing():
    encoder = make_encoder()
    short, long = make_inputs([[FIRST]], 7), make_inputs([[FIRST]], 12)
    long["token_ids"][0, 7:] = 40  # whatever stands under padding
    np.testing.assert_allclose(
        forward(encoder, long)["sequence_output"][0, :7], forward(encoder, short)["sequence_output"][0], atol=1e-5
    )


def test_left_padding_keeps_the_index_as_position():
    encoder = make_encoder()
    inputs = {key: np.roll(value, 3, axis=1) for key, value in make_inputs([[SECOND]], 7).items()}
    states = forward(encoder, inputs)["hidden_states"][0]
    w = reference.weights_of(encoder)
    embedded = w["embeddings/token/embeddings"][SECOND[0]] + w["embeddings/segment/embeddings"][0]
    embedded = embedded + w["embeddings/position/embeddings"][3:7]
    embedded = reference.layer_norm(embedded, w["embeddings/norm/gamma"], w["embeddings/norm/beta"])
    np.testing.assert_allclose(states[0, 3:7], embedded @ w["projection/kernel"] + w["projection/bias"], atol=2e-5)


@pytest.mark.any_backend
def test_counts_the_parameters_of_the_published_graph():
    encoder = Encoder(1000, 3, 4, 64, 256, 32, max_sequence_length=128)
    embeddings = (1000 + 128 + 2) * 32 + 2 * 32
    assert encoder.count_params() == embeddings + 32 * 64 + 64 + 3 * (12 * 64**2 + 13 * 64) + 64 * 64 + 64


def test_cutting_layers_shares_weights():
    encoder = make_encoder()
    lower = encoder.with_layers(1)
    inputs = make_inputs([[FIRST]], 7)
    whole = forward(encoder, inputs)
    np.testing.assert_array_equal(forward(lower, inputs)["sequence_output"], whole["hidden_states"][1])
    encoder.token_embedding.embeddings.assign(encoder.token_embedding.embeddings + 1.0)
    ours, theirs = forward(lower, inputs)["sequence_output"], forward(encoder, inputs)["hidden_states"][1]
    np.testing.assert_array_equal(ours, theirs)
    assert lower.get_config()["num_layers"] == 1
    with pytest.raises(ValueError, match="has 2 to keep from"):
        encoder.with_layers(3)


@pytest.mark.any_backend
def test_presets_and_configs_come_back(tmp_path):
    encoder = make_encoder(activation="gelu_tanh")
    inputs = make_inputs([[FIRST]], 7)
    expected = forward(encoder, inputs)["sequence_output"]
    encoder.save_to_preset(str(tmp_path / "preset"))
    for loader in (Encoder, keras_hub.models.Backbone):
        restored = loader.from_preset(str(tmp_path / "preset"))
        assert isinstance(restored, Encoder)
        np.testing.assert_array_equal(forward(restored, inputs)["sequence_output"], expected)
    again = Encoder.from_config(json.loads(json.dumps(encoder.get_config())))
    assert again.get_config() == encoder.get_config()
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(forward(loaded, inputs)["sequence_output"], expected)


def test_lora_trains_only_its_factors():
    encoder = make_encoder()
    encoder.enable_lora(2)
    trained = {variable.path for variable in encoder.trainable_variables}
    assert trained and all("query" in path or "value" in path for path in trained)
    assert any("lora" in path for path in trained)


@pytest.mark.any_backend
def test_a_frozen_encoder_stays_frozen_when_it_is_cut_and_when_it_comes_back(tmp_path):
    encoder = make_encoder(trainable=False)
    encoder.save_to_preset(str(tmp_path / "preset"))
    cut, again = encoder.with_layers(1), Encoder.from_preset(str(tmp_path / "preset"))
    for each in (encoder, cut, again, Encoder.from_config(encoder.get_config())):
        model = Classifier(each, num_classes=3)
        assert {variable.path for variable in model.trainable_variables} == {"head/kernel", "head/bias"}


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [MaskedLM, ReplacedTokenDetection])
@pytest.mark.parametrize("coupling", ["decoupled", "coupled"])
def test_an_optimizer_remembers_nothing_of_a_frozen_encoder(make, coupling):
    model = make(make_encoder(trainable=False), SIZES["input_embedding_dim"], coupling=coupling)
    trained = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    frozen = {id(variable) for variable in model.encoder.variables}
    assert trained and frozen.isdisjoint(id(variable) for variable in model.trainable_variables)
    counted = ledger(model)
    assert counted.optimizer_bytes["total"] == 2 * 4 * trained
    assert counted.training_flops["kept"] == sum(each.flops - each.spared for each in counted.entries if each.is_kept)
    with pytest.raises(UserError, match="trains the encoder: leave trainable=False out"):
        ReplacedTokenDetection(model.encoder, 12, sharing="gdes")


def test_bfloat16_stays_near_float32():
    encoder = make_encoder()
    half = Encoder(**SIZES, dtype="mixed_bfloat16")
    half.set_weights(encoder.get_weights())
    inputs = make_inputs([[FIRST, SECOND]], 12)
    ours, exact = forward(half, inputs)["sequence_output"][0, :11], forward(encoder, inputs)["sequence_output"][0, :11]
    error = np.abs(ours.astype("float32") - exact)
    assert error.max() > 0  # it did compute in bfloat16
    assert error.max() < 0.25 and error.mean() < 0.03


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "num_heads is 3; it must divide hidden_dim, 16"),
        ({"num_layers": 0}, "num_layers is 0; it must be a positive whole number"),
        ({"hidden_dim": 16.0}, "hidden_dim is 16.0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon is nan; it must be a number of at least 0"),
        ({"layer_norm_epsilon": -1e-5}, "layer_norm_epsilon is -1e-05; it must be a number of at least 0"),
        ({"activation": "silu"}, "gelu, gelu_tanh"),
    ],
)
def test_refuses_what_cannot_be_built(changes, message):
    with pytest.raises(ValueError, match=message):
        Encoder(**(SIZES | changes))


@pytest.mark.any_backend
@pytest.mark.parametrize("base", [0, -10_000.0, float("nan"), float("inf"), "10000", True])
def test_refuses_a_rotary_base_that_turns_nothing(base):
    for kind in (attention.Global, attention.Local, attention.Nystrom):
        with pytest.raises(UserError, match=f"the rotary_base of attention is {base!r}; it must be a number above 0"):
            kind(rotary_base=base)


def test_dropout_is_off_when_predicting_and_on_when_training():
    encoder = make_encoder(dropout=0.5)
    inputs = make_inputs([[FIRST]], 7)
    np.testing.assert_array_equal(*(encoder.predict(inputs, verbose=0)["sequence_output"] for _ in range(2)))
    trained = [np.asarray(encoder(inputs, training=True)["sequence_output"]) for _ in range(2)]
    assert not np.array_equal(*trained)


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["int8_from_mixed_bfloat16", "float8_from_float32", "int8"])
def test_a_dtype_of_quantized_layers_is_refused(dtype, tmp_path):
    with pytest.raises(UserError, match=f"dtype is '{dtype}'"):
        Encoder(**SIZES, dtype=dtype)
    Encoder(**SIZES).save_to_preset(str(tmp_path))
    with pytest.raises(UserError, match=f"dtype is '{dtype}'"):
        Classifier.from_preset(str(tmp_path), num_classes=2, dtype=dtype)
