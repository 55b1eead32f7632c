"""Encoders come back from wherever they are: whole, cut, mixed, folded; anything else is refused by name."""

import shutil

import keras
import numpy as np
import pytest

from rembed_keras import training
from rembed_keras.adaptation import Adapters, Lora, Norms, RoAd, tune
from rembed_keras.errors import UserError
from rembed_keras.interop import convert, extend, trim
from rembed_keras.modeling import Classifier, Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.attention import Global, Local
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.training.initial import places
from rembed_keras.training.initial.encoder_start import EncoderStart
from rembed_keras.training.initial.weights import Changes, InitialWeights, check_same
from rembed_keras.training.loop import checkpoints, restoring
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, SECOND, SIZES, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST, SECOND]], 12)
KINDS = {
    "plain": {},
    "shared layers in bands": {"layer_sharing": "attention", "layer_groups": 2, "input_cutoffs": (10,)},
    "all shared": {"layer_sharing": "all", "freeze_input_embedding": True},
    "pre-norm": {"block": PreNorm, "attention": [Global, Local(window=4)]},
    "as wide as the blocks": {"input_embedding_dim": 16, "always_project": False},
}
STRATEGIES = [(3, "bottom"), (2, "alternate"), (2, "symmetric"), (2, "top")]  # the second and the last of any kind


def save(model, folder, **state):
    """A checkpoint of a model, and its folder."""
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    return checkpoints.save(folder, 7, parts, {"running": []} | state | restoring.state_of(model))


def fresh(encoder, **changes):
    """Another encoder of the same arguments, otherwise initialized."""
    keras.utils.set_random_seed(99)
    return Encoder(**(encoder.arguments | changes))


def outputs(encoder):
    made = forward(encoder, INPUTS)
    return {key: np.asarray(made[key], "float32") for key in ("sequence_output", "pooled_output")}


def assert_same(one, other, **tolerance):
    for key, value in outputs(one).items():
        np.testing.assert_allclose(value, outputs(other)[key], **({"rtol": 0, "atol": 0} | tolerance), err_msg=key)


@pytest.mark.parametrize(
    ("until", "said"), [(9, "stage: the encoder is that of a pre-training that was stopped at step 7 of 9\n"), (7, "")]
)
def test_a_pre_training_that_was_stopped_is_said_where_its_newest_encoder_is_taken(until, said, tmp_path, capsys):
    path = save(MaskedLM(make_encoder(), 20), tmp_path / "checkpoints", until=until)
    start = EncoderStart(tmp_path, make_encoder)
    start.announce("stage")
    start.announce("stage")
    assert capsys.readouterr().out == said
    for place in (path.parent, path):  # named: it is what was asked for
        EncoderStart(tmp_path, None, str(place)).announce("stage")
        assert "stopped" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_gives_what_it_keeps_and_cuts_of_it(kind, tmp_path):
    encoder = make_encoder(num_layers=4, **KINDS[kind])
    path = save(MaskedLM(encoder, 20), tmp_path / "checkpoints")
    held = restoring.held_in(places.find(tmp_path).path)
    assert places.find(tmp_path).path == path
    started = fresh(encoder)
    held.give(started)
    assert_same(started, encoder)
    for num_layers, keep in STRATEGIES if kind == "plain" else STRATEGIES[1::2]:
        changes = Changes(num_layers, keep)
        if keep == "top" and KINDS[kind].get("block") is PreNorm:
            with pytest.raises(UserError, match="the first of PreNorm blocks must stay"):
                held.changed(changes)
            continue
        cut, expected = held.changed(changes), encoder.with_layers(num_layers, keep)
        assert_same(given(cut), expected)
    with pytest.raises(UserError, match="num_layers is 4 there and 2 in the recipe's encoder: name num_layers of"):
        held.give(fresh(encoder.with_layers(2)))


@pytest.mark.parametrize("make", [LateMaskedLM, ReplacedTokenDetection, MaskedLM])
def test_an_encoder_of_any_objective_and_of_one_that_drops_layers(make, tmp_path):
    encoder = make_encoder(num_layers=3)
    extra = {"kept_layers": 2, "keep": "alternate"} if make is MaskedLM else {}
    model = make(encoder, 20, **extra)
    save(model, tmp_path / "checkpoints")
    started = restoring.held_in(places.find(tmp_path).path).fresh()
    restoring.held_in(places.find(tmp_path).path).give(started)
    assert_same(started, model.drop_heads())
    model.save_to_preset(str(tmp_path / "preset"))
    if make is MaskedLM:
        held = restoring.held_in(tmp_path / "preset")
        held.give(started)
        assert_same(started, model.drop_heads())
    assert places.arguments_of(tmp_path)[0]["num_layers"] == started.num_layers
    assert places.arguments_of(tmp_path / "preset")[0]["num_layers"] == (2 if make is MaskedLM else 3)


@pytest.mark.parametrize("kind", ["shared layers in bands", "pre-norm"])
def test_a_scalar_mix_starts_as_the_plain_output_and_all_of_it_can_learn(kind, tmp_path):
    encoder = make_encoder(num_layers=3, **KINDS[kind])
    held = restoring.held_in(save(Classifier(encoder, 2), tmp_path))
    mixed = held.changed(Changes(scalar_mix=True))
    started = given(mixed)
    assert_same(started, encoder, atol=1e-4)
    assert not np.array_equal(outputs(started)["sequence_output"], outputs(encoder)["sequence_output"])
    both = held.changed(Changes(2, "bottom", scalar_mix=True))
    assert both.changes == ["layers 0, 1 of 3 (bottom)", "a scalar mix is added"]
    assert_same(given(both), encoder.with_layers(2), atol=1e-4)
    with pytest.raises(UserError, match="scalar_mix is False there and True in the recipe's encoder: name scalar_mix"):
        held.give(fresh(encoder, scalar_mix=True))
    with pytest.raises(UserError, match=r"has a scalar mix already: leave scalar_mix of training.InitialWeights out"):
        mixed.changed(Changes(scalar_mix=True))
    with pytest.raises(UserError, match="an encoder with scalar_mix needs all of its layers"):
        mixed.changed(Changes(2))


def given(held):
    started = held.fresh()
    held.give(started)
    return started


METHODS = {
    "lora": [Lora(2, 3.0), Norms()],
    "lora of every head": [Lora(2, per_head=True)],
    "road": [RoAd(2), Lora(2, targets=("up",))],
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("lora", "plain"), ("lora of every head", "all shared"), ("lora of every head", "pre-norm"), ("road", "pre-norm")],
)
def test_what_fine_tuning_added_to_matrices_is_folded_in(name, kind, tmp_path):
    encoder = make_encoder(**KINDS[kind])
    model = Classifier(encoder, 3)
    plain = outputs(encoder)["sequence_output"]
    tune(model, METHODS[name])
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(variable.numpy() + rng.normal(0, 0.1, variable.shape))
    assert np.abs(outputs(encoder)["sequence_output"] - plain).max() > 0.05
    started = given(restoring.held_in(save(model, tmp_path)))
    assert not [weight.path for weight in started.weights if "lora" in weight.path or "road" in weight.path]
    assert_same(started, encoder, atol=2e-5)


def test_what_cannot_be_folded_is_refused(tmp_path):
    model = Classifier(make_encoder(), 3)
    tune(model, [Adapters(2)])
    with pytest.raises(UserError, match="was fine-tuned with adapters, which cannot be folded into an encoder's own"):
        restoring.held_in(save(model, tmp_path / "adapters"))
    encoder = make_encoder()
    for layer in (encoder.token_embedding, encoder.parts.projection, encoder.parts.blocks[1].feed_forward.up):
        layer.quantize("int8")
    encoder.save_to_preset(str(tmp_path / "preset"))
    held = restoring.held_in(tmp_path / "preset")
    assert_same(given(held), encoder)
    assert_same(given(held.changed(Changes(1, "top"))), encoder.with_layers(1, "top"))
    with pytest.raises(UserError, match="has adapters or quantized layers that the encoder of this stage has not"):
        held.give(make_encoder())
    model = Classifier(encoder, 3)
    tune(model, [Lora(2)])
    with pytest.raises(UserError, match="is quantized: what its fine-tuning method added cannot be folded into it"):
        restoring.held_in(save(model, tmp_path / "lora"))


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_float16"])
def test_an_encoder_of_another_dtype_has_the_same_values(dtype, tmp_path):
    encoder = make_encoder()
    held = restoring.held_in(save(MaskedLM(encoder, 20), tmp_path))
    started = fresh(encoder, dtype=dtype)
    held.give(started)
    for ours, theirs in zip(started.weights, encoder.weights, strict=True):
        expected = keras.ops.cast(theirs, started.variable_dtype)
        np.testing.assert_array_equal(keras.ops.cast(ours, "float32"), keras.ops.cast(expected, "float32"))
    mixed = held.changed(Changes(scalar_mix=True))
    started = fresh(encoder, dtype=dtype, scalar_mix=True)
    mixed.give(started)
    plain = fresh(encoder, dtype=dtype)
    held.give(plain)
    assert_same(started, plain, atol=0.05)  # of activations in 8 and 11 bits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 60}, "vocabulary_size is 50 there and 60 in the recipe's encoder: `rembed trim`"),
        ({"hidden_dim": 32}, "hidden_dim is 16 there and 32"),
        ({"num_heads": 4}, "num_heads is 2 there and 4"),
        ({"head_dim": 4}, "head_dim is 8 there and 4"),
        ({"intermediate_dim": 8}, "intermediate_dim is 24 there and 8"),
        ({"input_embedding_dim": 8}, "input_embedding_dim is 6 there and 8"),
        ({"max_sequence_length": 14}, "max_sequence_length is 12 there and 14"),
        ({"num_segments": 3}, "num_segments is 2 there and 3"),
        ({"activation": "gelu_tanh"}, "activation is 'gelu' there and 'gelu_tanh'"),
        ({"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon is 1e-12 there and 1e-05"),
        ({"block": PreNorm}, "block is 'PostNorm' there and 'PreNorm'"),
        ({"attention": [Local]}, "attention is 'Global' there and 'Local'"),
        ({"layer_sharing": "all"}, "layer_sharing is 'none in groups 1' there and 'all in groups 1'"),
        ({"input_cutoffs": (10,)}, r"input_cutoffs is \[\] there and \[10\]"),
    ],
)
def test_a_difference_is_named(changes, message):
    with pytest.raises(UserError, match=f"^there: {message}"):
        check_same(SIZES, SIZES | changes, "there")


@pytest.mark.parametrize(
    "changes",
    [
        {"dropout": 0.1, "freeze_input_embedding": True, "head_dim": 8, "layer_groups": 2},
        {"block": PreNorm, "max_sequence_length": 99},
        {"layer_sharing": "all", "layer_groups": [0, 1]},
        {"attention": [Global(kernel="dense")]},
    ],
)
def test_what_changes_nothing_that_weights_mean_may_differ(changes):
    theirs = SIZES | {key: value for key, value in changes.items() if key == "block"}
    if "layer_sharing" in changes:
        theirs = SIZES | {"layer_sharing": "all", "layer_groups": 2}
    check_same(theirs, SIZES | changes, "there")


def test_presets_of_edited_vocabularies_and_hugging_face_folders(corpus, text_dir, tmp_path):
    encoder = Encoder(900, 2, 2, 8, 16, 4, max_sequence_length=32)
    MaskedLM(encoder, 6).save_to_preset(str(tmp_path / "preset"))
    shutil.copy(corpus.tokenizer.path, tmp_path / "preset" / "tokenizer.model")
    trim(str(tmp_path / "preset"), str(tmp_path / "trimmed"), str(text_dir), ["de"])
    extend(str(tmp_path / "preset"), str(tmp_path / "extended"), ["zzyzx"])
    convert(str(tmp_path / "preset"), str(tmp_path / "theirs"), "preset", "huggingface")
    for name, relation in (("trimmed", -1), ("extended", 1), ("theirs", 0)):
        arguments, said = places.arguments_of(tmp_path / name)
        assert np.sign(arguments["vocabulary_size"] - 900) == relation and said == str(tmp_path / name)
        place = places.find(tmp_path / name)
        assert (place.tokenizer.sha256 == corpus.tokenizer.sha256) == (name == "theirs")
        assert given(restoring.held_in(place.path)).arguments["vocabulary_size"] == arguments["vocabulary_size"]
        if relation:
            with pytest.raises(UserError, match="vocabulary_size is"):
                restoring.held_in(place.path).give(encoder)
    for name in (
        "tokenizer.model",
        "tokenizer.json",
        "assets/tokenizer/tokenizer.model",
    ):  # SentencePiece's, keras-hub's
        (tmp_path / "trimmed" / name).unlink()
    with pytest.raises(UserError, match="has no tokenizer"):
        _ = places.find(tmp_path / "trimmed").tokenizer


def test_a_place_that_holds_no_encoder_is_named(tmp_path):
    for name in ("empty", "run/checkpoints", "tuned/finetuned/topics"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tuned/finetuned/topics/task.json").write_text("{}")
    path = save(MaskedLM(make_encoder(), 20), tmp_path / "good/checkpoints")
    messages = {
        "empt": r"is not a folder of a model; did you mean empty\?",
        "empty": "is not a run, a fine-tuned task, a keras-hub preset or a Hugging Face model",
        "run": "has no pre-trained encoder: run pretrain first",
        "tuned": "did not pre-train: name one of its fine-tuned tasks, for example .*finetuned/topics",
    }
    for name, message in messages.items():
        with pytest.raises(UserError, match=message):
            places.find(tmp_path / name)
    assert places.find(path).path == path and places.find(path.parent).path == path
    (path.parent / "failed.json").write_text("{}")  # as fine-tuning leaves it, where a loss was not finite
    with pytest.raises(UserError, match=f"is of a training that failed; its checkpoint of before that is {path}$"):
        places.find(path.parent)
    assert places.find(path).path == path
    (path / "encoder.safetensors").write_bytes(b"x")
    with pytest.raises(UserError, match="is damaged"):
        places.find(path)
    for record in ({"num_layers": "x"}, {"keep": "some"}, {"scalar_mix": 1}):
        with pytest.raises(UserError, match="describes no changes"):
            Changes.of(record)
    for arguments in (
        {"num_layers": 0},
        {"keep": "middle"},
        {"keep": "top"},  # of how many
        {"checkpoint": "last"},
        {"checkpoint": "best", "task": "a"},
    ):
        with pytest.raises(UserError, match="InitialWeights is"):
            training.InitialWeights("x", **arguments)
    with pytest.raises(UserError, match="needs an encoder"):
        EncoderStart(tmp_path)
    assert InitialWeights(task="a/b").folder == "finetuned/a/b"
