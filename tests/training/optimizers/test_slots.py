"""What the ledger says that an optimizer remembers, held against the slots of the optimizer of a real model."""

import itertools
from functools import cache, partial

import numpy as np
import pytest

from rembed_keras import ledger
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection, attention
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.input_embeddings import Projected, Trigrams
from rembed_keras.training import AdamW, GaLore, Muon
from rembed_keras.training.optimizers.matrices import matrix_shape
from rembed_keras.training.optimizers.slots import slots_when_built
from tests.training.optimizers.test_any_optimizer import OPTIMIZERS, Lookahead

MODELS = {
    "post-norm": (MaskedLM, PostNorm, {"kept_layers": 1}),
    "pre-norm": (MaskedLM, PreNorm, {"coupling": "coupled", "output_embedding_dim": 6}),
    "late": (LateMaskedLM, PostNorm, {}),
    "detection": (ReplacedTokenDetection, PostNorm, {}),
}
EMBEDDINGS = {  # each with matrices beside its tables
    "projected": {"input_embedding": Projected},
    "trigrams": {"input_embedding": Trigrams},
    "bands": {"input_cutoffs": (20,)},
}


def make_model(name, **embedding):
    objective, block, arguments = MODELS[name]
    encoder = Encoder(60, 2, 2, 12, 16, 6, max_sequence_length=16, block=block, **embedding)
    return objective(encoder, **({"output_embedding_dim": 10} | arguments))


shared_model = cache(make_model)  # tests only read it


@cache
def with_distances(objective):
    encoder = Encoder(60, 2, 2, 12, 16, 6, 16, attention=[attention.Global(), attention.Disentangled(4, 8)])
    return objective(encoder, output_embedding_dim=10)


def slots_of(make, variables):
    """Numbers that an optimizer really holds of variables, besides a clock and a rate."""
    optimizer = make()
    optimizer.build(variables)
    own = {"iteration", "learning_rate"}
    return sum(int(np.prod(each.shape)) for each in optimizer.variables if each.name not in own)


ELEMENTWISE = {"AdamW": "pre-norm", "Lion": "late", "SGD": "detection", "ScheduleFreeAdamW": "post-norm"}
ELEMENTWISE["Nadam"] = "pre-norm"  # which has a number of its own too
BY_SHAPE = ["Muon", "Keras's Muon", "GaLore", "Adafactor"]


@pytest.mark.parametrize(("name", "model"), [*ELEMENTWISE.items(), *itertools.product(BY_SHAPE, MODELS)])
def test_slots_are_counted_as_the_optimizer_makes_them(name, model):
    made = shared_model(model)
    counted = ledger(made, slots=lambda entries: slots_when_built(OPTIMIZERS[name], entries)).optimizer_bytes
    assert counted["total"] == 4 * slots_of(OPTIMIZERS[name], made.trainable_variables)
    kept = {weight.path for weight in made.encoder.weights}
    if "kept_layers" not in MODELS[model][2]:
        variables = [each for each in made.trainable_variables if each.path in kept]
        assert counted["kept"] == 4 * slots_of(OPTIMIZERS[name], variables)


def test_slots_that_begin_as_copies_of_weights_are_counted():
    made = shared_model("late")
    counted = ledger(made, slots=lambda entries: slots_when_built(Lookahead, entries)).optimizer_bytes["total"]
    assert counted == 2 * 4 * sum(int(np.prod(each.shape)) for each in made.trainable_variables)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", [AdamW, Muon])
def test_what_an_optimizer_says_of_itself_is_what_is_counted(optimizer, model):
    entries = ledger(shared_model(model)).entries
    said, built = optimizer.ledger_slots(entries), slots_when_built(optimizer, entries)
    assert [sorted(shapes) for shapes in said] == [sorted(shapes) for shapes in built]


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("optimizer", [Muon, partial(GaLore, rank=3)])
def test_matrices_beside_tables_are_matrices(optimizer, embedding):
    made = shared_model("post-norm", **EMBEDDINGS[embedding])
    counted = ledger(made, slots=lambda entries: slots_when_built(partial(optimizer, 1e-2), entries)).optimizer_bytes
    assert counted["total"] == 4 * slots_of(partial(optimizer, 1e-2), made.trainable_variables)
    kernels = [each for each in made.trainable_variables if "embeddings/" in each.path and each.name == "kernel"]
    assert kernels and all(matrix_shape(each) == tuple(each.shape) for each in kernels)


@pytest.mark.parametrize(
    "objective", [MaskedLM, partial(MaskedLM, kept_layers=1), LateMaskedLM, ReplacedTokenDetection]
)
@pytest.mark.parametrize("optimizer", [Muon, partial(GaLore, rank=3)])
def test_a_table_of_distances_is_a_table(optimizer, objective):
    made = with_distances(objective)
    counted = ledger(made, slots=lambda entries: slots_when_built(partial(optimizer, 1e-2), entries)).optimizer_bytes
    assert counted["total"] == 4 * slots_of(partial(optimizer, 1e-2), made.trainable_variables)


def test_counting_takes_no_memory():
    sizes = {"vocabulary_size": 10**9, "num_layers": 2, "num_heads": 2, "hidden_dim": 4096, "intermediate_dim": 2**20}
    counted = ledger(
        sizes | {"input_embedding_dim": 4096}, slots=lambda lines: slots_when_built(OPTIMIZERS["Lion"], lines)
    )
    assert counted.optimizer_bytes["total"] > 4 * 10**9 * 4096
