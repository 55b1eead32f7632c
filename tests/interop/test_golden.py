"""Recorded outputs of Hugging Face models on random weights, for environments without transformers."""

from pathlib import Path

import numpy as np
import pytest

from rembed_keras.interop.huggingface.read import read_huggingface
from tests.modeling.forward import forward

GOLDEN = Path(__file__).parent.parent / "golden"


# one of each kind of block and attention
MODELS = ["rembert", "modernbert", "xlm_roberta_xl", "mobilebert", "deberta_v2"]
# files and names that differ
AS_BERT = ["bert", "bert_untied", "albert", "roberta", "distilbert"]


def recording(name):
    recorded = np.load(GOLDEN / name / "outputs.npz")
    inputs = {key: recorded[key] for key in ("token_ids", "segment_ids", "padding_mask")}
    return recorded, inputs, inputs["padding_mask"] > 0


def check_states(encoder, recorded, inputs, is_real):
    for i, state in enumerate(forward(encoder, inputs)["hidden_states"]):
        np.testing.assert_allclose(np.asarray(state)[is_real], recorded[f"hidden_{i}"][is_real], atol=1e-4)


@pytest.mark.any_backend
def test_hidden_states_of_electra_which_is_read_without_its_head_are_those_recorded():
    encoder, _ = read_huggingface(GOLDEN / "electra")
    check_states(encoder, *recording("electra"))


@pytest.mark.parametrize("name", [*MODELS, *(pytest.param(name, marks=pytest.mark.any_backend) for name in AS_BERT)])
def test_hidden_states_and_logits_are_those_recorded(name):
    model, _ = read_huggingface(GOLDEN / name)
    recorded, inputs, is_real = recording(name)
    check_states(model.encoder, recorded, inputs, is_real)
    everywhere = np.tile(np.arange(8, dtype="int32"), (2, 1))
    logits = forward(model, inputs | {"mask_positions": everywhere})
    np.testing.assert_allclose(np.asarray(logits)[is_real], recorded["logits"][is_real], atol=1e-4)
