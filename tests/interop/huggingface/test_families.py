"""Each family against Hugging Face's own model of it, both ways, on random weights and padded batches with segments."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from rembed_keras.interop import write
from rembed_keras.interop.huggingface.families import FAMILIES
from rembed_keras.interop.huggingface.read import read_huggingface
from rembed_keras.modeling.attention import Disentangled, Global, Local
from rembed_keras.modeling.blocks import Bottleneck, PreNorm, PreNormBert
from rembed_keras.modeling.input_embeddings import Projected, Trigrams
from tests.interop.huggingface.test_transformers import EVERYWHERE, IDS, MASK, SEGMENTS, real, theirs
from tests.interop.models import random_model
from tests.modeling.forward import forward

ROBERTA = {"type_vocab_size": 2, "max_position_embeddings": 22, "pad_token_id": 1, "layer_norm_eps": 1e-5}
DEBERTA = {
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 4,
    "max_relative_positions": 8,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "type_vocab_size": 2,
}
CASES = {
    "Roberta": ("roberta", ROBERTA),
    "DistilBert": ("distilbert", {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24}),
    "ModernBert": (
        "modernbert",
        {
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 900.0,
            "local_attention": 4,
            "local_rope_theta": 50.0,
            "classifier_bias": True,
            "pad_token_id": 0,
        },
    ),
    "XLMRobertaXL": ("xlm-roberta-xl", ROBERTA),
    "DebertaV2": ("deberta-v2", DEBERTA),
    "DebertaV2, narrow": ("deberta-v2", DEBERTA | {"embedding_size": 6, "position_biased_input": True}),
    "MobileBert": (
        "mobilebert",
        {"embedding_size": 6, "intra_bottleneck_size": 8, "num_feedforward_networks": 3}
        | {"pad_token_id": 2, "initializer_range": 0.2},  # without norms states would be hundreds
    ),
}
PLAIN = {"input_embedding_dim": 16, "always_project": False}
ALTERNATING = [Global(900.0), Local(4, 50.0)]
MODERN = {"block": PreNorm, "num_segments": 0, "layer_norm_epsilon": 1e-5, "attention": ALTERNATING}
OURS = {
    "Roberta": PLAIN,
    "XLMRoberta": PLAIN | {"num_segments": 1},
    "DistilBert": PLAIN | {"num_segments": 0},
    "ModernBert": PLAIN | MODERN,
    "XLMRobertaXL": PLAIN | {"block": PreNormBert, "layer_norm_epsilon": 1e-5},
    "MobileBert": {
        "block": Bottleneck(2),
        "input_embedding": Trigrams,
        "head_dim": 3,
        "activation": "relu",
    },
    "DebertaV2, narrow": {
        "attention": Disentangled(6, 9),
        "input_embedding": Projected(positions=True),
        "num_segments": 0,
        "input_embedding_dim": 16,
        "num_heads": 4,
        "hidden_dim": 12,
    },
    "DebertaV2": PLAIN | {"num_segments": 0, "layer_norm_epsilon": 1e-7, "attention": Disentangled(6, 9)},
}


def family_of(name):
    return "xlm-roberta" if name == "XLMRoberta" else CASES[name][0]


def unties(name):
    return FAMILIES[family_of(name)].unties


def inputs_for(arguments, pad):
    """Ours and theirs: padded rows, with segments where a model has them."""
    ids, segments = np.where(MASK, IDS, pad), SEGMENTS * (arguments["num_segments"] > 1)
    ours = {"token_ids": ids, "segment_ids": segments, "padding_mask": MASK, "mask_positions": EVERYWHERE}
    return ours, {"input_ids": ids, "attention_mask": MASK} | (
        {"token_type_ids": segments} if arguments["num_segments"] else {}
    )


def assert_agree(peers, ours, model, pad):
    """Logits, and what the encoder says of the tokens."""
    torch, _ = peers
    own, inputs = inputs_for(ours.encoder.arguments, pad)
    with torch.no_grad():
        inputs = {name: torch.tensor(value) for name, value in inputs.items()}
        logits, last = model(**inputs).logits.numpy(), model.base_model(**inputs).last_hidden_state.numpy()
    assert np.std(real(last)) > 0.1
    np.testing.assert_allclose(real(forward(ours, own)), real(logits), atol=1e-4)
    own.pop("mask_positions")
    np.testing.assert_allclose(real(forward(ours.encoder, own)["sequence_output"]), real(last), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "is_tied"), [(name, is_tied) for name in CASES for is_tied in (True, False) if is_tied or unties(name)]
)
def test_theirs_are_read_and_written_again_to_the_bit(name, is_tied, peers, tmp_path):
    family, changes = CASES[name]
    model = theirs(peers, name.split(",")[0], tie_word_embeddings=is_tied, **changes)
    model.save_pretrained(tmp_path / "theirs")
    ours, _ = read_huggingface(tmp_path / "theirs")
    assert ours.get_config()["coupling"] == (FAMILIES[family].tied if is_tied else "decoupled")
    pad = changes.get("pad_token_id", 0)
    assert_agree(peers, ours, model, pad)
    write(ours, str(tmp_path / "again"), "huggingface", None, family)
    again, _ = read_huggingface(tmp_path / "again")
    for one, other in zip(ours.weights, again.weights, strict=True):
        if not one.path.startswith("pooler/"):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    before, after = (load_file(tmp_path / place / "model.safetensors") for place in ("theirs", "again"))
    unused = {"lm_head.bias", "cls.predictions.bias"}  # by version 5, in a head that is not tied
    same = (before.keys() & after.keys()) - unused
    assert len(same) > 20
    for key in same:
        assert before[key].shape == after[key].shape
        first = FAMILIES[family].usual_pad if "position_embeddings" in key else 0  # those before it are not used
        np.testing.assert_array_equal(before[key][first:], after[key][first:])


def test_local_and_global_layers_without_regular_turns_are_read_by_version_5_alone(peers, tmp_path):
    torch, transformers = peers
    encoder = random_model(PLAIN | MODERN | {"attention": [Local(4, 50.0), Local(4, 50.0), Global(900.0)]}).encoder
    notes = write(encoder, str(tmp_path / "out"), "huggingface", None)
    assert any("transformers reads that from version 5 on" in note for note in notes)
    again, _ = read_huggingface(tmp_path / "out")
    assert again.arguments["attention"] == encoder.arguments["attention"]
    if int(transformers.__version__.split(".")[0]) < 5:
        with pytest.raises(TypeError, match="unsupported operand"):
            transformers.ModernBertModel.from_pretrained(tmp_path / "out")
        return
    loaded = transformers.ModernBertModel.from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    own, inputs = inputs_for(encoder.arguments, 0)
    with torch.no_grad():
        last = loaded(**{name: torch.tensor(value) for name, value in inputs.items()}).last_hidden_state.numpy()
    own.pop("mask_positions")
    np.testing.assert_allclose(real(forward(encoder, own)["sequence_output"]), real(last), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "coupling"),
    [(name, coupling) for name in OURS for coupling in (["coupled", "gdes"] if unties(name) else ["extended"])],
)
def test_ours_are_theirs(name, coupling, peers, tmp_path):
    _, transformers = peers
    model = random_model(OURS[name], {"output_embedding_dim": 16, "coupling": coupling})
    write(model, str(tmp_path / "out"), "huggingface", None, family_of(name))
    loaded, report = getattr(transformers, f"{name.split(',')[0]}ForMaskedLM").from_pretrained(
        tmp_path / "out", output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert all(".pooler." in key for key in report["unexpected_keys"])
    assert_agree(peers, model, loaded.eval(), FAMILIES[family_of(name)].usual_pad)
