"""Hugging Face folders without Hugging Face: round trips, names, and malformed folders."""

import gzip
import json

import keras
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file

from rembed_keras.data import sample
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.sentence_piece import train_tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import convert, write
from rembed_keras.interop.convert import read_preset
from rembed_keras.interop.huggingface.read import read_huggingface
from rembed_keras.interop.vocabularies.protocol import vocabulary_of
from rembed_keras.modeling.attention import Global, Local
from rembed_keras.modeling.blocks import PreNorm
from tests.interop.models import random_model
from tests.interop.reallocation.inputs import rows_of_text
from tests.modeling.forward import forward


@pytest.mark.parametrize("form", ["huggingface", "preset"])
def test_a_round_trip_gives_the_same_bits(form, tmp_path):
    model = random_model()
    write(model, str(tmp_path / "there"), form, None)
    convert(str(tmp_path / "there"), str(tmp_path / "back"), form, "preset")
    again, _ = read_preset(tmp_path / "back")
    assert [weight.path for weight in again.weights] == [weight.path for weight in model.weights]
    for ours, back in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), back.numpy())


def test_a_model_of_bfloat16_is_written_as_it_is(tmp_path):
    model = random_model({"dtype": "bfloat16"})
    write(model, str(tmp_path / "there"), "huggingface", None)
    again, _ = read_huggingface(tmp_path / "there")
    for ours, back in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(ours, "float32"), np.asarray(back))


@pytest.mark.parametrize("narrow", ["query", "value"])
def test_parts_of_one_array_may_have_different_dtypes(narrow, tmp_path):
    policies = {f"block_0/attention/{narrow}": keras.DTypePolicy("bfloat16")}
    dtype = keras.dtype_policies.DTypePolicyMap(keras.DTypePolicy("float32"), policies)
    sizes = {"block": PreNorm, "num_segments": 0, "input_embedding_dim": 16, "always_project": False}
    encoder = random_model(sizes | {"dtype": dtype}).encoder
    write(encoder, str(tmp_path / "there"), "huggingface", None)
    again, _ = read_huggingface(tmp_path / "there")
    for ours, back in zip(encoder.weights[:-2], again.weights[:-2], strict=True):  # without the pooler
        np.testing.assert_array_equal(np.asarray(ours, "float32"), np.asarray(back))


@pytest.mark.any_backend
@pytest.mark.parametrize("keep", ["top", "alternate", "symmetric"])
def test_blocks_that_stay_go_by_their_places_in_the_cut(keep, tmp_path):
    model = random_model({"num_layers": 4}, {"output_embedding_dim": 20, "kept_layers": 2, "keep": keep})
    write(model, str(tmp_path / "there"), "huggingface", None)
    again, _ = read_huggingface(tmp_path / "there")
    cut = model.drop_heads()
    assert again.num_layers == cut.num_layers == 2
    ours, theirs = (forward(each, rows_of_text())["sequence_output"] for each in (again, cut))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.any_backend
@pytest.mark.parametrize(("groups", "kept", "keep"), [(1, 2, "bottom"), (2, 3, "bottom"), (2, 2, "top")])
def test_a_cut_albert_is_written(groups, kept, keep, tmp_path):
    shared = {"num_layers": 4, "layer_sharing": "all", "layer_groups": groups}
    cut = random_model(shared, {"output_embedding_dim": 6, "kept_layers": kept, "keep": keep}).drop_heads()
    write(cut, str(tmp_path / "out"), "huggingface", None, "albert")
    again, _ = read_huggingface(tmp_path / "out")
    ours, theirs = (forward(each, rows_of_text())["sequence_output"] for each in (again, cut))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    uneven = random_model(shared | {"layer_groups": [0, 1, 1, 1]}).encoder
    with pytest.raises(
        UserError, match=r"albert does not have the graph of an encoder with layer_groups \[0, 1, 1, 1\]"
    ):
        write(uneven, str(tmp_path / "uneven"), "huggingface", None, "albert")


@pytest.mark.any_backend
def test_a_piece_of_several_words_is_found_in_what_is_written(corpus, tmp_path):
    vocabulary = vocabulary_of(corpus.tokenizer)
    vocabulary.write_extended(["\u2581the\u2581right", "\u2581Zuzu", "Saveit"], tmp_path / "more.model")
    ours = open_tokenizer(tmp_path / "more.model")
    write(
        random_model({"vocabulary_size": 903}).encoder, str(tmp_path / "there"), "huggingface", tmp_path / "more.model"
    )
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "there/tokenizer.json"))
    texts = [
        "Everyone has the right  to Zuzu.",
        " the right",
        "x Saveit \u20bf\u20bf the \u20bf right",
        "",
        "日本語 \u20bf",
    ]
    texts += corpus_texts(200)
    assert 900 in ours.encode(texts[0]) and sum(900 in ours.encode(text) for text in texts) > 3
    for text in texts:
        assert list(ours.encode(text)) == theirs.encode(text, add_special_tokens=False).ids, text


@pytest.mark.any_backend
def test_what_a_tokenizer_json_says_otherwise_is_noted(tmp_path):
    train_tokenizer(corpus_texts(200), tmp_path / "own.model", 500, normalization="identity")
    model = random_model({"vocabulary_size": 500}).encoder
    notes = write(model, str(tmp_path / "there"), "huggingface", tmp_path / "own.model")
    assert [note for note in notes if "begins with a space" in note]


def corpus_texts(count):
    return gzip.decompress((sample.text_folder() / "en.txt.gz").read_bytes()).decode().splitlines()[:count]


HEADS = {
    "bert": ("cls.predictions", {"input_embedding_dim": 16, "always_project": False}),
    "albert": ("predictions", {"layer_sharing": "all"}),
}


def with_a_head(name, coupling, folder):
    """The model, the name of its head, and its folder's tensors."""
    head, encoder = HEADS[name]
    width = encoder.get("input_embedding_dim", 6)
    model = random_model(encoder, {"output_embedding_dim": width, "coupling": coupling})
    write(model, str(folder), "huggingface", None)
    return model, head, load_file(folder / "model.safetensors")


def bias_of(folder):
    model, _ = read_huggingface(folder)
    return next(weight for weight in model.weights if weight.path == "head/output_embedding/bias").numpy()


@pytest.mark.any_backend
@pytest.mark.parametrize("coupling", ["decoupled", "gdes"])
@pytest.mark.parametrize("name", HEADS)
def test_the_bias_of_an_untied_head_goes_by_two_names_and_the_decoders_is_used(name, coupling, tmp_path):
    _, head, tensors = with_a_head(name, coupling, tmp_path / "out")
    one, other = tensors[f"{head}.decoder.bias"], tensors[f"{head}.bias"]
    assert one.any()
    np.testing.assert_array_equal(one, other)
    change_tensors(tmp_path / "out", lambda t: t.update({f"{head}.bias": one + 1}))  # as transformers 5 saves it
    np.testing.assert_array_equal(bias_of(tmp_path / "out"), one)
    change_tensors(tmp_path / "out", lambda t: t.pop(f"{head}.decoder.bias"))  # as transformers 4 saves it
    np.testing.assert_array_equal(bias_of(tmp_path / "out"), one + 1)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", HEADS)
def test_tables_that_differ_stay_untied(name, tmp_path):
    model, head, tensors = with_a_head(name, "coupled", tmp_path / "out")
    assert f"{head}.decoder.bias" not in tensors
    table = next(value for key, value in tensors.items() if key.endswith("word_embeddings.weight"))
    for own, coupling in ((table.copy(), "coupled"), (table + 1, "decoupled")):
        change_tensors(tmp_path / "out", lambda t, own=own: t.update({f"{head}.decoder.weight": own}))
        again, notes = read_huggingface(tmp_path / "out")
        assert again.get_config()["coupling"] == coupling
        assert any("they differ" in note for note in notes) == (coupling == "decoupled")
    assert len(again.weights) == len(model.weights) + 1


@pytest.fixture
def written(tmp_path):
    write(random_model(), str(tmp_path / "whole"), "huggingface", None)
    return tmp_path / "whole"


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


MISTAKES = {
    "another model": (lambda f: change_config(f, model_type="gpt2"), "a model of type 'gpt2'; supported are"),
    "no size": (
        lambda f: change_config(f, hidden_size=None) or _forget(f, "vocab_size"),
        "config.json has no vocab_size",
    ),
    "no configuration": (lambda f: (f / "config.json").unlink(), "config.json cannot be read: No such file"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has neither model.safetensors nor pytorch_model.bin"),
    "damaged": (
        lambda f: (f / "model.safetensors").write_bytes(b"x" * 100),
        "is not a complete safetensors file",
    ),
    "missing": (
        lambda f: change_tensors(f, lambda t: t.pop("rembert.encoder.layer.1.output.dense.bias")),
        "has no tensor rembert.encoder.layer.1.output.dense.bias",
    ),
    "of another shape": (
        lambda f: change_config(f, intermediate_size=25),
        r"intermediate.dense.weight has shape \(24, 16\); config.json wants \(25, 16\)",
    ),
    "relative positions": (lambda f: change_config(f, position_embedding_type="relative_key"), "relative positions"),
    "an activation": (lambda f: change_config(f, hidden_act="silu"), "has hidden_act 'silu'"),
}


def _forget(folder, key):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config[key]
    path.write_text(json.dumps(config))


@pytest.mark.any_backend
@pytest.mark.parametrize("what", MISTAKES)
def test_a_folder_that_is_not_what_it_says_is_named_and_nothing_is_written(what, written, tmp_path):
    break_it, message = MISTAKES[what]
    break_it(written)
    with pytest.raises(UserError, match=message):
        convert(str(written), str(tmp_path / "out"), "huggingface", "preset")
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("encoder", "head", "message"),
    [
        ({"block": PreNorm}, None, "with block PreNorm"),
        ({"scalar_mix": True, "head_dim": 4}, None, "head_dim 4 and scalar_mix True"),
        ({"layer_sharing": "attention"}, None, "layer_sharing 'attention'"),
        ({"attention": [Global(), Local(4)]}, None, "with attention Global, Local"),
        ({}, {"output_embedding_dim": 20, "output_cutoffs": (9,)}, "output_cutoffs"),
        ({"input_embedding_dim": 16, "always_project": False}, {"output_embedding_dim": 20}, "width is 20"),
    ],
)
def test_an_unsupported_graph_is_refused_and_nothing_is_written(encoder, head, message, tmp_path):
    with pytest.raises(UserError, match=message):
        write(random_model(encoder, head), str(tmp_path / "out"), "huggingface", None)
    assert not list(tmp_path.iterdir())


@pytest.mark.any_backend
def test_an_existing_target_is_never_overwritten(written):
    with pytest.raises(UserError, match="already exists"):
        write(random_model(), str(written), "preset", None)
