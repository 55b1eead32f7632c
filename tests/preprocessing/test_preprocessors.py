"""Texts become the inputs that tasks are trained on elsewhere; masks are a function of the seed and the text."""

import keras
import numpy as np
import pytest

from rembed_keras import MaskedLMPreprocessor, SpanPreprocessor, TaggerPreprocessor, TextClassifierPreprocessor
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.encoding import encode


def test_texts_and_pairs(tokenizer, lines):
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=24)
    ours, expected = preprocessor(lines[:9]), encode(lines[:9], tokenizer.model, 24)
    for name, array in expected.items():
        np.testing.assert_array_equal(ours[name], array)
    x, y = preprocessor((["save"], ["the file"]), y=[1])
    assert y.tolist() == [1] and x["segment_ids"].sum() == len(tokenizer("the file")) + 1
    with pytest.raises(UserError, match="labels are names"):
        preprocessor(["a"], y=["yes"])


def test_masks_are_a_function_of_seed_and_text(tokenizer, lines):
    preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=40, mask_rate=0.2, seed=3)
    x, y, weights = preprocessor(lines[:20])
    plain = encode(lines[:20], tokenizer.model, 40)["token_ids"]
    for row in range(20):
        length = len(tokenizer(lines[row])[:38])
        assert weights[row].sum() == max(1, round(0.2 * length))
        places = x["mask_positions"][row][weights[row] > 0]
        np.testing.assert_array_equal(plain[row, places], y[row][weights[row] > 0])
        changed = np.flatnonzero(x["token_ids"][row] != plain[row])
        assert set(changed) <= set(places)
    one_by_one = [preprocessor([line]) for line in lines[:20]]
    np.testing.assert_array_equal(np.concatenate([each[1] for each in one_by_one]), y)
    other = MaskedLMPreprocessor(tokenizer, sequence_length=40, mask_rate=0.2, seed=4)(lines[:20])
    assert (other[0]["mask_positions"] != x["mask_positions"]).any()
    with pytest.raises(UserError, match="leave y out"):
        preprocessor(lines[:2], y=[0, 1])


def test_tags_are_at_first_pieces(tokenizer):
    preprocessor = TaggerPreprocessor(tokenizer, sequence_length=24)
    _, y, weights = preprocessor([["save", "unbelievable"], ["file"]], y=[[1, 2], [3]])
    first = 1 + len(tokenizer("save"))
    assert y[0, 1] == 1 and y[0, first] == 2 and y[1, 1] == 3
    assert np.flatnonzero(weights[0]).tolist() == [1, first]


def test_answers_are_spans_of_tokens(tokenizer):
    preprocessor = SpanPreprocessor(tokenizer, sequence_length=32, max_question_length=12)
    x, y = preprocessor((["save what?"], ["the file"]), y=(["file"], [4]))
    found = x["token_ids"][0, y[0, 0] : y[0, 1] + 1]
    assert tokenizer.detokenize(found).strip() == "file"
    with pytest.raises(UserError, match="a pair"):
        preprocessor(["one text"])


class Column:
    """As pandas's of a dtype of its own."""

    dtype = "Int64"

    def __array__(self, dtype=None, copy=None):
        return np.array([0, 1], object)


def test_labels_have_a_dtype_that_the_backend_has(tokenizer):
    widest = "int32" if keras.config.backend() == "jax" else "int64"
    for labels in ([0, 1], np.array([0, 1], np.int64), np.array([0, 1], object), Column()):
        _, found = TextClassifierPreprocessor(tokenizer, 16)(["save", "open"], y=labels)
        assert found.dtype == widest and found.tolist() == [0, 1]


def test_a_pair_of_texts_may_be_all_that_is_given(tokenizer):
    pairs = (["save", "open"], ["the file", "a table"])
    classifier, spans = TextClassifierPreprocessor(tokenizer, 24), SpanPreprocessor(tokenizer, 32)
    for preprocessor in (classifier, spans):
        for each in (pairs, tuple(map(np.array, pairs))):
            for name, array in preprocessor(pairs, y=None).items():
                np.testing.assert_array_equal(preprocessor(each)[name], array)
    _, y = classifier((["save", "open"], [1, 0]))  # as an element of a data set
    assert y.tolist() == [1, 0]
    _, y = spans(((["save what?"], ["the file"]), (["file"], [4])))
    assert y.shape == (1, 2)
    with pytest.raises(UserError, match="there are 3 lists in a tuple"):
        classifier((["a"], ["b"], ["c"]), y=None)


def test_a_data_set_of_two_texts_is_no_pair(tokenizer):
    tf = pytest.importorskip("tensorflow")
    preprocessor = TextClassifierPreprocessor(tokenizer, 24)
    texts = tf.data.Dataset.from_tensor_slices((["save"], ["the file"])).batch(1)
    with pytest.raises(UserError, match="in a data set a tuple in a tuple"):
        texts.map(lambda a, b: preprocessor(a, y=b))
    (found,) = texts.map(lambda a, b: preprocessor((a, b)))
    np.testing.assert_array_equal(found["token_ids"], preprocessor((["save"], ["the file"]))["token_ids"])


@pytest.mark.parametrize("weights", [[0.5, 2.0], np.array([[0.5], [2.0]])])
def test_weights_of_texts_weigh_all_their_labels(weights, tokenizer):
    _, _, found = TextClassifierPreprocessor(tokenizer, 16)(["save", "open"], y=[0, 1], sample_weight=weights)
    np.testing.assert_array_equal(found, np.float32([0.5, 2.0]))
    words, tags = [["save"] * 20, ["open"]], [[1] * 20, [1]]
    tagger = TaggerPreprocessor(tokenizer, 16)
    _, _, plain = tagger(words, y=tags)
    _, _, found = tagger(words, y=tags, sample_weight=weights)
    np.testing.assert_array_equal(found, plain * np.float32([0.5] * (len(plain) - 1) + [2.0])[:, None])
    questions = (["what?", "what?"], ["open the file " * 20, "the file"]), (["file", "file"], [9, 4])
    spans = SpanPreprocessor(tokenizer, 32)
    _, y, found = spans(*questions, sample_weight=weights)
    np.testing.assert_array_equal(found, np.float32([0.5] * (len(y) - 1) + [2.0]))
    masked = MaskedLMPreprocessor(tokenizer, 32, mask_rate=0.3)
    _, _, plain = masked(["save the file", "open"])
    _, _, found = masked(["save the file", "open"], sample_weight=weights)
    np.testing.assert_array_equal(found, plain * np.float32([[0.5], [2.0]]))
    with pytest.raises(UserError, match=r"sample_weight is of shape \(2.*; it must be a number for each of 1 texts"):
        masked(["save"], sample_weight=weights)


def test_special_pieces_in_a_row_are_kept(tokenizer):
    cls = tokenizer.model.cls_id
    found = TextClassifierPreprocessor(tokenizer, 16).padded([[cls, 9, 8]], 8)["token_ids"][0]
    assert found.tolist()[:5] == [cls, cls, 9, 8, tokenizer.model.sep_id]


@pytest.mark.parametrize(
    "make", [TextClassifierPreprocessor, MaskedLMPreprocessor, TaggerPreprocessor, SpanPreprocessor]
)
def test_presets_hold_them(make, tokenizer, preset, tmp_path):
    preprocessor = make(tokenizer, sequence_length=20)
    preprocessor.save_to_preset(str(tmp_path))
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(preprocessor))
    assert again.sequence_length == 20
    again.load_preset_assets(str(tmp_path))
    assert again.tokenizer("Save the file") == tokenizer("Save the file")
    assert make.from_preset(preset).tokenizer("Save") == tokenizer("Save")


READ, TAGS, ANSWERS = TextClassifierPreprocessor, TaggerPreprocessor, SpanPreprocessor


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        (READ, ((["a", "b"], ["c"]),), "there are 2 texts, 1 pairs: each row needs one of each"),
        (TAGS, (["the head"],), "a sentence is a list of words, and 'the head' is a text"),
        (TAGS, ([["the"], ["head"]], [[0]]), "there are 2 sentences, 1 rows of tags"),
        (READ, (["a", "b"], [0, None]), "a label is None: leave out the texts"),
        (READ, (["a", "b"], [[0], [0, 1]]), "labels are lists of several lengths"),
        (TAGS, ([["the"], None],), "a sentence is a list of words, and None is none"),
        (TAGS, ([["the"]], [["DET"]]), "'DET' is no tag: give their numbers"),
        (TAGS, ([["the"]], [[1.7]]), "1.7 is no tag: give their numbers"),
        (TAGS, ([["the"], ["head"]], [0, 1]), "the tags of a sentence are a list of numbers, and 0 is none"),
        (ANSWERS, ((["is it"], ["it is"]), ["it"]), r"a pair \(answers, starts\)"),
        (ANSWERS, ((["is it"], ["it is"]), (["it"], 0)), r"a pair \(answers, starts\)"),
        (ANSWERS, ((["is it"], ["it is"]), (["it"], [None])), "None is no start of an answer"),
        (ANSWERS, ((["is it"], ["it is"]), (["it"], [0.5])), "0.5 is no start of an answer"),
        (ANSWERS, ((["is it"], ["it is"]), (["it"], [0, 3])), "1 questions, 1 passages, 1 answers, 2 starts"),
    ],
)
def test_columns_that_do_not_fit_are_said(kind, arguments, said, tokenizer):
    with pytest.raises(UserError, match=said):
        kind(tokenizer, sequence_length=32)(*arguments)


@pytest.mark.parametrize(("kind", "shortest"), [(READ, 3), (TAGS, 3), (MaskedLMPreprocessor, 3), (ANSWERS, 5)])
def test_a_row_has_room_for_a_piece(kind, shortest, tokenizer):
    """Questions in rows of one piece were cut into windows without an end."""
    assert kind(tokenizer, shortest).sequence_length == shortest
    with pytest.raises(UserError, match=f"sequence_length is {shortest - 1}; it must be {shortest} or more"):
        kind(tokenizer, shortest - 1)


def test_words_that_no_piece_begins_are_not_masked_whole(tokenizer, monkeypatch):
    monkeypatch.setitem(vars(tokenizer.model), "starts_word", np.zeros(tokenizer.vocabulary_size(), bool))
    with pytest.raises(UserError, match="do not say where words begin"):
        MaskedLMPreprocessor(tokenizer, sequence_length=16, whole_word=True)(["the encoder"])
    MaskedLMPreprocessor(tokenizer, sequence_length=16)(["the encoder"])
