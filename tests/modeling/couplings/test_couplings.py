"""Who is taught by whom: the gradient of each side must reach exactly the tables that its coupling says."""

import json

import keras
import numpy as np
import pytest

from own_parts.modeling.coupling import Detached
from rembed_keras.analysis import ledger
from rembed_keras.modeling import MaskedLM
from rembed_keras.modeling.layers.tables import BandedTable, LookupTable
from tests.modeling import reference
from tests.modeling.forward import forward
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import FIRST, make_encoder
from tests.modeling.test_micro_batches import QUICK

UNREAD = 45  # a word of no input: only the output side can move its vector
READ = 31  # a word of the input


def moved(model):
    """Which rows of which tables one step of gradient descent moves: {path: set of rows}."""
    tables = [weight for weight in model.weights if len(weight.shape) == 2 and weight.shape[0] == 50]
    before = {weight.path: weight.numpy() for weight in tables}
    x, y, weights = make_batch()
    model.compile(optimizer=keras.optimizers.SGD(0.5), **QUICK)
    model.train_on_batch(x, y, weights)
    return {
        weight.path: set(np.flatnonzero(np.abs(weight.numpy() - before[weight.path]).max(axis=1)).tolist())
        for weight in tables
    }


EVERY = set(range(50))
SEEN = {2, 3, 11, 12, 13, 21, 31, 32, 0}  # ids of the batch, padding's among them


@pytest.mark.parametrize(
    ("coupling", "output_table"),
    [
        ("coupled", None),
        ("decoupled", "head/output_embedding/decoupled/table/embeddings"),
        ("gdes", "head/output_embedding/gdes/difference/embeddings"),
    ],
)
def test_gradients_reach_the_tables_of_the_coupling_and_no_other(coupling, output_table):
    rows = moved(MaskedLM(make_encoder(num_layers=1), 6, coupling=coupling))
    token = rows.pop("embeddings/token/embeddings")
    if output_table is None:
        assert token == EVERY and not rows
    else:
        assert READ in token and UNREAD not in token and token <= SEEN
        assert rows == {output_table: EVERY}


def test_an_extended_output_teaches_the_input_table_and_columns_of_its_own():
    rows = moved(MaskedLM(make_encoder(num_layers=1), 9, coupling="extended"))
    path = "head/output_embedding/extended/columns/embeddings"
    assert rows == {"embeddings/token/embeddings": EVERY, path: EVERY}


def test_a_coupling_of_ones_own_teaches_what_it_says_and_is_counted():
    model = MaskedLM(make_encoder(num_layers=1), 9, coupling=Detached)
    path = "head/output_embedding/detached/columns/embeddings"
    rows = moved(model)
    assert rows["embeddings/token/embeddings"] <= SEEN and rows[path] == EVERY
    assert ledger(model).total == model.count_params() and ledger(model).kept == model.encoder.count_params()
    again = MaskedLM.from_config(json.loads(json.dumps(model.get_config())))
    assert type(again.head.output_embedding.coupling.kind) is Detached
    x, _, _ = make_batch()
    extended = MaskedLM(model.encoder, 9, coupling="extended")
    for ours, theirs in zip(model.droppable_variables, extended.droppable_variables, strict=True):
        theirs.assign(ours.numpy())
    np.testing.assert_array_equal(forward(model, x), forward(extended, x))


def test_what_words_are_scored_with_is_the_same_in_numpy():
    encoder = make_encoder()
    for width, coupling in ((6, "coupled"), (20, "decoupled"), (9, "extended"), (6, "gdes"), (9, Detached)):
        made = MaskedLM(encoder, width, coupling=coupling).head.output_embedding
        tables = [encoder.token_embedding, *made.coupling.own.values()]
        for number, table in enumerate(tables):
            table.embeddings.assign(np.random.default_rng(number).normal(size=table.embeddings.shape))
        own = {name: table.embeddings.numpy() for name, table in made.coupling.own.items()}
        rows = made.coupling.kind.rows(encoder.token_embedding.embeddings.numpy(), own)
        ((_, scored),) = made.coupling.scoring(np.zeros((1, width), "float32"))
        np.testing.assert_array_equal(np.asarray(scored), rows)


def test_a_gradient_disentangled_output_starts_where_the_input_is():
    encoder = make_encoder()
    gdes, coupled = MaskedLM(encoder, 6, coupling="gdes"), MaskedLM(encoder, 6, coupling="coupled")
    rng = np.random.default_rng(1)
    for ours, theirs in zip(
        (gdes.head.dense.kernel, gdes.head.norm.gamma, gdes.head.output_embedding.bias),
        (coupled.head.dense.kernel, coupled.head.norm.gamma, coupled.head.output_embedding.bias),
        strict=True,
    ):
        value = rng.normal(size=ours.shape)
        ours.assign(value)
        theirs.assign(value)
    x, _, _ = make_batch()
    np.testing.assert_array_equal(forward(gdes, x), forward(coupled, x))


def test_a_gradient_disentangled_output_adds_its_difference():
    model = MaskedLM(make_encoder(), 6, coupling="gdes")
    difference = model.head.output_embedding.coupling.difference.embeddings
    difference.assign(np.random.default_rng(2).normal(size=(50, 6)))
    x, _, _ = make_batch()
    w = reference.weights_of(model)
    states, _ = reference.encode(model.encoder, *map(np.array, FIRST))
    features = reference.gelu(states[-1][x["mask_positions"][0]] @ w["head/dense/kernel"] + w["head/dense/bias"])
    features = reference.layer_norm(features, w["head/norm/gamma"], w["head/norm/beta"])
    table = w["embeddings/token/embeddings"] + w["head/output_embedding/gdes/difference/embeddings"]
    np.testing.assert_allclose(forward(model, x)[0], features @ table.T, atol=5e-5)


def whole_table(table):
    """A banded table as one of full width, in float64."""
    rows = [np.asarray(table.bands[0].embeddings, "float64")]
    for band, projection in zip(table.bands[1:], table.projections, strict=True):
        rows.append(np.asarray(band.embeddings, "float64") @ np.asarray(projection.kernel, "float64"))
    return np.concatenate(rows)


def test_bands_look_up_and_score_as_one_table_of_full_width_would():
    keras.utils.set_random_seed(3)
    table = BandedTable(50, 8, cutoffs=(5, 20), factor=2)
    table.build()
    for weight in table.weights:
        weight.assign(np.random.default_rng(len(weight.path)).normal(size=weight.shape))
    ids = np.array([[0, 4, 5], [19, 20, 49]])
    np.testing.assert_allclose(np.asarray(table(ids)), whole_table(table)[ids], atol=1e-5)
    features = np.random.default_rng(1).normal(size=(2, 3, 8)).astype("float32")
    scores = np.concatenate([np.asarray(part) @ np.asarray(rows).T for part, rows in table.scoring(features)], axis=-1)
    np.testing.assert_allclose(scores, features @ whole_table(table).T, atol=1e-4)


def test_bands_are_tied_when_coupled_and_their_own_when_decoupled():
    encoder = make_encoder(input_cutoffs=(10, 30), input_embedding_dim=16)
    coupled = MaskedLM(encoder, 16, coupling="coupled")
    assert not any("output_embedding/coupled" in weight.path for weight in coupled.head.output_embedding.weights)
    x, _, _ = make_batch()
    states = forward(encoder, {key: x[key] for key in ("token_ids", "segment_ids", "padding_mask")})["sequence_output"]
    w = reference.weights_of(coupled)
    features = reference.gelu(states[0][x["mask_positions"][0]] @ w["head/dense/kernel"] + w["head/dense/bias"])
    features = reference.layer_norm(features, w["head/norm/gamma"], w["head/norm/beta"])
    expected = features @ whole_table(encoder.token_embedding).T
    np.testing.assert_allclose(forward(coupled, x)[0], expected, atol=5e-5)
    own = MaskedLM(encoder, 16, output_cutoffs=(20,))
    assert [band.embeddings.shape for band in own.head.output_embedding.coupling.table.bands] == [(20, 16), (30, 4)]


def test_every_band_learns():
    encoder = make_encoder(num_layers=1, input_cutoffs=(10, 30), input_embedding_dim=16)
    model = MaskedLM(encoder, 16, output_cutoffs=(20,))
    before = {weight.path: weight.numpy() for weight in model.trainable_weights}
    x, y, weights = make_batch()
    model.compile(optimizer=keras.optimizers.SGD(0.5), **QUICK)
    model.train_on_batch(x, y, weights)
    still = {path for path, value in before.items() if np.array_equal(value, weight_of(model, path))}
    assert not {path for path in still if "band" in path or "projection_" in path}


def weight_of(model, path):
    return next(weight.numpy() for weight in model.weights if weight.path == path)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaskedLM(make_encoder(), 20, coupling="gdes"), "output_embedding_dim is 20 and input_embedding_dim 6"),
        (lambda: MaskedLM(make_encoder(input_cutoffs=(9,)), 6, coupling="gdes"), "without cutoffs"),
        (lambda: MaskedLM(make_encoder(), 6, coupling="extended"), "adds columns .* output_embedding_dim is 6 and"),
        (lambda: MaskedLM(make_encoder(input_cutoffs=(9,)), 8, coupling="extended"), "'extended' needs .* without cut"),
        (lambda: MaskedLM(make_encoder(), 6, coupling="coupled", output_cutoffs=(9,)), "to 'decoupled' only"),
        (lambda: make_encoder(input_cutoffs=(30, 10)), r"cutoffs are \[30, 10\]; they must rise"),
        (lambda: make_encoder(input_cutoffs=(50,)), "stay under the vocabulary_size, 50"),
        (lambda: make_encoder(input_cutoffs=(10, 20)), "leave the last band of a width of 6 nothing"),
    ],
)
def test_cutoffs_and_couplings_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_frozen_input_table_stays_and_the_rest_learns():
    encoder = make_encoder(num_layers=1, freeze_input_embedding=True)
    model = MaskedLM(encoder, 20)
    table, kernel = encoder.token_embedding.embeddings.numpy(), encoder.parts.projection.kernel.numpy()
    x, y, weights = make_batch()
    model.compile(optimizer=keras.optimizers.SGD(0.5), **QUICK)
    model.train_on_batch(x, y, weights)
    np.testing.assert_array_equal(encoder.token_embedding.embeddings.numpy(), table)
    assert not np.array_equal(encoder.parts.projection.kernel.numpy(), kernel)


def test_a_plain_table_scores_with_its_rows():
    table = LookupTable(7, 3)
    table.build()
    ((features, rows),) = table.scoring(np.ones((1, 3), "float32"))
    assert features.shape == (1, 3) and np.array_equal(np.asarray(rows), table.embeddings.numpy())
