import itertools

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM
from rembed_keras.modeling import Classifier, Encoder, Regressor, SpanExtractor, Tagger
from rembed_keras.modeling.attention import Global, Local, Nystrom
from rembed_keras.modeling.input_embeddings import Summed, Trigrams
from rembed_keras.modeling.texts.lengths import rounded_length, row_lengths
from rembed_keras.tasks.kinds import batches as module
from rembed_keras.tasks.kinds.batches import batches, cut_batches, lengths_worth_compiling
from rembed_keras.tasks.kinds.encoding import Encoded

S = 64


def rows_of(lengths, targets=None, weights=None):
    mask = (np.arange(S) < np.asarray(lengths)[:, None]).astype("int32")
    token_ids = np.random.default_rng(1).integers(5, 30, mask.shape, "int32") * mask
    inputs = {"token_ids": token_ids, "segment_ids": 0 * mask, "padding_mask": mask}
    every = np.arange(len(mask), dtype="int32")
    return Encoded(inputs, every if targets is None else targets, weights, every, 0, 0)


@pytest.fixture(scope="module")
def many():
    """Rows whose lengths are log-normal, as many as are no whole number of batches."""
    return rows_of(np.random.default_rng(0).lognormal(2.5, 0.5, 1003).round().clip(2, S))


@pytest.mark.parametrize("group_by_length", [False, True])
@pytest.mark.parametrize("size", [1, 4, 25])  # of 10 rows, also several epochs a batch
def test_training_order_is_a_permutation_for_each_epoch(size, group_by_length):
    encoded = rows_of([3, 60, 17, 5, 33, 16, 49, 2, 20, 64])
    data = batches(encoded, size, 1, group_by_length)
    assert len(data) > 10**12  # and within what `len` can give
    passes = np.split(np.concatenate([data[step][1] for step in range(-(-40 // size))])[:40], 4)
    for one_pass in passes:
        assert sorted(one_pass) == list(range(10))
    assert len({tuple(one_pass) for one_pass in passes}) == 4
    inputs, rows = batches(encoded, size, 1, group_by_length)[1]  # of another process, which begins here
    np.testing.assert_array_equal(rows, data[1][1])
    np.testing.assert_array_equal(inputs["token_ids"], encoded.inputs["token_ids"][rows])
    if size > 1:
        assert (batches(encoded, size, 2, group_by_length)[1][1] != rows).any()


def test_rows_of_similar_length_come_together_in_batches_of_random_order(many):
    lengths = row_lengths(many.inputs["padding_mask"])
    data = [batches(many, 16, 3, group) for group in (False, True)]
    second = range(63, 125)  # of the epochs, whose first rows are in a batch with those before
    longest = [[lengths[each[step][1]].max() for step in second] for each in data]
    assert np.mean(longest[1]) < 1.15 * lengths.mean() < 0.6 * np.mean(longest[0])
    order = np.corrcoef(longest[1][:-1], longest[1][1:])[0, 1]
    assert abs(order) < 0.4  # neither rising nor falling


@pytest.mark.parametrize("group_by_length", [False, True])
def test_lengths_are_the_cheapest_of_all_choices_for_batches_as_they_come(many, group_by_length, monkeypatch):
    data = batches(many, 16, 5, group_by_length)
    steps, longest = 300, row_lengths(many.inputs["padding_mask"])
    needed = np.array([row_lengths(data[step][0]["padding_mask"]).max() for step in range(steps)])
    sizes = sorted({rounded_length(int(each), S) for each in longest})
    assert sizes == [16, 32, 48, 64]
    chosen = []
    for compilation in (1e3, 2e4, 1e6):
        monkeypatch.setattr(module, "COMPILATION", compilation)

        def cost(lengths):
            padded = [min(length for length in lengths if length >= each) for each in needed]
            return 16 * sum(padded) + compilation * len(lengths)  # noqa: B023 # called in this turn

        every = [(*some, S) for count in range(4) for some in itertools.combinations(sizes[:-1], count)]
        chosen.append(lengths_worth_compiling(longest, S, 16, steps, group_by_length))
        assert cost(chosen[-1]) < 1.03 * min(map(cost, every))
    assert len(chosen[0]) > len(chosen[1]) > len(chosen[2]) == 1


WEIGHTS = (np.arange(S) < np.array([[4], [9], [30], [14]])).astype("float32")
HEADS = {
    "classes": (lambda encoder: Classifier(encoder, 3, pooling="mean"), np.array([0, 2, 1, 1]), None),
    "number": (Regressor, np.array([0.5, 2.0, 1.0, 3.0], "float32"), None),
    "tags": (lambda encoder: Tagger(encoder, 3), np.arange(4 * S).reshape(4, S) % 3, WEIGHTS),
    "spans": (SpanExtractor, np.array([[1, 3], [2, 8], [0, 0], [5, 13]]), None),
}


@pytest.mark.parametrize("head", HEADS)
def test_a_batch_without_padding_has_the_loss_of_the_whole(head, monkeypatch):
    monkeypatch.setattr(module, "COMPILATION", 0)
    make, targets, weights = HEADS[head]
    keras.utils.set_random_seed(2)
    model = make(Encoder(30, 1, 2, 8, 16, 4, max_sequence_length=S, dropout=0.0, attention=Local(8)))
    model.compile()
    encoded = rows_of([4, 9, 30, 14], targets, weights)
    data = batches(encoded, 2, 0)
    few, shapes = cut_batches(data, model, encoded, steps=10)
    assert [shape[0]["token_ids"].shape for shape in shapes] == [(2, 16), (2, 32)]
    _, (one,) = cut_batches(data, model, encoded, steps=10, may_vary=False)
    assert one[0]["token_ids"].shape == (2, 32)
    assert {few[step][0]["token_ids"].shape for step in range(2)} == {(2, 16), (2, 32)}
    for step in range(2):
        losses = []
        for inputs, *others in (data[step], few[step]):
            y, sample_weight = (*others, None)[:2]
            losses.append(float(model.compute_loss(inputs, y, model(inputs), sample_weight)))
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
        assert losses[0] > 0.1


def test_a_token_of_padding_is_left_where_tokens_are_read_with_their_neighbours(monkeypatch):
    monkeypatch.setattr(module, "COMPILATION", 0)
    encoded = rows_of([4, 9, 32, 14])
    data = batches(encoded, 4, 0)
    for embedding, length in ((Summed, 32), (Trigrams, 48)):
        model = Tagger(Encoder(30, 1, 2, 8, 16, 4, max_sequence_length=S, input_embedding=embedding), 3)
        for weight in model.weights:
            weight.assign(weight + 0.3 * np.random.default_rng(3).normal(size=weight.shape))
        few, _ = cut_batches(data, model, encoded, steps=10)
        whole, cut = (each[0][0] for each in (data, few))
        assert cut["token_ids"].shape == (4, length)
        kept = cut["padding_mask"][:, :, None]
        np.testing.assert_allclose(model(cut) * kept, model(whole)[:, :length] * kept, atol=1e-5)


def test_what_padding_counts_for_is_not_cut():
    encoded = rows_of([4, 9, 30, 14])
    data = batches(encoded, 2, 0)

    def shapes_of(attention, teachers=None):
        model = Classifier(Encoder(30, 1, 2, 8, 16, 4, max_sequence_length=S, attention=attention), 3)
        if teachers is not None:
            asked = Encoder(30, 2, 2, 8, 16, 4, max_sequence_length=S, attention=teachers)
            model.use_terms([MiniLM(Teacher(asked))])
        few, shapes = cut_batches(data, model, encoded, steps=10)
        assert [few[0][0]["token_ids"].shape] == [shape[0]["token_ids"].shape for shape in shapes]
        return shapes[0][0]["token_ids"].shape[1]

    assert shapes_of(Nystrom(4)) == S
    assert shapes_of(Global()) == 32
    assert shapes_of(Global(), [Nystrom(4), Global()]) == S
    assert shapes_of(Global(), [Local(8), Global()]) == 32
