"""Weights in and out against Hugging Face's own models, on random weights, padded batches and segments."""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rembed_keras.errors import UserError
from rembed_keras.interop import convert, write
from rembed_keras.interop.convert import read_preset
from rembed_keras.interop.huggingface import read_huggingface
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.blocks import PreNorm
from tests.forward import forward

SIZES = {
    "vocab_size": 60,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "initializer_range": 0.4,
    "attn_implementation": "eager",
}
RNG = np.random.default_rng(0)
IDS = RNG.integers(5, 60, (3, 9)).astype("int32")
MASK = np.array([[1] * 9, [1] * 6 + [0] * 3, [1] * 2 + [0] * 7], "int32")
SEGMENTS = np.array([[0] * 4 + [1] * 5, [0] * 6 + [0] * 3, [0, 1] + [0] * 7], "int32")
INPUTS = {"token_ids": np.where(MASK, IDS, 0), "segment_ids": SEGMENTS, "padding_mask": MASK}
EVERYWHERE = np.tile(np.arange(9, dtype="int32"), (3, 1))


def theirs(peers, name, head=True, **changes):
    """A model of Hugging Face's with random weights, of norms and biases too, which start as ones and zeros."""
    torch, transformers = peers
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**(SIZES | changes))
    model = getattr(transformers, f"{name}{'ForMaskedLM' if head else 'Model'}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.mark.slow
def test_logits_are_theirs_at_the_published_width_and_depth(peers, tmp_path):
    layers = 32 if keras.config.backend() == "tensorflow" else 4  # JAX compiles 32 blocks for minutes
    sizes = {"num_hidden_layers": layers, "num_attention_heads": 18, "hidden_size": 1152, "intermediate_size": 4608}
    widths = {"input_embedding_size": 256, "output_embedding_size": 1664, "initializer_range": 0.02}
    model = theirs(peers, "RemBert", **sizes, **widths)
    model.save_pretrained(tmp_path)
    ours, _ = read_huggingface(tmp_path)
    expected = their_outputs(peers, model).logits.numpy()
    logits = forward(ours, INPUTS | {"mask_positions": EVERYWHERE})
    assert np.std(real(expected)) > 0.5
    np.testing.assert_allclose(real(logits), real(expected), atol=1e-4)


def their_outputs(peers, model, pad=0, segments=SEGMENTS):
    torch, _ = peers
    with torch.no_grad():
        return model(
            input_ids=torch.tensor(np.where(MASK, IDS, pad)),
            attention_mask=torch.tensor(MASK),
            token_type_ids=torch.tensor(segments),
        )


def real(values):
    """What stands at tokens, not at padding."""
    return np.asarray(values)[MASK > 0]


CASES = {
    "RemBert": {"input_embedding_size": 6, "output_embedding_size": 20},
    "Bert": {},
    "Albert": {"embedding_size": 6, "num_hidden_groups": 2, "num_hidden_layers": 4},
    "XLMRoberta": {"type_vocab_size": 1, "max_position_embeddings": 22, "pad_token_id": 1, "layer_norm_eps": 1e-5},
}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_theirs(name, peers, tmp_path):
    model = theirs(peers, name, **CASES[name])
    model.save_pretrained(tmp_path / "theirs")
    ours, notes = read_huggingface(tmp_path / "theirs")
    assert isinstance(ours, MaskedLM) and any("no pooler" in note for note in notes)
    roberta = name == "XLMRoberta"
    segments = 0 * SEGMENTS if roberta else SEGMENTS
    expected = their_outputs(peers, model, 1 if roberta else 0, segments).logits.numpy()
    inputs = INPUTS | {"segment_ids": segments, "mask_positions": EVERYWHERE}
    if roberta:
        inputs["token_ids"] = np.where(MASK, IDS, 1)
    np.testing.assert_allclose(real(forward(ours, inputs)), real(expected), atol=1e-4)


@pytest.mark.parametrize("name", [*CASES, "Electra"])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_encoders_are_theirs_with_and_without_a_prefix(name, prefix, peers, tmp_path):
    changes = CASES.get(name, {"embedding_size": 6})
    model = theirs(peers, name, head=False, **changes)
    model.save_pretrained(tmp_path)
    if prefix:  # as a model with a head would have saved its encoder
        tensors = load_file(tmp_path / "model.safetensors")
        own = f"{model.base_model_prefix}."
        save_file({own + key: value for key, value in tensors.items()}, tmp_path / "model.safetensors")
    ours, _ = read_huggingface(tmp_path)
    assert isinstance(ours, Encoder)
    roberta = name == "XLMRoberta"
    segments = 0 * SEGMENTS if roberta else SEGMENTS
    expected = their_outputs(peers, model, 1 if roberta else 0, segments)
    outputs = forward(ours, INPUTS | {"segment_ids": segments})
    np.testing.assert_allclose(real(outputs["sequence_output"]), real(expected.last_hidden_state), atol=1e-4)
    if name != "Electra":
        np.testing.assert_allclose(outputs["pooled_output"], expected.pooler_output.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("encoder", "head", "name"),
    [
        ({"input_embedding_dim": 6}, {"output_embedding_dim": 20}, "RemBert"),
        ({"input_embedding_dim": 6}, {"output_embedding_dim": 6, "coupling": "coupled"}, "RemBert"),
        ({"input_embedding_dim": 6}, {"output_embedding_dim": 6, "coupling": "gdes"}, "RemBert"),
        (
            {"input_embedding_dim": 16, "always_project": False},
            {"output_embedding_dim": 16, "coupling": "coupled"},
            "Bert",
        ),
        ({"input_embedding_dim": 16, "always_project": False}, {"output_embedding_dim": 16}, "Bert"),
        (
            {"input_embedding_dim": 6, "layer_sharing": "all", "layer_groups": 2, "activation": "gelu_tanh"},
            {"output_embedding_dim": 6, "coupling": "coupled"},
            "Albert",
        ),
    ],
)
def test_they_compute_what_we_write(encoder, head, name, peers, tmp_path):
    _, transformers = peers
    model = random_model(encoder, head)
    write(model, str(tmp_path / "out"), "huggingface", None)
    loaded, report = getattr(transformers, f"{name}ForMaskedLM").from_pretrained(
        tmp_path / "out", output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"] and not report["mismatched_keys"]
    expected = their_outputs(peers, loaded.eval()).logits.numpy()
    logits = forward(model, INPUTS | {"mask_positions": EVERYWHERE})
    np.testing.assert_allclose(real(logits), real(expected), atol=1e-4)


def random_model(encoder=None, head=None):
    sizes = {
        "vocabulary_size": 60,
        "num_layers": 3,
        "num_heads": 2,
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "input_embedding_dim": 6,
        "max_sequence_length": 20,
    }
    keras.utils.set_random_seed(2)
    model = MaskedLM(Encoder(**(sizes | (encoder or {}))), **(head or {"output_embedding_dim": 20}))
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(weight.numpy() + rng.normal(0, 0.3, weight.shape))
    return model


@pytest.mark.parametrize("form", ["huggingface", "preset"])
def test_a_round_trip_gives_the_same_bits(form, tmp_path):
    model = random_model()
    write(model, str(tmp_path / "there"), form, None)
    convert(str(tmp_path / "there"), str(tmp_path / "back"), form, "preset")
    again, _ = read_preset(tmp_path / "back")
    assert [weight.path for weight in again.weights] == [weight.path for weight in model.weights]
    for ours, back in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), back.numpy())


@pytest.mark.parametrize("fast", [False, True])
def test_their_tokenizer_gives_our_ids(fast, corpus, peers, tmp_path):
    _, transformers = peers
    write(random_model({"vocabulary_size": 900}), str(tmp_path / "out"), "huggingface", corpus.tokenizer.path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", use_fast=fast)
    text = "Alle Menschen sind frei und gleich geboren."
    ours = corpus.tokenizer
    assert tokenizer(text)["input_ids"] == [ours.cls_id, *ours.encode(text), ours.sep_id]
    assert tokenizer.mask_token_id == ours.mask_id and tokenizer.pad_token_id == ours.pad_id


def test_a_pickle_is_read_as_weights_alone(peers, tmp_path):
    torch, _ = peers
    model = theirs(peers, "RemBert", **CASES["RemBert"])
    model.save_pretrained(tmp_path / "safe")
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled/config.json").write_bytes((tmp_path / "safe/config.json").read_bytes())
    buffers = {"rembert.embeddings.position_ids": torch.arange(20)[None]}  # as old versions saved
    torch.save(model.state_dict() | buffers, tmp_path / "pickled/pytorch_model.bin")
    one, other = read_huggingface(tmp_path / "safe")[0], read_huggingface(tmp_path / "pickled")[0]
    for ours, same in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), same.numpy())
    (tmp_path / "ran").mkdir()
    (tmp_path / "ran/config.json").write_bytes((tmp_path / "safe/config.json").read_bytes())

    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    torch.save({"x": Harm()}, tmp_path / "ran/pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be read as weights alone"):
        read_huggingface(tmp_path / "ran")
    assert not (tmp_path / "harm").exists()


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
    "another model": (lambda f: change_config(f, model_type="gpt2"), "a model of type 'gpt2'; what can be read is"),
    "no size": (
        lambda f: change_config(f, hidden_size=None) or _forget(f, "vocab_size"),
        "config.json has no vocab_size",
    ),
    "no configuration": (lambda f: (f / "config.json").unlink(), "config.json cannot be read: No such file"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has neither model.safetensors nor pytorch_model.bin"),
    "damaged": (
        lambda f: (f / "model.safetensors").write_bytes(b"x" * 100),
        "is no whole safetensors file",
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
    "an activation": (lambda f: change_config(f, hidden_act="relu"), "has hidden_act 'relu'"),
}


def _forget(folder, key):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config[key]
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("what", MISTAKES)
def test_a_folder_that_is_not_what_it_says_is_named_and_nothing_is_written(what, written, tmp_path):
    break_it, message = MISTAKES[what]
    break_it(written)
    with pytest.raises(UserError, match=message):
        convert(str(written), str(tmp_path / "out"), "huggingface", "preset")
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


@pytest.mark.parametrize(
    ("encoder", "head", "message"),
    [
        ({"block": PreNorm}, None, "block PreNorm"),
        ({"scalar_mix": True, "head_dim": 4}, None, "head_dim 4 and scalar_mix True"),
        ({"layer_sharing": "attention"}, None, "layer_sharing 'attention'"),
        ({}, {"output_embedding_dim": 20, "output_cutoffs": (9,)}, "output_cutoffs"),
        ({"input_embedding_dim": 16, "always_project": False}, {"output_embedding_dim": 20}, "width is 20"),
    ],
)
def test_a_graph_that_they_have_not_is_refused_and_nothing_is_written(encoder, head, message, tmp_path):
    with pytest.raises(UserError, match=message):
        write(random_model(encoder, head), str(tmp_path / "out"), "huggingface", None)
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_never_written_over(written):
    with pytest.raises(UserError, match="is there already"):
        write(random_model(), str(written), "preset", None)
