"""A frozen token table needs no gradient of its rows, nor what is below the first weights that are trained."""

import pytest

from rembed_keras.analysis import ledger
from rembed_keras.modeling.attention import Disentangled
from rembed_keras.modeling.blocks import PreNorm, PreNormBert
from rembed_keras.modeling.input_embeddings import Projected, Trigrams

SIZES = {
    "vocabulary_size": 97,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 20,
    "input_embedding_dim": 12,
    "max_sequence_length": 20,
}
PRODUCT = 2 * 12 * 16  # FLOPs of the projection of a row


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "spared"),
    [
        ({}, 0),  # positions, segments and the norm are trained
        ({"block": PreNormBert, "num_segments": 0}, 0),
        ({"block": PreNormBert, "num_segments": 0, "attention": Disentangled()}, PRODUCT),
        ({"input_embedding": Projected}, 0),
        ({"input_embedding": Projected, "block": PreNorm, "num_segments": 0}, PRODUCT),
        ({"input_embedding": Trigrams}, 3 * PRODUCT),
        ({"input_embedding": Trigrams, "trainable": False}, 0),  # and nothing else is
    ],
)
def test_products_for_what_is_frozen_are_not_counted(changes, spared):
    frozen, trained = (
        ledger({"encoder": SIZES | changes | {"freeze_input_embedding": each}, "output_embedding_dim": 10})
        for each in (True, False)
    )
    assert trained.training_flops["kept"] - frozen.training_flops["kept"] == spared
