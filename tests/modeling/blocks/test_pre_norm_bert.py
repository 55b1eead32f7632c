"""BERT's blocks with norms first, as XLM-R XL's, against the same sums in NumPy and float64."""

import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.modeling import LateMaskedLM, MaskedLM
from rembed_keras.modeling.blocks import PreNormBert
from tests.modeling import reference
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, make_encoder, make_inputs

BLOCK = {"block": PreNormBert, "always_project": False, "layer_norm_epsilon": 1e-5}


def norm(w, name, x):
    return reference.layer_norm(x, w[f"{name}/gamma"], w[f"{name}/beta"], 1e-5)


def branches(w, name, x):
    """One block on one document [S, D]."""

    def dense(path, rows, equation):
        return np.einsum(equation, rows, w[f"{name}/{path}/kernel"]) + w[f"{name}/{path}/bias"]

    normed = norm(w, f"{name}/attention/norm", x)
    query, key, value = (dense(f"attention/heads/{part}", normed, "sd,dhk->shk") for part in ("query", "key", "value"))
    shares = np.exp(np.einsum("qhk,shk->hqs", query, key) / np.sqrt(query.shape[-1]))
    mixed = np.einsum("hqs,shk->qhk", shares / shares.sum(-1, keepdims=True), value)
    x = x + dense("attention/heads/attention_output", mixed, "qhk,hkd->qd")
    wide = dense("feed_forward/up", norm(w, f"{name}/feed_forward/norm", x), "sd,df->sf")
    return x + dense("feed_forward/down", reference.gelu(wide), "sf,fd->sd")


@pytest.mark.parametrize("width", [6, 16])
def test_equals_the_reference_in_float64(width):
    encoder = make_encoder(**BLOCK, input_embedding_dim=width, num_layers=3)
    w = reference.weights_of(encoder)
    assert "embeddings/norm/gamma" not in w
    tokens, segments = (np.array(part) for part in FIRST)
    x = w["embeddings/token/embeddings"][tokens] + w["embeddings/segment/embeddings"][segments]
    x = x + w["embeddings/position/embeddings"][: len(tokens)]
    x = x @ w["projection/kernel"] + w["projection/bias"] if width == 6 else x
    outputs = forward(encoder, make_inputs([[FIRST]], 9))
    for i in range(3):
        np.testing.assert_allclose(outputs["hidden_states"][i][0, :7], x, atol=5e-5)
        x = branches(w, f"block_{i}", x)
    np.testing.assert_allclose(outputs["sequence_output"][0, :7], norm(w, "norm", x), atol=5e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("objective", [MaskedLM, LateMaskedLM])
def test_its_parameters_are_counted(objective):
    model = objective(make_encoder(**BLOCK, max_sequence_length=20), 10)
    assert ledger(model).total == model.count_params()
    assert ledger(model).kept == model.encoder.count_params()


@pytest.mark.any_backend
def test_any_layers_can_be_kept():
    encoder = make_encoder(**BLOCK, num_layers=3)
    inputs = make_inputs([[FIRST]], 7)
    assert np.isfinite(forward(encoder.with_layers(2, "top"), inputs)["sequence_output"]).all()
    whole, cut = (forward(each, inputs)["hidden_states"] for each in (encoder, encoder.with_layers(2)))
    np.testing.assert_array_equal(whole[1], cut[1])
