"""MobileBERT's blocks and input embedding: packing, counts and what cannot be."""

from pathlib import Path

import numpy as np
import pytest

from rembed_keras import config
from rembed_keras.adaptation.methods import Adapters, Lora
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.analysis.cost.reallocations import reallocations
from rembed_keras.errors import UserError
from rembed_keras.interop.reallocation.embeddings import with_width
from rembed_keras.modeling import Classifier, Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.attention import Disentangled
from rembed_keras.modeling.blocks import Bottleneck, PreNorm
from rembed_keras.modeling.input_embeddings import Trigrams
from tests.modeling.forward import encode_at, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

KINDS = {"block": Bottleneck(3), "input_embedding": Trigrams, "activation": "relu", "head_dim": 4}


def test_a_document_is_read_as_if_it_were_alone_in_its_row():
    encoder = make_encoder(**KINDS, num_layers=1)
    packed = forward(encoder, make_inputs([[FIRST, SECOND]], 11))
    for document, span in ((FIRST, slice(0, 7)), (SECOND, slice(7, 11))):
        alone = forward(encoder, make_inputs([[document]], len(document[0])))
        for ours, theirs in zip(packed["hidden_states"], alone["hidden_states"], strict=True):
            np.testing.assert_allclose(ours[0, span], theirs[0], rtol=1e-5, atol=2e-5)
    assert np.std(packed["sequence_output"]) > 0.5


def test_some_tokens_of_the_last_block_are_those_of_all():
    encoder = make_encoder(**KINDS)
    inputs = make_inputs([[FIRST, SECOND]], 11)
    at = np.array([[0, 6, 9]], "int32")
    some = encode_at(encoder, inputs, at)
    np.testing.assert_allclose(some[0], forward(encoder, inputs)["sequence_output"][0, at[0]], rtol=1e-5, atol=2e-5)


@pytest.mark.any_backend
def test_a_configuration_brings_both_kinds_back():
    encoder = make_encoder(**KINDS)
    again = Encoder.from_config(encoder.get_config())
    assert again.block.pairs == 3 and again.arguments == encoder.arguments
    again.set_weights(encoder.get_weights())
    inputs = make_inputs([[FIRST]], 9)
    np.testing.assert_array_equal(*(forward(each, inputs)["sequence_output"] for each in (again, encoder)))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("objective", "arguments"),
    [
        (MaskedLM, {"coupling": "extended"}),
        (MaskedLM, {"coupling": "decoupled", "kept_layers": 1}),
        (ReplacedTokenDetection, {"sharing": "none"}),
        (ReplacedTokenDetection, {"sharing": "embeddings", "generator_scale": 1.0}),
    ],
)
def test_parameters_are_counted(objective, arguments):
    model = objective(make_encoder(**KINDS, hidden_dim=8), 10, **arguments)
    seeds = sum("seed" in weight.path for weight in model.weights) * 2
    assert ledger(model).total == model.count_params() - seeds
    assert ledger(model).kept == model.drop_heads().count_params()


@pytest.mark.any_backend
def test_the_recipe_counts_what_is_published():
    """Counts of transformers' MobileBertModel, without pooler and with, and of its MobileBertForMaskedLM."""
    recipe = config.load(str(Path(__file__).parents[3] / "recipes/allocations/mobilebert.gin"))
    counted = config.ledger_of(recipe)
    assert (counted.paper_kept, counted.kept) == (24_581_888, 24_844_544)
    assert counted.total - (24_844_544 - 24_581_888) == 36_596_538


def test_no_two_matrices_begin_alike():
    block = Encoder(**NARROW).parts.blocks[0]
    values = [np.asarray(weight).ravel() for weight in block.weights if weight.name == "kernel"]
    for i, one in enumerate(values):
        assert not any(one.size == other.size and np.array_equal(one, other) for other in values[:i])


def test_blocks_with_norms_first_norm_what_trigrams_leave():
    names = [
        layer.name for layer in make_encoder(block=PreNorm, input_embedding=Trigrams).parts.blocks[0].attention._layers
    ]
    assert "norm" in names


@pytest.mark.any_backend
def test_what_fine_tuning_adds_has_a_place_in_narrow_layers():
    model = Classifier(make_encoder(**KINDS, num_layers=1), 2)
    inputs = make_inputs([[FIRST]], 7)
    before = forward(model, inputs)
    assert len(Lora(rank=2, targets=["up", "query"]).apply(model)) == 2 * (3 + 1)  # three pairs, one query
    for place in ("after", "beside"):
        Adapters(width=2, place=place).apply(model)
    np.testing.assert_allclose(forward(model, inputs), before, atol=1e-6)


SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 8, "input_embedding_dim": 4}
NARROW = {"vocabulary_size": 50} | SIZES | KINDS


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LateMaskedLM(make_encoder(**KINDS), 20), "Trigrams reads neighbours, which late masking hides"),
        (lambda: ReplacedTokenDetection(make_encoder(**KINDS), 20), "Trigrams is as wide as its blocks: sharing"),
        (lambda: with_width(make_encoder(**KINDS), 3), "Trigrams has no projection after its norm"),
        (lambda: reallocations(NARROW, 10**6, [3]), "Trigrams has no projection after its norm"),
        (lambda: ledger(NARROW | {"attention": Disentangled(4, 8)}), "Disentangled scores .* Bottleneck blocks cannot"),
        (lambda: Bottleneck(0), "the feed-forward pairs of blocks.Bottleneck"),
        (
            lambda: ledger(NARROW | {"input_embedding": "tri"}),
            "is 'tri'; it can be one of Projected, Summed, Trigrams",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(make, message):
    with pytest.raises(UserError, match=message):
        make()
