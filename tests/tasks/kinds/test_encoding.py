import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, SpanExtractor, Tagger
from rembed_keras.modeling.attention import Nystrom
from rembed_keras.modeling.input_embeddings import Summed, Trigrams
from rembed_keras.modeling.texts.lengths import row_lengths
from rembed_keras.tasks.kinds.encoding import encode, encode_pairs, predict
from rembed_keras.tasks.kinds.examples import Labelled

TEXTS = st.text("ab é日本\u200b\U0001f600", max_size=12)


def row_from_scratch(tokenizer, text, pair, length):
    """Ids and segments of one example, truncated token by token, and the number of removed tokens."""
    first, second = tokenizer.encode(text), None if pair is None else tokenizer.encode(pair)
    lost = 0
    while len(first) + (2 if second is None else 3 + len(second)) > length:
        if second is None or len(first) > len(second):
            first.pop()
        else:
            second.pop()
        lost += 1
    ids = [tokenizer.cls_id, *first, tokenizer.sep_id]
    segments = [0] * len(ids)
    if second is not None:
        ids += [*second, tokenizer.sep_id]
        segments += [1] * (len(second) + 1)
    empty = length - len(ids)
    return ids + [tokenizer.pad_id] * empty, segments + [0] * empty, [1] * len(ids) + [0] * empty, lost


@given(st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=4), st.integers(5, 20))
@settings(deadline=None)
def test_pairs_are_those_cut_token_by_token(corpus, texts, length):
    examples = [Labelled(str(i), text, pair) for i, (text, pair) in enumerate(texts)]
    expected = [row_from_scratch(corpus.tokenizer, text, pair, length) for text, pair in texts]
    encoded = encode_pairs(examples, corpus.tokenizer, length)
    for name, place in (("token_ids", 0), ("segment_ids", 1), ("padding_mask", 2)):
        assert encoded.inputs[name].tolist() == [row[place] for row in expected]
        assert encoded.inputs[name].dtype == np.int32 and encoded.inputs[name].shape == (len(texts), length)
    assert encoded.rows.tolist() == list(range(len(texts))) and encoded.rows.dtype == np.int32
    assert encoded.truncated == sum(row[3] > 0 for row in expected)
    assert encoded.lost == sum(row[3] for row in expected)


def test_rows_by_hand(corpus):
    tokenizer = corpus.tokenizer
    model = tokenizer._model
    space, a, b, c = (model.piece_to_id(piece) for piece in ("▁", "▁a", "b", "c"))
    assert tokenizer.encode("abc") == [a, b, c] and tokenizer.encode("b") == [space, b]
    examples = [Labelled("0", "abc", "b"), Labelled("1", "b"), Labelled("2", "abc", "abcb")]
    targets = np.array([1, 0, 1], np.int32)
    encoded = encode_pairs(examples, tokenizer, 8, targets)
    assert encoded.inputs["token_ids"].tolist() == [
        [2, a, b, c, 3, space, b, 3],
        [2, space, b, 3, 0, 0, 0, 0],
        [2, a, b, c, 3, a, b, 3],  # c and b are removed: from four, then from three beside three
    ]
    assert encoded.inputs["segment_ids"].tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 1, 1],
    ]
    assert encoded.inputs["padding_mask"].tolist() == [[1] * 8, [1] * 4 + [0] * 4, [1] * 8]
    assert (encoded.truncated, encoded.lost) == (1, 2)
    assert encoded.shortfalls() == {"are cut to 8 tokens": 1}
    assert encoded.targets is targets and encoded.weights is None


def test_an_encoder_of_one_segment_gets_zeros_and_the_same_tokens(corpus):
    examples = [Labelled("0", "save the file", "open it")]
    one, two = (encode_pairs(examples, corpus.tokenizer, 24, num_segments=count) for count in (1, 2))
    assert not one.inputs["segment_ids"].any() and two.inputs["segment_ids"].any()
    np.testing.assert_array_equal(one.inputs["token_ids"], two.inputs["token_ids"])


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(5, 12))
@settings(deadline=None)
def test_texts_alone_are_pairs_without_a_second(corpus, texts, length):
    inputs = encode(texts, corpus.tokenizer, length)
    expected = encode_pairs([Labelled("x", text) for text in texts], corpus.tokenizer, length).inputs
    assert {name: array.tolist() for name, array in inputs.items()} == {
        name: array.tolist() for name, array in expected.items()
    }


def test_a_row_too_short_for_a_pair_is_refused(corpus):
    with pytest.raises(UserError, match="the sequence length is 4; a pair of texts needs 5 or more"):
        encode_pairs([Labelled("0", "a", "b")], corpus.tokenizer, 4)
    assert encode_pairs([Labelled("0", "a")], corpus.tokenizer, 3).inputs["token_ids"].shape == (1, 3)
    with pytest.raises(UserError, match="the sequence length is 2; a text needs 3 or more"):
        encode_pairs([Labelled("0", "a")], corpus.tokenizer, 2)


def test_many_texts_together_are_encoded_as_one_by_one(corpus):
    texts = ["save the file", "", "日本 é", "a"] * 50
    assert corpus.tokenizer.encode_batch(texts) == [corpus.tokenizer.encode(text) for text in texts]


LENGTHS = np.array(
    [3, 60, 17, 5, 33, 16, 49, 2, 20, 64, 4, 9, 40, 12, 32, 7, 50]
)  # of 17 rows, more than 7 batches of 2


def short_rows():
    token_ids = np.random.default_rng(1).integers(5, 30, (len(LENGTHS), 64)).astype("int32")
    mask = (np.arange(64) < LENGTHS[:, None]).astype("int32")
    return {"token_ids": token_ids * mask, "segment_ids": 0 * mask, "padding_mask": mask}


@pytest.mark.parametrize(
    ("embedding", "make"),
    [(Summed, Classifier), (Summed, Tagger), (Summed, SpanExtractor), (Summed, None), (Trigrams, Tagger)],
)
def test_rows_cut_to_a_few_lengths_have_the_outputs_of_whole_ones(make, embedding, monkeypatch):
    keras.utils.set_random_seed(3)
    encoder = Encoder(30, 2, 2, 8, 16, 4, max_sequence_length=64, input_embedding=embedding)
    for weight in encoder.weights:
        weight.assign(weight + 0.3 * np.random.default_rng(3).normal(size=weight.shape))  # as far apart as trained ones
    model = encoder if make is None else make(encoder, *([] if make is SpanExtractor else [3]))
    model.compile(run_eagerly=True)
    inputs, seen = short_rows(), set()
    whole = predict(model, inputs, batch_size=3)  # of 6 batches, which are not worth it

    def noted(batch, usual=model.predict_on_batch):
        seen.add(batch["token_ids"].shape)
        return usual(batch)

    monkeypatch.setattr(model, "predict_on_batch", noted)
    cut = predict(model, inputs, batch_size=2)
    assert seen == {(2, 16), (2, 32), (2, 48), (2, 64)}
    mask = inputs["padding_mask"]
    assert row_lengths(mask).tolist() == LENGTHS.tolist()
    for one, other in zip(*map(keras.tree.flatten, (whole, cut)), strict=True):
        kept = mask[:, :, None] if one.shape[1] == 64 else mask[:, None] if one.shape[-1] == 64 else 1
        assert one.shape == other.shape and np.abs(one).max() > 1e-3
        np.testing.assert_allclose(other * kept, one * kept, atol=1e-5)


def test_scores_of_pairs_of_tokens_are_in_the_squares_that_rows_fill():
    encoder = Encoder(30, 1, 2, 8, 16, 4, max_sequence_length=64)
    states, inputs = encoder(encoder.input)["sequence_output"], short_rows()
    model = keras.Model(encoder.input, keras.ops.matmul(states, keras.ops.transpose(states, (0, 2, 1))))
    model.compile(run_eagerly=True)
    whole, cut = (predict(model, inputs, batch_size=size) for size in (3, 2))
    mask = inputs["padding_mask"]
    pairs = mask[:, :, None] * mask[:, None, :]  # [B, S] -> [B, S, S]
    assert cut.shape == (17, 64, 64)
    np.testing.assert_allclose(cut * pairs, whole * pairs, atol=1e-4)


def test_rows_whose_padding_counts_are_not_cut(monkeypatch):
    model = Encoder(30, 1, 2, 8, 16, 4, max_sequence_length=64, attention=Nystrom(4))
    monkeypatch.setattr(model, "predict_on_batch", lambda batch: {"length": batch["token_ids"]})
    assert predict(model, short_rows(), batch_size=2)["length"].shape == (17, 64)
