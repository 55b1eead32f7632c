"""What was added to a model after it was made, or quantized in it, is there again when the model is."""

import gc

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.methods import Adapters, Lora
from rembed_keras.adaptation.projections import LowRank, Rotations
from rembed_keras.adaptation.tuning import tune
from rembed_keras.errors import UserError
from rembed_keras.interop.convert import read_preset
from rembed_keras.modeling import Classifier, Encoder, MaskedLM
from rembed_keras.modeling.layers.adapters import (
    PROJECTIONS,
    hosted_by,
    insert_adapters,
    insert_changes,
    insert_keras_lora,
    merge,
)
from rembed_keras.modeling.saving.changes import changes_of
from rembed_keras.training.loop import checkpoints, restoring
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")  # of norms
INPUTS = make_inputs([[FIRST], [SECOND]], 7)
MODERN = {"block": "modern", "num_segments": 0}
SHARED = {"layer_sharing": "attention", "num_layers": 3}
WIDE = keras.DTypePolicy("float32")
MAPPED = {"dtype": keras.dtype_policies.DTypePolicyMap(WIDE, {"block_1/.*": keras.DTypePolicy("mixed_bfloat16")})}


@pytest.fixture(autouse=True)
def _no_old_garbage():
    """For each layer that Keras quantizes it looks through all there is for garbage, which takes a second."""
    gc.freeze()


def stir(model, names):
    """Random values for the variables whose path has one of some names: what was learned."""
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if any(name in weight.path for name in names):
            weight.assign(rng.normal(0, 0.3, weight.shape))


def with_adapters(blocks=slice(None), **changes):
    encoder = make_encoder(**changes)
    insert_adapters(encoder, encoder.parts.blocks[blocks], 3)
    stir(encoder, ["adapter"])
    return encoder


def with_all_kinds(**changes):
    """Layers in all three places, two on one projection."""
    encoder = with_adapters(**changes)
    blocks = encoder.parts.blocks
    insert_adapters(encoder, blocks[1:], 2, "beside")
    insert_changes(blocks, ("query", "output", "up"), lambda dtype: LowRank(2, 3.0, dtype=dtype))
    insert_changes(blocks[:1], ("query",), lambda dtype: Rotations(2, dtype=dtype))
    stir(encoder, ["adapter", "lora", "road"])
    return encoder


def outputs(model):
    made = model(INPUTS | ({"mask_positions": np.array([[1, 3]] * 2)} if isinstance(model, MaskedLM) else {}))
    return np.asarray(keras.ops.cast(made["sequence_output"] if isinstance(made, dict) else made, "float32"))


def through_keras(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras", compile=False)


def through_a_preset(model, folder):
    model.save_to_preset(str(folder / "preset"))
    return read_preset(folder / "preset")[0]


def through_a_checkpoint(model, folder):
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    state = {"running": [], "model": keras.saving.serialize_keras_object(model)}
    checkpoints.save(folder, 1, parts, state)
    return restoring.restore(checkpoints.latest(folder))


def tuned_twice(encoder):
    """Two tasks on one encoder: the second of them, which adds adapters where the first has none."""
    tune(Classifier(encoder, 2), [Adapters(3, layers=[0])])
    second = Classifier(encoder, 3)
    tune(second, [Adapters(2, layers=[1])])
    stir(encoder, ["adapter"])
    return second


MODELS = {
    "an encoder with layers of all kinds": with_all_kinds,
    "one that shares with layers of all kinds": lambda: with_all_kinds(**SHARED),
    "a pre-norm masked LM with layers of all kinds": lambda: MaskedLM(with_all_kinds(**MODERN), 5),
    "an encoder that shares": lambda: with_adapters(blocks=slice(2, 3), **SHARED),
    "a cut encoder": lambda: with_adapters(blocks=slice(2, 3), num_layers=3).with_layers(2, "symmetric"),
    "a cut encoder that shares": lambda: with_adapters(blocks=slice(2, 3), **SHARED).with_layers(2, "top"),
    "an encoder without its head": lambda: MaskedLM(with_adapters(), 5).drop_heads(1),
    "a task on another's encoder": lambda: Classifier(with_adapters(), 3),
    "a task of its own besides": lambda: tuned_twice(make_encoder()),
}
FORMS = {"keras": through_keras, "preset": through_a_preset, "checkpoint": through_a_checkpoint}


def forms_of(model):
    if isinstance(model, Classifier):
        return ["keras", "checkpoint"]
    return ["keras", "preset"] if isinstance(model, Encoder) else [*FORMS]


def weights_are_equal(one, other):
    ours, theirs = (sorted(model.weights, key=lambda weight: weight.path) for model in (one, other))
    assert [weight.path.rsplit("/")[-2:] for weight in ours] == [weight.path.rsplit("/")[-2:] for weight in theirs]
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.dtype == its.dtype, mine.path
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(mine), keras.ops.convert_to_numpy(its))


@pytest.mark.any_backend
@pytest.mark.parametrize("name", MODELS)
def test_adapters_are_saved(name, tmp_path):
    model = MODELS[name]()
    assert any("adapter" in weight.path for weight in model.weights)
    expected = outputs(model)
    for form in forms_of(model):
        again = FORMS[form](model, tmp_path)
        assert changes_of(getattr(again, "encoder", again)) == changes_of(getattr(model, "encoder", model))
        np.testing.assert_array_equal(outputs(again), expected, err_msg=form)


def quantized(model):
    model.quantize("int8")
    return model


def tuned_and_quantized(*methods):
    model = Classifier(make_encoder(), 3)
    tune(model, [*methods])
    stir(model, ["adapter", "lora"])
    return quantized(model)


QUANTIZED = {
    "an encoder in bands": lambda: quantized(make_encoder(num_layers=1, input_cutoffs=(20,))),
    "a cut encoder": lambda: quantized(make_encoder(num_layers=3)).with_layers(2, "symmetric"),
    "an encoder with adapters": lambda: quantized(with_adapters(**SHARED)),
    "a task of two dtypes": lambda: quantized(Classifier(make_encoder(**MAPPED), 3)),
    "a decoupled masked LM": lambda: quantized(MaskedLM(make_encoder(**MODERN), 16, output_cutoffs=(20,))),
    "a coupled masked LM": lambda: quantized(MaskedLM(make_encoder(num_layers=1), 6, coupling="coupled")),
    "a gdes masked LM": lambda: quantized(MaskedLM(make_encoder(num_layers=1), 6, coupling="gdes")),
    "a task with adapters": lambda: tuned_and_quantized(Adapters(3)),
}
ON_JAX = ("a task of two dtypes", "a decoupled masked LM")  # matrices, tables and bands: what JAX reads of int8


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ON_JAX else pytest.mark.any_backend) for name in QUANTIZED]
)
def test_quantized_models_are_saved(name, tmp_path):
    model = QUANTIZED[name]()
    assert {weight.dtype for weight in model.weights} >= {"int8"}
    for form in forms_of(model):
        again = FORMS[form](model, tmp_path)
        weights_are_equal(model, again)
    again.save(tmp_path / "again.keras")  # Keras fails at that if it made the model of a map of dtypes
    np.testing.assert_array_equal(outputs(again), outputs(model))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("written", "read", "is_quantized"),
    [("mixed_bfloat16", "float32", False), ("mixed_bfloat16", "float32", True), ("float32", "bfloat16", True)],
)
def test_what_was_added_is_read_in_the_dtype_of_its_encoder(written, read, is_quantized):
    encoder = with_all_kinds(dtype=written)
    if is_quantized:
        encoder.quantize("int8")
    again = Encoder.from_config(encoder.get_config() | {"dtype": read})  # as later keras-hubs read presets
    again.set_weights(encoder.get_weights())
    assert {layer.compute_dtype for layer in hosted_by(again)} == {read}
    assert changes_of(again).get("quantized") == changes_of(encoder).get("quantized")
    assert np.abs(outputs(again) - outputs(encoder)).mean() < 0.03 * outputs(encoder).std()


def test_lora_on_quantized_matrices_is_saved(tmp_path):
    model = tuned_and_quantized(Adapters(3), Lora(2, per_head=True))
    weights_are_equal(model, through_a_checkpoint(model, tmp_path))
    folded = through_keras(model, tmp_path)  # which quantizes again what LoRA was folded into
    plain = through_a_checkpoint(model, tmp_path)
    for weight in plain.weights:
        if weight.name == "lora_kernel_b":
            weight.assign(0 * weight)
    learned, folded, plain = (outputs(each.encoder) for each in (model, folded, plain))  # more numbers than logits
    assert np.abs(folded - learned).mean() < 0.1 * np.abs(plain - learned).mean()


@pytest.mark.any_backend
@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "cut"])
def test_dtypes_by_layer_are_saved(is_cut, tmp_path):
    model = make_encoder(**(MAPPED | {"num_layers": 3}))
    model = model.with_layers(2, "top") if is_cut else MaskedLM(model, 5)
    expected = [layer.compute_dtype for layer in model._flatten_layers(include_self=False)]
    assert {*expected} >= {"bfloat16", "float32"}
    # keras-hub gives an encoder's preset the dtype of whoever reads it
    for form in ["keras"] if is_cut else forms_of(model):
        again = FORMS[form](model, tmp_path)
        assert [layer.compute_dtype for layer in again._flatten_layers(include_self=False)] == expected
        weights_are_equal(model, again)


@pytest.mark.any_backend
def test_what_is_not_quantized_keeps_its_dtype(tmp_path):
    again = through_keras(quantized(make_encoder(num_layers=1, dtype="mixed_bfloat16")), tmp_path)
    assert again.parts.blocks[0].attention.norm.compute_dtype == again.parts.blocks[0].compute_dtype == "bfloat16"


@pytest.mark.parametrize(
    "changes", [{}, pytest.param({"input_cutoffs": (20,)}, marks=pytest.mark.any_backend)], ids=["plain", "banded"]
)
def test_quantized_tables_compute_in_the_dtype_of_their_layer(changes):
    encoder, wide = (make_encoder(num_layers=1, dtype=dtype, **changes) for dtype in ("mixed_bfloat16", "float32"))
    wide.set_weights(encoder.get_weights())
    expected = outputs(quantized(wide))
    table = quantized(encoder).parts.embeddings.token
    assert keras.backend.standardize_dtype(table(INPUTS["token_ids"]).dtype) == "bfloat16"
    assert np.abs(outputs(encoder) - expected).mean() < 0.03 * expected.std()  # numbers of 8 bits, rounded twice


def test_an_encoders_tables_are_quantized():
    encoder = quantized(make_encoder(num_layers=1))
    parts = encoder.parts.embeddings
    assert [table.embeddings.dtype for table in (parts.token, parts.position, parts.segment)] == ["int8"] * 3


@pytest.mark.parametrize("changes", [{}, pytest.param(MODERN, marks=pytest.mark.any_backend)], ids=["bert", "modern"])
def test_lora_is_folded_into_quantized_matrices(changes):
    encoder = quantized(make_encoder(**changes))
    plain = outputs(encoder)
    insert_keras_lora(encoder.parts.blocks, 2, 4.0, PROJECTIONS)
    stir(encoder, ["lora"])
    learned = outputs(encoder)
    first = {weight.path: weight.numpy() for weight in encoder.weights if weight.name == "lora_kernel_a"}
    merge(encoder)
    moved = np.abs(outputs(encoder) - learned).mean()
    assert moved < 0.05 * np.abs(learned - plain).mean()
    for weight in encoder.weights:
        if weight.name == "lora_kernel_b":
            assert not np.any(weight.numpy()), weight.path
        elif weight.path in first:
            np.testing.assert_array_equal(weight.numpy(), first[weight.path])


@pytest.mark.any_backend
def test_a_checkpoint_with_lora_that_its_model_has_not_is_refused(tmp_path):
    encoder = make_encoder()
    tune(Classifier(encoder, 2), [Lora(2, per_head=True)])
    stir(encoder, ["lora"])
    with pytest.raises(UserError, match=r"encoder\.safetensors has block_0/.*lora_kernel_a, which the model has not"):
        through_a_checkpoint(Classifier(encoder, 3), tmp_path)


@pytest.mark.any_backend
def test_an_encoder_is_not_filled_from_one_with_adapters(tmp_path):
    model = Classifier(with_adapters(), 3)
    through_a_checkpoint(model, tmp_path)
    found = checkpoints.latest(tmp_path)
    with pytest.raises(UserError, match="has adapters or quantized layers that the encoder of this stage has not"):
        restoring.load_kept(make_encoder(), found)
    fresh = restoring.kept_encoder(found)
    restoring.load_kept(fresh, found)
    weights_are_equal(fresh, model.encoder)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adapters": [[1, 1]]}, "must be two widths for each of 2 blocks"),
        ({"adapters": [[1, 1], [1, -1]]}, "must be two widths"),
        ({"adapters": "ab"}, "must be two widths"),
        ({"hosted": [{"block": 2}]}, "describes no layer that this encoder could host"),
        ({"hosted": [{"block": 0, "sublayer": "attention", "place": "after", "layer": 3}]}, "describes no"),
        ({"quantized": {"int8": ["nothing"]}}, "'nothing' is quantized to 'int8': this model has no such layer"),
        ({"quantized": {"gptq": ["projection"]}}, "'projection' is quantized to 'gptq'"),
    ],
)
def test_changes_of_another_encoder_are_refused(changes, message):
    config = make_encoder().get_config()
    with pytest.raises(UserError, match=message):
        Encoder.from_config(config | changes)
