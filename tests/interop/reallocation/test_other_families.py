"""Reallocation of what families other than BERT have: no norm after the tables, and a table of distances."""

import numpy as np
import pytest

from rembed_keras.interop.reallocation.depth import with_depth
from rembed_keras.interop.reallocation.embeddings import with_width
from rembed_keras.modeling.attention import Disentangled
from rembed_keras.modeling.blocks import PreNormBert
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST], [SECOND]], 8)
REAL = INPUTS["padding_mask"] > 0
KINDS = {
    "xlm-roberta-xl": {"block": PreNormBert, "layer_norm_epsilon": 1e-5},
    "deberta-v2": {"attention": Disentangled(4, 6)},
}


def outputs(encoder):
    return np.asarray(forward(encoder, INPUTS)["sequence_output"])[REAL]


@pytest.mark.parametrize("name", KINDS)
def test_at_full_width_and_in_a_deeper_stack_outputs_are_the_same(name):
    encoder = make_encoder(**KINDS[name])
    width = encoder.arguments["input_embedding_dim"]
    wide, share = with_width(encoder, width)
    assert share == pytest.approx(1.0)
    np.testing.assert_allclose(outputs(wide), outputs(encoder), atol=1e-4)
    deeper = with_depth(encoder, 4)
    assert deeper.num_layers == 4
    np.testing.assert_allclose(outputs(deeper), outputs(encoder), atol=1e-4)


def test_without_a_norm_the_sums_are_projected_on_their_leading_directions():
    encoder = make_encoder(**KINDS["xlm-roberta-xl"], input_embedding_dim=16, always_project=False)
    narrow, share = with_width(encoder, 5)
    embeddings = encoder.parts.embeddings
    tables = [
        np.asarray(each.embeddings, "float64") for each in (embeddings.token, embeddings.position, embeddings.segment)
    ]
    sums = tables[0][:, None, None] + tables[1][None, :, None] + tables[2][None, None]  # all of them
    sums = sums.reshape(-1, 16)
    _, values, directions = np.linalg.svd(sums, full_matrices=False)
    assert share == pytest.approx((values[:5] ** 2).sum() / (values**2).sum(), abs=1e-6)
    first, expected = (np.asarray(forward(each, INPUTS)["hidden_states"][0])[REAL] for each in (narrow, encoder))
    projected = expected @ directions[:5].T @ directions[:5]
    np.testing.assert_allclose(first, projected, atol=1e-4)
