"""Weights in and out against Hugging Face's own models, on random weights, padded batches and segments."""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rembed_keras.errors import UserError
from rembed_keras.interop import Plan, reallocate, write
from rembed_keras.interop.huggingface.read import read_huggingface
from rembed_keras.modeling import Encoder, MaskedLM
from tests.interop.models import random_model
from tests.modeling.forward import forward

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


def theirs(peers, name, architecture="ForMaskedLM", **changes):
    """A Hugging Face model with random weights, norms and biases included, which would be ones and zeros."""
    torch, transformers = peers
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**(SIZES | changes))
    model = getattr(transformers, f"{name}{architecture}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.mark.slow
def test_logits_are_theirs_at_the_published_width_and_depth(peers, tmp_path):
    layers = 32 if keras.config.backend() == "tensorflow" else 4  # compiling 32 blocks takes JAX minutes
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
    """Outputs at tokens, without padding."""
    return np.asarray(values)[MASK > 0]


CASES = {
    "RemBert": {"input_embedding_size": 6, "output_embedding_size": 20},
    "Bert": {},
    "Albert": {"embedding_size": 6, "num_hidden_groups": 2, "num_hidden_layers": 4},
    "XLMRoberta": {"type_vocab_size": 1, "max_position_embeddings": 22, "pad_token_id": 1, "layer_norm_eps": 1e-5},
}


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_logits_are_theirs(name, is_tied, peers, tmp_path):
    model = theirs(peers, name, tie_word_embeddings=is_tied, **CASES[name])
    model.save_pretrained(tmp_path / "theirs")
    ours, notes = read_huggingface(tmp_path / "theirs")
    assert isinstance(ours, MaskedLM) and any("no pooler" in note for note in notes)
    assert ours.get_config()["coupling"] == ("coupled" if is_tied and name != "RemBert" else "decoupled")
    roberta = name == "XLMRoberta"
    segments = 0 * SEGMENTS if roberta else SEGMENTS
    expected = their_outputs(peers, model, 1 if roberta else 0, segments).logits.numpy()
    inputs = INPUTS | {"segment_ids": segments, "mask_positions": EVERYWHERE}
    if roberta:
        inputs["token_ids"] = np.where(MASK, IDS, 1)
    np.testing.assert_allclose(real(forward(ours, inputs)), real(expected), atol=1e-4)


@pytest.mark.parametrize("width", [16, 6])
def test_a_reallocated_bert_is_a_rembert_of_theirs(width, peers, tmp_path):
    bert = theirs(peers, "Bert", "Model")
    bert.save_pretrained(tmp_path / "bert")
    ours, _ = read_huggingface(tmp_path / "bert")
    reallocate(ours, str(tmp_path / "out"), Plan(input_embedding_dim=width), target_kind="huggingface")
    made = peers[1].AutoModel.from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    assert (type(made).__name__, made.config.input_embedding_size) == ("RemBertModel", width)
    found = their_outputs(peers, made)
    narrow = forward(read_huggingface(tmp_path / "out")[0], INPUTS)
    np.testing.assert_allclose(real(found.last_hidden_state.numpy()), real(narrow["sequence_output"]), atol=1e-4)
    gap = np.abs(real(found.last_hidden_state.numpy()) - real(their_outputs(peers, bert).last_hidden_state.numpy()))
    assert gap.max() < 1e-4 if width == 16 else gap.max() > 1e-2


@pytest.mark.parametrize("name", [*CASES, "Electra"])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_encoders_are_theirs_with_and_without_a_prefix(name, prefix, peers, tmp_path):
    changes = CASES.get(name, {"embedding_size": 6})
    model = theirs(peers, name, "Model", **changes)
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


@pytest.mark.parametrize("architecture", ["ForPreTraining", "ForMaskedLM"])
def test_electra_is_read_without_its_heads(architecture, peers, tmp_path):
    model = theirs(peers, "Electra", architecture, embedding_size=6)
    model.save_pretrained(tmp_path)
    ours, notes = read_huggingface(tmp_path)
    assert isinstance(ours, Encoder) and any("only the encoder" in note for note in notes)
    expected = their_outputs(peers, model.electra).last_hidden_state
    np.testing.assert_allclose(real(forward(ours, INPUTS)["sequence_output"]), real(expected), atol=1e-4)


PLAIN = {"input_embedding_dim": 16, "always_project": False}
SHARED = {"input_embedding_dim": 6, "layer_sharing": "all", "layer_groups": 2, "activation": "gelu_tanh"}


@pytest.mark.parametrize("coupling", ["coupled", "decoupled", "gdes"])
@pytest.mark.parametrize(
    ("encoder", "width", "name"),
    [
        ({"input_embedding_dim": 6}, 6, "RemBert"),
        (PLAIN, 16, "Bert"),
        (SHARED, 6, "Albert"),
    ],
)
def test_written_models_compute_the_same_and_round_trip(encoder, width, name, coupling, peers, tmp_path):
    _, transformers = peers
    model = random_model(encoder, {"output_embedding_dim": width, "coupling": coupling})
    write(model, str(tmp_path / "out"), "huggingface", None)
    loaded, report = getattr(transformers, f"{name}ForMaskedLM").from_pretrained(
        tmp_path / "out", output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert all(".pooler." in key for key in report["unexpected_keys"])  # theirs has none beside a head
    expected = their_outputs(peers, loaded.eval()).logits.numpy()
    logits = forward(model, INPUTS | {"mask_positions": EVERYWHERE})
    np.testing.assert_allclose(real(logits), real(expected), atol=1e-4)
    loaded.save_pretrained(tmp_path / "again")
    there, back = (read_huggingface(tmp_path / place)[0] for place in ("out", "again"))
    for one, other in zip(there.weights, back.weights, strict=True):
        assert one.path == other.path
        if not one.path.startswith("pooler/"):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("encoder", [{}, PLAIN, SHARED], ids=["rembert", "bert", "albert"])
def test_their_tokenizer_gives_our_ids(encoder, corpus, peers, tmp_path):
    _, transformers = peers
    model = random_model({"vocabulary_size": 900} | encoder).encoder
    write(model, str(tmp_path / "out"), "huggingface", corpus.tokenizer.path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = corpus.tokenizer
    texts = ["Alle Menschen sind frei und gleich geboren.", "  Élan  ﬁn ① ½\u3000これは文です。\tИ вода ", "naïve"]
    for text in texts:
        assert tokenizer(text)["input_ids"] == [ours.cls_id, *ours.encode(text), ours.sep_id]
    first, second = (ours.encode(text) for text in texts[:2])
    pair = tokenizer(*texts[:2])
    assert pair["input_ids"] == [ours.cls_id, *first, ours.sep_id, *second, ours.sep_id]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    for role in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(tokenizer, f"{role}_token_id") == getattr(ours, f"{role}_id")
    assert len(tokenizer) == ours.vocabulary_size
    assert tokenizer("frei [MASK]")["input_ids"].count(ours.mask_id) == 1


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
    state = torch.load(tmp_path / "pickled/pytorch_model.bin", weights_only=True)
    (tmp_path / "pickled/pytorch_model.bin").unlink()
    places = {name: f"pytorch_model-{len(name) % 2}.bin" for name in state}
    for shard in {*places.values()}:
        torch.save({name: state[name] for name in places if places[name] == shard}, tmp_path / "pickled" / shard)
    (tmp_path / "pickled/pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    for ours, same in zip(one.weights, read_huggingface(tmp_path / "pickled")[0].weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), same.numpy())
    (tmp_path / "ran").mkdir()
    (tmp_path / "ran/config.json").write_bytes((tmp_path / "safe/config.json").read_bytes())

    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    torch.save({"x": Harm()}, tmp_path / "ran/pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be read with weights_only=True"):
        read_huggingface(tmp_path / "ran")
    assert not (tmp_path / "harm").exists()
