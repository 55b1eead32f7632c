"""Tables that are summed, projected and then normed, as DeBERTa's narrow ones, against the same sums in float64."""

import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.modeling import MaskedLM
from rembed_keras.modeling.attention import Disentangled
from rembed_keras.modeling.blocks import PreNormBert
from rembed_keras.modeling.input_embeddings import Projected, Summed
from tests.modeling import reference
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs


def test_embeddings_equal_the_reference_in_float64_in_packed_rows():
    encoder = make_encoder(input_embedding=Projected, num_layers=1)
    w = reference.weights_of(encoder)
    states = forward(encoder, make_inputs([[FIRST, SECOND]], 12))["hidden_states"][0][0]
    for (tokens, segments), span in ((FIRST, slice(0, 7)), (SECOND, slice(7, 11))):
        rows = w["embeddings/token/embeddings"][tokens] + w["embeddings/segment/embeddings"][segments]
        wide = (rows + w["embeddings/position/embeddings"][: len(tokens)]) @ w["embeddings/projection/kernel"]
        wanted = reference.layer_norm(wide, w["embeddings/norm/gamma"], w["embeddings/norm/beta"])
        np.testing.assert_allclose(states[span], wanted, atol=2e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "has_positions"),
    [
        ({"input_embedding": Projected, "block": PreNormBert}, True),
        ({"input_embedding": Projected(), "attention": Disentangled(4, 8)}, False),
        ({"input_embedding": Summed(positions=True), "attention": Disentangled(4, 8)}, True),
        ({"input_embedding": Summed(positions=False)}, False),
    ],
)
def test_parameters_are_counted_and_positions_are_where_they_are_asked_for(changes, has_positions):
    model = MaskedLM(make_encoder(**changes), 10)
    assert ledger(model).total == model.count_params()
    assert ledger(model).kept == model.encoder.count_params()
    assert any("position/" in weight.path for weight in model.weights) == has_positions
