"""A narrower input embedding, beside loops in float64, beside the wide encoder, and beside a plain SVD."""

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.interop import Plan, read_model, reallocate
from rembed_keras.interop.reallocation.embeddings import tables_of, with_width
from rembed_keras.interop.reallocation.low_rank import Tables, Usage, centred_basis, narrow, second_moment
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks import PreNorm
from tests.interop.models import random_model
from tests.interop.reallocation.inputs import rows_of_text
from tests.modeling.forward import forward

FAMILIES = {
    "bert": {"input_embedding_dim": 16, "always_project": False},
    "rembert": {"input_embedding_dim": 12},
    "albert": {"input_embedding_dim": 8, "layer_sharing": "all"},
    "an epsilon that is felt": {"input_embedding_dim": 16, "always_project": False, "layer_norm_epsilon": 0.1},
    "norms first": {"input_embedding_dim": 16, "always_project": False, "block": PreNorm, "num_segments": 0},
}


def source(family):
    return random_model(FAMILIES[family]).encoder


def states(encoder, inputs):
    outputs = forward(encoder, inputs)
    return outputs["hidden_states"][0], outputs["sequence_output"]


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_lost_at_full_width(family):
    wide = source(family)
    same, share = with_width(wide, wide.arguments["input_embedding_dim"])
    assert share == pytest.approx(1)
    for ours, theirs in zip(states(same, rows_of_text()), states(wide, rows_of_text()), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def moment_in_loops(tables, usage):
    """The mean of x x' / |x|^2 over all triples of a token, a position and a segment, one after the other."""
    token, position, segment = (np.asarray(table, np.float64) for table in (tables.token, *tables.others))
    tokens, positions, segments = (each / each.sum() for each in (usage.tokens, *usage.others))
    moment = np.zeros((token.shape[1],) * 2)
    for t, weight in zip(token, tokens, strict=True):
        outer, square = 0.0, 0.0
        for p, of_p in zip(position, positions, strict=True):
            for g, of_g in zip(segment, segments, strict=True):
                x = t + p + g
                x = x - x.mean()
                outer = outer + of_p * of_g * np.outer(x, x)
                square += of_p * of_g * x @ x
        moment += weight * outer / square
    return moment


@pytest.mark.parametrize("is_even", [True, False])
def test_the_second_moment_is_that_of_all_sums(is_even):
    rng = np.random.default_rng(0)
    tables = Tables(rng.normal(size=(11, 6)), (rng.normal(size=(5, 6)), rng.normal(size=(2, 6))))
    usage = Usage.even(tables) if is_even else Usage(rng.random(11), (rng.random(5), rng.random(2)))
    np.testing.assert_allclose(second_moment(tables, usage), moment_in_loops(tables, usage), atol=1e-12)


@pytest.mark.parametrize("family", ["bert", "rembert", "an epsilon that is felt"])
def test_a_narrow_encoder_is_the_wide_one_of_approximated_sums(family):
    """The wide encoder, its tables projected to the best centred subspace, computes what the narrow one does."""
    wide, width = source(family), 5
    tables = tables_of(wide)
    _, vectors = np.linalg.eigh(moment_in_loops(tables, Usage.even(tables)))
    leading = vectors[:, -(width - 1) :]
    narrowed, share = with_width(wide, width)
    assert 0.2 < share < 0.95
    approximated = Encoder.from_config(wide.get_config())
    approximated.set_weights(wide.get_weights())
    embeddings = approximated.parts.embeddings
    for each in (embeddings.token, embeddings.position, embeddings.segment):
        rows = np.asarray(each.embeddings, np.float64)
        each.embeddings.assign((rows - rows.mean(axis=1, keepdims=True)) @ leading @ leading.T)
    inputs = rows_of_text()
    for ours, theirs in zip(states(narrowed, inputs), states(approximated, inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def plain_svd(wide, width):
    """A BERT whose token table is cut by SVD; the norm's scale and bias are kept in the projection."""
    narrowed, _ = with_width(wide, width)
    embeddings, new = wide.parts.embeddings, narrowed.parts
    token = np.asarray(embeddings.token.embeddings)
    right = np.linalg.svd(token, full_matrices=False)[2][:width]
    for name in ("token", "position", "segment"):
        table = np.asarray(getattr(embeddings, name).embeddings)
        getattr(new.embeddings, name).embeddings.assign(table @ right.T)
    new.projection.kernel.assign(right * np.asarray(embeddings.norm.gamma))
    new.projection.bias.assign(np.asarray(embeddings.norm.beta))
    return narrowed


@pytest.mark.parametrize("width", [6, 10, 14])
def test_it_is_closer_than_a_plain_svd(width):
    wide, inputs = source("bert"), rows_of_text()
    wanted = states(wide, inputs)
    errors = [
        [np.mean((ours - theirs) ** 2) for ours, theirs in zip(states(each, inputs), wanted, strict=True)]
        for each in (with_width(wide, width)[0], plain_svd(wide, width))
    ]
    assert errors[0][0] < 0.7 * errors[1][0] and errors[0][1] < errors[1][1]


def test_rows_that_a_text_uses_are_kept_best():
    wide = source("bert")
    tables = tables_of(wide)
    inputs = rows_of_text(vocabulary=8)
    used = Usage.even(tables)
    used.tokens[8:] = 1e-6
    errors = [
        np.mean((states(with_width(wide, 8, usage)[0], inputs)[0] - states(wide, inputs)[0]) ** 2)
        for usage in (used, None)
    ]
    assert errors[0] < 0.6 * errors[1]


def test_blocks_are_shared_and_the_source_stays():
    wide = source("bert")
    before = [weight.numpy().copy() for weight in wide.weights]
    narrowed, _ = with_width(wide, 4)
    assert narrowed.parts.blocks == wide.parts.blocks
    for weight, value in zip(wide.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


@pytest.mark.parametrize("width", [1, 17])
def test_a_width_that_there_is_none_of_is_refused(width):
    with pytest.raises(UserError, match=rf"input_embedding_dim is {width}; this model's table allows 2 to 16"):
        with_width(source("bert"), width)


def test_bands_and_broken_numbers_are_refused():
    keras.utils.set_random_seed(0)
    banded = Encoder(60, 1, 2, 16, 24, 8, max_sequence_length=20, input_cutoffs=(20,))
    with pytest.raises(UserError, match="has bands of several widths"):
        with_width(banded, 4)
    broken = np.ones((4, 4))
    broken[2, 1] = np.nan
    with pytest.raises(UserError, match="non-finite"):
        narrow(Tables(broken, ()), 3, Usage.even(Tables(broken, ())))


def test_the_basis_leaves_a_norm_nothing_to_subtract():
    rows = np.random.default_rng(1).normal(size=(3, 6)) @ centred_basis(7)
    np.testing.assert_allclose(rows.sum(axis=1), 0, atol=1e-14)


def test_a_text_that_is_not_there_is_refused_before_the_other_is_read(corpus, tmp_path):
    model = random_model({"vocabulary_size": corpus.tokenizer.vocabulary_size, "num_layers": 1})
    with pytest.raises(UserError, match=r"^gone is not a folder of text$"):
        reallocate(model, str(tmp_path / "out"), Plan(4, vocabulary="lost", text="gone"), corpus.tokenizer.path)


def test_mask_weighs_as_what_it_stands_for_where_there_is_a_head(corpus, text_dir, tmp_path):
    """Without, its row would lose what no text uses, though a masked-LM head has it read in place of many tokens."""
    model = random_model({"vocabulary_size": 900, "input_embedding_dim": 16, "num_layers": 1})
    row, tokenizer = corpus.tokenizer.mask_id, corpus.tokenizer
    table = model.encoder.token_embedding.embeddings
    shared = np.random.default_rng(0).normal(size=(12, 16))  # of all rows but one
    values = np.random.default_rng(1).normal(size=(900, 12)) @ shared
    values[row] = np.linalg.svd(shared)[2][-1] * 5
    table.assign(values)
    for text in (str(text_dir), None):
        kept = []
        for each, name in ((model, "head"), (model.encoder, "alone")):
            folder = str(tmp_path / f"{name}-{text is None}")
            reallocate(each, folder, Plan(input_embedding_dim=13, text=text), tokenizer.path)
            narrow = read_model(folder)[0]
            narrow = getattr(narrow, "encoder", narrow)
            kept.append(np.linalg.norm(narrow.token_embedding.embeddings[row]) / np.linalg.norm(values[row]))
        assert kept[0] > 0.8 and kept[1] < 0.4
