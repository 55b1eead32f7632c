"""Folders as they are published: names and settings that differ from what transformers writes today."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rembed_keras import interop
from rembed_keras.errors import UserError
from rembed_keras.interop.huggingface.read import huggingface_arguments, read_huggingface
from rembed_keras.modeling import Encoder, MaskedLM
from tests.interop.models import random_model

GOLDEN = Path(__file__).parent.parent.parent / "golden"
PLAIN = {"input_embedding_dim": 16, "always_project": False}


def changed(name, folder, config=None, left_out=(), tensors=dict):
    """A copy of a recorded folder with another configuration and other arrays."""
    shutil.copytree(GOLDEN / name, folder)
    path = folder / "config.json"
    said = json.loads(path.read_text()) | (config or {})
    path.write_text(json.dumps({key: value for key, value in said.items() if key not in left_out}))
    weights = folder / "model.safetensors"
    save_file(tensors(load_file(weights)), weights)
    return folder


def assert_same(one, other):
    for ours, theirs in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.any_backend
def test_norms_of_the_first_bert_checkpoints_have_gamma_and_beta(tmp_path):
    def older(tensors):
        ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for new, old in ends.items():
            tensors = {name.replace(new, old): value for name, value in tensors.items()}
        return tensors

    model, notes = read_huggingface(changed("bert", tmp_path / "in", tensors=older))
    whole, said = read_huggingface(GOLDEN / "bert")
    assert_same(model, whole)
    assert notes == said


@pytest.mark.any_backend
def test_what_a_configuration_says_of_positions_is_nothing_to_modernbert(tmp_path):
    folder = changed("modernbert", tmp_path / "in", {"position_embedding_type": "sans_pos"})  # as mmBERT's says
    assert huggingface_arguments(folder) == huggingface_arguments(GOLDEN / "modernbert")


@pytest.mark.any_backend
@pytest.mark.parametrize("bias", [True, False])
def test_a_fine_tuned_modernbert_has_no_masked_lm_head(bias, tmp_path):
    def classifier(tensors):
        kept = {name: value for name, value in tensors.items() if not name.startswith("decoder")}
        return kept | {"classifier.weight": np.ones((3, 16), "float32"), "classifier.bias": np.ones(3, "float32")}

    model, notes = read_huggingface(changed("modernbert", tmp_path / "in", {"decoder_bias": bias}, (), classifier))
    assert isinstance(model, Encoder) and "only the encoder is read" in notes[0]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("name", "key", "argument", "value"),
    [
        ("modernbert", "norm_eps", "layer_norm_epsilon", 1e-5),
        ("xlm_roberta_xl", "layer_norm_eps", "layer_norm_epsilon", 1e-5),
        ("deberta_v2", "layer_norm_eps", "layer_norm_epsilon", 1e-7),
        ("roberta", "layer_norm_eps", "layer_norm_epsilon", 1e-12),
        ("mobilebert", "hidden_act", "activation", "relu"),
        ("albert", "hidden_act", "activation", "gelu_tanh"),
    ],
)
def test_what_a_configuration_leaves_out_is_as_transformers_has_it(name, key, argument, value, tmp_path):
    changed(name, tmp_path / "in", left_out=[key])
    assert huggingface_arguments(tmp_path / "in")[argument] == value


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("theirs", "ours"), [("gelu_python", "gelu"), ("gelu_python_tanh", "gelu_tanh"), ("gelu_accurate", "gelu_tanh")]
)
def test_other_names_of_an_activation_are_read(theirs, ours, tmp_path):
    changed("bert", tmp_path / "in", {"hidden_act": theirs})
    assert huggingface_arguments(tmp_path / "in")["activation"] == ours


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["roberta", "xlm_roberta_xl"])
def test_robertas_head_has_gelu_whatever_its_blocks_have(name, tmp_path):
    model, notes = read_huggingface(changed(name, tmp_path / "in", {"hidden_act": "relu"}))
    assert isinstance(model, Encoder) and notes[0] == (
        "its head has activation 'gelu' and its blocks 'relu': only the encoder is read"
    )
    ours = random_model(PLAIN | {"activation": "relu"}, {"output_embedding_dim": 16})
    with pytest.raises(UserError, match="the head of roberta must have activation 'gelu'; this one's is 'relu'"):
        interop.write(ours, str(tmp_path / "out"), "huggingface", None, "roberta")
    interop.write(ours, str(tmp_path / "bert"), "huggingface", None, "bert")


@pytest.mark.any_backend
def test_quantized_weights_are_refused(tmp_path):
    with pytest.raises(UserError, match="quantization_config, and weights that are quantized are not read"):
        read_huggingface(changed("roberta", tmp_path / "said", {"quantization_config": {"load_in_8bit": True}}))
    name = "roberta.encoder.layer.0.attention.self.query.weight"

    def of_bytes(tensors):
        return tensors | {name: tensors[name].astype("int8")}

    with pytest.raises(UserError, match=f"{name} has numbers of type int8, which are no weights"):
        read_huggingface(changed("roberta", tmp_path / "unsaid", tensors=of_bytes))


@pytest.mark.any_backend
def test_files_beside_the_model_are_not_read(tmp_path):
    folder = changed("roberta", tmp_path / "in")
    tensors = load_file(folder / "model.safetensors")
    save_file({name: 0 * value for name, value in tensors.items()}, folder / "model_quantized.safetensors")
    whole = read_huggingface(GOLDEN / "roberta")[0]
    assert_same(read_huggingface(folder)[0], whole)
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, own in shards.items():
        save_file({name: tensors[name] for name in own}, folder / shard)
    (folder / "model.safetensors").unlink()
    places = {name: shard for shard, own in shards.items() for name in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    model, _ = read_huggingface(folder)
    assert isinstance(model, MaskedLM)
    assert_same(model, whole)
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-2\.safetensors is not a complete safetensors file"):
        read_huggingface(folder)


@pytest.mark.any_backend
def test_scaled_rotations_are_refused(tmp_path):
    scaled = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    with pytest.raises(UserError, match=r"rope_scaling .*linear.*, which is not supported"):
        huggingface_arguments(changed("modernbert", tmp_path / "in", scaled))
    based = {"rope_scaling": {"rope_type": "default", "rope_theta": 5.0}}  # which transformers takes for all layers
    with pytest.raises(UserError, match=r"rope_scaling .*rope_theta.*, which is not supported"):
        huggingface_arguments(changed("modernbert", tmp_path / "based", based))
    former = {"rope_parameters": {"full_attention": {"type": "linear", "factor": 2.0, "rope_theta": 1e4}}}
    with pytest.raises(UserError, match="rope_type 'linear'; only 'default' is supported"):
        huggingface_arguments(changed("modernbert", tmp_path / "former", former))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("name", "table", "head"),
    [
        ("roberta", "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
        ("modernbert", "model.embeddings.tok_embeddings.weight", "decoder.weight"),
        ("mobilebert", "mobilebert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ],
)
def test_a_tied_table_is_read_by_whichever_name_it_is_stored(name, table, head, tmp_path):
    def renamed(tensors):
        return {**{key: tensors[key] for key in tensors if key not in (table, head)}, head: tensors[table]}

    model, notes = read_huggingface(changed(name, tmp_path / "in", tensors=renamed))
    whole, said = read_huggingface(GOLDEN / name)
    assert_same(model, whole)
    assert notes == said and model.get_config()["coupling"] == whole.get_config()["coupling"] != "decoupled"
    with pytest.raises(UserError, match=f"has no tensor {table}"):  # of its own, which is not there
        read_huggingface(changed(name, tmp_path / "untied", {"tie_word_embeddings": False}, (), renamed))


@pytest.mark.parametrize("state", [{"state_dict": {}}, {"epoch": 3}, ["a list"]])
def test_a_pickle_of_more_than_a_state_dict_is_refused(state, tmp_path, monkeypatch):
    shutil.copytree(GOLDEN / "bert", tmp_path / "in")
    (tmp_path / "in/model.safetensors").rename(tmp_path / "in/pytorch_model.bin")
    torch = SimpleNamespace(load=lambda *_, **__: state, Tensor=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(UserError, match=r"pytorch_model.bin has more than tensors by name: save the state_dict"):
        read_huggingface(tmp_path / "in")


def test_a_pickle_in_shards_is_read_as_the_whole(tmp_path, monkeypatch):
    """Shards that a stand-in for PyTorch reads: of numpy arrays, one after the other."""
    folder = tmp_path / "in"
    shutil.copytree(GOLDEN / "roberta", folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {f"pytorch_model-0000{n + 1}-of-00002.bin": names[n::2] for n in range(2)}
    for shard, own in shards.items():
        save_file({name: tensors[name] for name in own}, folder / shard)
    save_file({"lora_A.weight": tensors[names[0]]}, folder / "adapter_model.safetensors")  # which is not the model
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {name: shard for shard, own in shards.items() for name in own}}))

    def load(path, map_location, weights_only):
        assert weights_only
        return {name: Tensor(value) for name, value in load_file(path).items()}

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(load=load, Tensor=Tensor))
    model, _ = read_huggingface(folder)
    assert isinstance(model, MaskedLM)
    assert_same(model, read_huggingface(GOLDEN / "roberta")[0])
    (folder / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(UserError, match=r"pytorch_model-00002-of-00002\.bin is missing, and the index beside it"):
        read_huggingface(folder)
    index.write_text("{}")
    with pytest.raises(UserError, match=r"pytorch_model\.bin\.index\.json has no weight_map"):
        read_huggingface(folder)


class Tensor:
    """As much of PyTorch's as is used."""

    def __init__(self, value, requires_grad=True):
        self.value, self.requires_grad = value, requires_grad

    def detach(self):
        return Tensor(self.value, requires_grad=False)

    def is_floating_point(self):
        return self.value.dtype.kind == "f"

    def float(self):
        return self

    def numpy(self):
        assert not self.requires_grad  # PyTorch raises a RuntimeError
        return self.value
