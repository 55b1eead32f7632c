"""Families without Hugging Face: recorded folders there and back, which family is chosen, and what is refused."""

import json
import random
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rembed_keras.errors import UserError
from rembed_keras.interop import convert, write
from rembed_keras.interop.convert import read_preset
from rembed_keras.interop.huggingface.families import FAMILIES
from rembed_keras.interop.huggingface.read import read_huggingface
from rembed_keras.interop.huggingface.write import family_of
from rembed_keras.modeling import Classifier, Encoder
from rembed_keras.modeling.attention import Disentangled, Global, Local
from rembed_keras.modeling.blocks import Bottleneck, PostNorm, PreNorm, PreNormBert
from rembed_keras.modeling.input_embeddings import Trigrams
from rembed_keras.modeling.layers.tables import drawn
from tests.interop.models import random_model

GOLDEN = Path(__file__).parent.parent.parent / "golden"
RECORDED = {
    "roberta": "roberta",
    "distilbert": "distilbert",
    "modernbert": "modernbert",
    "xlm_roberta_xl": "xlm-roberta-xl",
    "deberta_v2": "deberta-v2",
    "mobilebert": "mobilebert",
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_arrays_come_back_to_the_bit(name, tmp_path):
    convert(str(GOLDEN / name), str(tmp_path / "out"), "huggingface", "huggingface", family=RECORDED[name])
    before, after = (load_file(folder / "model.safetensors") for folder in (GOLDEN / name, tmp_path / "out"))
    pooler = {key for key in after if "pooler" in key}  # a recorded head has none beside it
    assert before.keys() == after.keys() - pooler
    for key, value in before.items():
        assert value.shape == after[key].shape
        first = FAMILIES[RECORDED[name]].usual_pad if "position_embeddings" in key else 0  # of padding
        np.testing.assert_array_equal(after[key][first:], value[first:])


@pytest.mark.parametrize("name", ["roberta", "xlm_roberta_xl"])
def test_without_a_tokenizer_positions_begin_where_theirs_do(name, tmp_path):
    convert(str(GOLDEN / name), str(tmp_path / "out"), "huggingface", "huggingface", family=RECORDED[name])
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (GOLDEN / name, tmp_path / "out"))
    for key in ("pad_token_id", "max_position_embeddings"):
        assert before[key] == after[key]


@pytest.mark.parametrize("name", ["modernbert", "xlm_roberta_xl", "deberta_v2", "mobilebert"])
def test_a_preset_keeps_the_same_bits(name, tmp_path):
    convert(str(GOLDEN / name), str(tmp_path / "preset"), "huggingface", "preset")
    (model, _), (again, _) = read_huggingface(GOLDEN / name), read_preset(tmp_path / "preset")
    assert again.encoder.arguments == model.encoder.arguments
    for one, other in zip(model.weights, again.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.any_backend
def test_a_new_pooler_is_the_same_each_time_and_seeds_of_the_program_stay():
    poolers, draws = [], []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        model, _ = read_huggingface(GOLDEN / "deberta_v2")
        poolers.append(np.asarray(model.encoder.parts.pooler.kernel))
        draws.append(random.random())
    np.testing.assert_array_equal(*poolers)
    np.testing.assert_array_equal(poolers[0], drawn(poolers[0].shape, seed=0))  # on every backend
    assert poolers[0].std() > 0.01 and draws[0] != draws[1]


PLAIN = {"input_embedding_dim": 16, "always_project": False}
MODERN = PLAIN | {"block": PreNorm, "num_segments": 0}
MOBILE = {"block": Bottleneck(2), "input_embedding": Trigrams, "activation": "relu"}
FITTING = [
    ("bert", PLAIN),
    ("bert", PLAIN | {"attention": Global(kernel="dense")}),
    ("rembert", {}),
    ("albert", {"layer_sharing": "all"}),
    ("distilbert", PLAIN | {"num_segments": 0}),
    ("modernbert", MODERN),
    ("modernbert", MODERN | {"attention": [Global(9e4), Local(6), Local(6)]}),
    ("modernbert", MODERN | {"attention": [Local(6), Global()]}),
    ("modernbert", MODERN | {"attention": [Global(kernel="dense"), Local(6, kernel="dense")]}),
    ("xlm-roberta-xl", PLAIN | {"block": PreNormBert}),
    ("deberta-v2", PLAIN | {"attention": Disentangled(8, 20)}),
    ("mobilebert", MOBILE),
]
REFUSED = [
    ("bert", MOBILE | {"input_embedding_dim": 16}, "with block Bottleneck and input_embedding Trigrams$"),
    ("mobilebert", MOBILE | {"block": PostNorm}, "with block PostNorm$"),
    ("bert", {}, "bert does not have the graph of an encoder with input_embedding_dim 6"),
    ("distilbert", PLAIN, "distilbert does not have .* num_segments 2"),
    ("distilbert", PLAIN | {"num_segments": 0, "layer_norm_epsilon": 1e-5}, "layer_norm_epsilon 1e-05"),
    ("modernbert", MODERN | {"attention": [Local(6), Local(8)]}, "with arguments of attention"),
    ("modernbert", MODERN | {"attention": [Global(1e4), Global(2e4)]}, "with arguments of attention"),
    ("roberta", PLAIN | {"block": PreNormBert}, "with block PreNormBert"),
    ("gpt2", PLAIN, "family is 'gpt2'; it can be one of bert, rembert, albert, modernbert"),
    ("robert", PLAIN, "did you mean"),
]


@pytest.mark.any_backend
@pytest.mark.parametrize(("kind", "encoder"), FITTING)
def test_the_first_family_that_fits_is_chosen(kind, encoder):
    assert family_of(random_model(encoder).encoder.arguments).kind == kind


@pytest.mark.any_backend
@pytest.mark.parametrize(("kind", "encoder", "message"), REFUSED)
def test_a_family_that_does_not_fit_is_refused_and_nothing_is_written(kind, encoder, message, tmp_path):
    with pytest.raises(UserError, match=message):
        write(random_model(encoder).encoder, str(tmp_path / "out"), "huggingface", None, kind)
    assert not list(tmp_path.iterdir())


@pytest.mark.any_backend
def test_a_family_is_no_property_of_a_preset_and_electra_has_no_such_head(tmp_path):
    with pytest.raises(UserError, match="the target is a preset"):
        write(random_model(), str(tmp_path / "out"), "preset", None, "bert")
    with pytest.raises(UserError, match="electra has another kind of head"):
        write(random_model(), str(tmp_path / "out"), "huggingface", None, "electra")
    assert not list(tmp_path.iterdir())
    write(random_model().encoder, str(tmp_path / "out"), "huggingface", None, "electra")
    again, _ = read_huggingface(tmp_path / "out")
    for one, other in zip(random_model().encoder.weights, again.weights, strict=True):
        if not one.path.startswith("pooler/"):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["huggingface", "preset"])
def test_of_a_task_model_its_encoder_is_to_be_given(kind, tmp_path):
    with pytest.raises(UserError, match=f"a {kind} is written of an Encoder .* not of Classifier: give its encoder$"):
        write(Classifier(random_model({"num_layers": 1}).encoder, 2), str(tmp_path / "out"), kind, None)
    assert not list(tmp_path.iterdir())


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"output_embedding_dim": 20}, "the head of mobilebert must be of width 16; this one's width is 20"),
        ({"output_embedding_dim": 16}, "the head of mobilebert must have coupling 'extended'; this one's is 'decoup"),
    ],
)
def test_mobilebert_has_a_head_of_one_kind(head, message, tmp_path):
    with pytest.raises(UserError, match=message):
        write(random_model(MOBILE, head), str(tmp_path / "out"), "huggingface", None)
    assert not list(tmp_path.iterdir())


@pytest.mark.any_backend
def test_mobilebert_with_two_tables_is_read_without_its_head(tmp_path):
    model, notes = read_huggingface(changed("mobilebert", tmp_path / "folder", {"tie_word_embeddings": False}))
    assert isinstance(model, Encoder) and "it has no usable masked LM head: only the encoder is read" in notes


MISTAKES = [
    ("modernbert", {"norm_bias": True}, "has norm_bias, which blocks without biases have no place for"),
    ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type 'yarn'"),
    ("modernbert", {"local_attention": 1}, "config.json: the window of attention.Local is 1"),
    ("modernbert", {"global_attn_every_n_layers": 0}, "a size that is not a number"),
    ("modernbert", {"layer_types": ["full_attention"]}, "layer_types must say .* of each of 2 layers"),
    ("modernbert", {"num_hidden_layers": 10**9, "layer_types": None}, "num_layers is 1000000000; it can be 10000"),
    ("modernbert", {"hidden_size": 32}, r"embeddings.tok_embeddings.weight has shape \(40, 16\); config.json wants"),
    ("modernbert", {"hidden_activation": "silu"}, "hidden_activation 'silu'"),
    ("deberta_v2", {"position_biased_input": True}, "has no tensor deberta.embeddings.position_embeddings"),
    ("deberta_v2", {"pos_att_type": "c2p"}, r"pos_att_type \['c2p'\]"),
    ("deberta_v2", {"pos_att_type": True}, "config.json has a setting of another type than transformers writes"),
    ("modernbert", {"rope_scaling": "linear"}, "config.json has a setting of another type"),
    ("modernbert", {"rope_parameters": [1]}, "config.json has a setting of another type"),
    ("deberta_v2", {"position_buckets": 6}, r"shared_0|rel_embeddings.weight has shape \(8, 16\)"),
    ("deberta_v2", {"embedding_size": 8}, r"word_embeddings.weight has shape \(40, 16\); config.json wants \(40, 8\)"),
    ("deberta_v2", {"conv_kernel_size": 3}, "conv_kernel_size 3; only 0 is supported"),
    ("mobilebert", {"use_bottleneck": False}, "use_bottleneck False; only True is supported"),
    ("mobilebert", {"normalization_type": "layer_norm"}, "normalization_type 'layer_norm'; only 'no_norm'"),
    ("mobilebert", {"num_attention_heads": 3}, "num_attention_heads is 3; it must divide intra_bottleneck_size, 8"),
    ("mobilebert", {"num_feedforward_networks": 10**30}, "pairs of blocks.Bottleneck are 10+; they can be 10000 at"),
    ("mobilebert", {"num_feedforward_networks": 5}, "has no tensor mobilebert.encoder.layer.0.ffn.1"),
    ("distilbert", {"n_layers": 9}, "has no tensor distilbert.transformer.layer.2"),
    ("distilbert", {"dim": "16"}, "hidden_dim is '16'"),
    ("roberta", {"max_position_embeddings": 30}, r"position_embeddings.weight has shape \(14, 16\)"),
    ("roberta", {"pad_token_id": 20}, "max_sequence_length is -7"),
    ("xlm_roberta_xl", {"num_attention_heads": 3}, "num_heads is 3; it must divide"),
]


def changed(name, folder, config):
    shutil.copytree(GOLDEN / name, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.mark.any_backend
@pytest.mark.parametrize(("name", "config", "message"), MISTAKES)
def test_a_configuration_that_is_not_the_folders_is_named_and_nothing_is_written(name, config, message, tmp_path):
    folder = changed(name, tmp_path / "in", config)
    with pytest.raises(UserError, match=message) as error:
        convert(str(folder), str(tmp_path / "out"), "huggingface", "preset")
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("name", "key", "cut"),
    [
        ("modernbert", "model.layers.1.attn.Wqkv.weight", 16),
        ("modernbert", "model.layers.0.mlp.Wi.weight", 24),
        ("deberta_v2", "deberta.encoder.rel_embeddings.weight", 3),
        ("xlm_roberta_xl", "roberta.encoder.LayerNorm.bias", 5),
    ],
)
def test_an_array_of_another_shape_is_named(name, key, cut, tmp_path):
    folder = changed(name, tmp_path / "in", {})
    tensors = load_file(folder / "model.safetensors")
    tensors[key] = tensors[key][:cut].copy()
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match=f"{key} has shape"):
        read_huggingface(folder)
    del tensors[key]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match=f"has no tensor {key}"):
        read_huggingface(folder)


@pytest.mark.any_backend
def test_a_family_that_is_not_known_is_refused_with_the_list(tmp_path):
    folder, those = changed("roberta", tmp_path / "in", {"model_type": "t5"}), ", ".join(FAMILIES)
    with pytest.raises(UserError, match=f"of type 't5'; supported are {those}"):
        read_huggingface(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "model_type"}))
    with pytest.raises(UserError, match=f"config.json has no model_type: add the model's, which can be {those}"):
        read_huggingface(folder)


def test_the_command_writes_the_family_asked_for_or_nothing(tmp_path, command):
    def converted(target, family):
        kinds = ("--from", "huggingface", "--to", "huggingface", "--family", family)
        return command("convert", GOLDEN / "roberta", target, *kinds, cwd=tmp_path)

    assert converted("out", "xlm-roberta")[0] == 0
    assert json.loads((tmp_path / "out/config.json").read_text())["model_type"] == "xlm-roberta"
    for target, family, message in (
        ("other", "distilbert", "distilbert does not have the graph of an encoder with num_segments 2"),
        ("out", "bert", "out already exists"),
    ):
        code, _, error = converted(target, family)
        assert (code, error.count("\n")) == (2, 1) and message in error
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert json.loads((tmp_path / "out/config.json").read_text())["model_type"] == "xlm-roberta"


def test_layers_that_the_configuration_leaves_out_are_said(tmp_path):
    for name, folder in (("bert", "bert.encoder.layer.1."), ("modernbert", "model.layers.1.")):
        _, notes = read_huggingface(changed(name, tmp_path / name, {"num_hidden_layers": 1}))
        said = next(note for note in notes if note.startswith("left out are "))
        assert "that config.json has no place for, such as " + folder in said
        assert not any("left out" in note for note in read_huggingface(GOLDEN / name)[1])
