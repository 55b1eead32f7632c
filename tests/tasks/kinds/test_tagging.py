import itertools

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from rembed_keras.data.text import read_lines
from rembed_keras.data.tokenizers.fast import FastTokenizer
from rembed_keras.data.tokenizers.sentence_piece import train_tokenizer
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Splits, Tagged
from rembed_keras.tasks.kinds.tagging import Tagging, decode_tags, encode_tagged
from tests.data.tokenizers.trained import KINDS, SPECIAL, TEXT

TAGS = ["NOUN", "VERB", "X"]
# an empty word, spaces without a piece, a variation selector, an emoji of several code points, and other words
WORDS = st.sampled_from(["", " ", "\u200b", "\u00a0", "\ufe0f", "👩‍👧"]) | st.text(max_size=8)
SENTENCES = st.lists(st.lists(st.tuples(WORDS, st.sampled_from(TAGS)), max_size=8), max_size=4)


@pytest.fixture(scope="module")
def spelling(text_dir, tmp_path_factory):
    """A tokenizer with byte fallback: unknown words have many pieces."""
    path = tmp_path_factory.mktemp("bytes") / "bytes.model"
    return train_tokenizer(filter(None, read_lines(text_dir / "en.txt")), path, 600, byte_fallback=True)


@pytest.fixture(scope="module", params=["plain", "spelling"])
def tokenizer(request, corpus, spelling):
    return {"plain": corpus.tokenizer, "spelling": spelling}[request.param]


def sentences_of(drawn):
    return [
        Tagged(str(i), tuple(word for word, _ in words), tuple(tag for _, tag in words))
        for i, words in enumerate(drawn)
    ]


def test_rows_by_hand(corpus):
    model = corpus.tokenizer._model
    space, a, b, c = (model.piece_to_id(piece) for piece in ("▁", "▁a", "b", "c"))
    sentence = Tagged("0", ("ab", " ", "bc", "abcbcbcbc", "a"), ("NOUN", "X", "VERB", "NOUN", "VERB"))
    encoded = encode_tagged([sentence, Tagged("1", (), ())], corpus.tokenizer, 8, TAGS)
    assert encoded.inputs["token_ids"].tolist() == [
        [2, a, b, 1, space, b, c, 3],  # a blank is [UNK]
        [2, a, b, c, b, c, b, 3],  # a word of nine pieces keeps six
        [2, a, 3, 0, 0, 0, 0, 0],
        [2, 3, 0, 0, 0, 0, 0, 0],
    ]
    assert encoded.weights.tolist() == [
        [0, 1, 0, 1, 1, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert encoded.targets.tolist() == [
        [0, 0, 0, 2, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert encoded.rows.tolist() == [0, 0, 0, 1]
    assert (encoded.truncated, encoded.lost) == (1, 3)
    assert not encoded.inputs["segment_ids"].any()
    kinds = [encoded.targets.dtype, encoded.weights.dtype, encoded.rows.dtype]
    assert kinds == [np.int32, np.float32, np.int32]


@given(drawn=SENTENCES, length=st.integers(3, 16))
@settings(deadline=None)
def test_every_word_is_predicted_once(tokenizer, drawn, length):
    sentences = sentences_of(drawn)
    encoded = encode_tagged(sentences, tokenizer, length, TAGS)
    assert decode_tags(encoded.targets, encoded, TAGS) == [sentence.tags for sentence in sentences]
    rng = np.random.default_rng(0)
    noise = np.where(encoded.weights > 0, encoded.targets, rng.integers(3, size=encoded.targets.shape))
    assert decode_tags(noise, encoded, TAGS) == [sentence.tags for sentence in sentences], "other pieces have no say"
    assert set(encoded.rows.tolist()) == set(range(len(sentences))), "each sentence has a row"
    assert (np.diff(encoded.rows) >= 0).all()


@given(drawn=SENTENCES, length=st.integers(3, 16))
@settings(deadline=None)
def test_rows_are_whole_words_one_after_the_other(tokenizer, drawn, length):
    sentences = sentences_of(drawn)
    encoded = encode_tagged(sentences, tokenizer, length, TAGS)
    lost = 0
    read: list[list] = [[] for _ in sentences]
    for number, ids, mask, weights in zip(
        encoded.rows, encoded.inputs["token_ids"], encoded.inputs["padding_mask"], encoded.weights, strict=True
    ):
        used = int(mask.sum())
        assert ids[0] == tokenizer.cls_id and ids[used - 1] == tokenizer.sep_id and (ids[used:] == 0).all()
        assert weights[[0, *range(used - 1, length)]].sum() == 0, "special pieces and padding have no tag"
        assert used <= 2 or weights[1], "a row begins with a word"
        begins = [*np.flatnonzero(weights), used - 1]
        read[number] += [ids[i:j].tolist() for i, j in itertools.pairwise(begins)]
    for sentence, words in zip(sentences, read, strict=True):
        pieces = [tokenizer.encode(word) or [tokenizer.unk_id] for word in sentence.words]
        assert words == [ids[: length - 2] for ids in pieces]
        lost += sum(len(ids) - len(ids[: length - 2]) for ids in pieces)
    assert encoded.lost == lost


@given(drawn=SENTENCES, length=st.integers(3, 16))
@settings(deadline=None)
def test_a_word_wraps_only_when_it_does_not_fit(tokenizer, drawn, length):
    encoded = encode_tagged(sentences_of(drawn), tokenizer, length, TAGS)
    used = encoded.inputs["padding_mask"].sum(axis=1)
    for row in range(1, len(used)):
        if encoded.rows[row] == encoded.rows[row - 1]:
            begins = [*np.flatnonzero(encoded.weights[row]), used[row] - 1]
            assert used[row - 1] + begins[1] - begins[0] > length


def test_unlabeled_sentences_have_weights_and_no_targets(corpus):
    labeled, unlabeled = Tagged("0", ("save", "it"), ("VERB", "X")), Tagged("1", ("the", "file"))
    encoded = encode_tagged([labeled, unlabeled], corpus.tokenizer, 12, TAGS)
    assert encoded.targets is None
    assert encoded.weights.sum() == 4
    everything = np.ones(encoded.weights.shape, int)
    assert decode_tags(everything, encoded, TAGS) == [("VERB", "VERB"), ("VERB", "VERB")]


def test_no_sentences_are_no_rows(corpus):
    encoded = encode_tagged([], corpus.tokenizer, 8, TAGS)
    assert encoded.inputs["token_ids"].shape == encoded.weights.shape == (0, 8)
    assert decode_tags(np.zeros((0, 8), int), encoded, TAGS) == []


def test_mistakes_are_named(corpus):
    with pytest.raises(UserError, match=r"sentence s7: there is no tag 'NOUNS'; did you mean NOUN\?"):
        encode_tagged([Tagged("s7", ("a",), ("NOUNS",))], corpus.tokenizer, 8, TAGS)
    with pytest.raises(UserError, match="sentence s8 has 2 words and 1 tags"):
        encode_tagged([Tagged("s8", ("a", "b"), ("X",))], corpus.tokenizer, 8, TAGS)
    with pytest.raises(UserError, match="the sequence length is 2; a word needs 3 or more"):
        encode_tagged([], corpus.tokenizer, 2, TAGS)
    encoded = encode_tagged([Tagged("0", ("a",), ("X",))], corpus.tokenizer, 8, TAGS)
    with pytest.raises(ValueError, match=r"predicted tags have shape \(1, 9\) for rows of shape \(1, 8\)"):
        decode_tags(np.zeros((1, 9), int), encoded, TAGS)


@pytest.mark.parametrize(
    ("tags", "names"),
    [(("B-LOC", "O"), ["f1", "accuracy"]), (("NOUN", "PROPN", "X"), ["accuracy"]), (("B-LOC", "X"), ["accuracy"])],
)
def test_span_f1_is_added_where_tags_are_spans(tags, names):
    """Seqeval reads a bare tag as a span of a type without its first letter: PROPN and a ROPN were the same."""
    examples = [Tagged("0", ("a",) * len(tags), tags)]
    assert Tagging("x", Splits(examples, {}, {"en": examples})).metric_names == names
    assert Tagging("x", Splits(examples, {}, {"en": examples}), {"own": len}).metric_names == ["own"]


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    """Tokenizers of Hugging Face's library by kind, as files."""
    folder = tmp_path_factory.mktemp("fast")
    for kind in ("byte_level", "word_piece"):
        KINDS[kind]().save(str(folder / f"{kind}.json"))
    return folder


def words_read(encoded):
    """The ids of each word, of sentences that have a row each."""
    read = []
    for ids, mask, weights in zip(
        encoded.inputs["token_ids"], encoded.inputs["padding_mask"], encoded.weights, strict=True
    ):
        begins = [*np.flatnonzero(weights), int(mask.sum()) - 1]
        read.append([ids[i:j].tolist() for i, j in itertools.pairwise(begins)])
    return read


def test_words_of_bytes_are_those_of_running_text(fast):
    """RoBERTa's and ModernBERT's pieces hold the space before a word: without it all words were one."""
    ours = FastTokenizer(fast / "byte_level.json")
    texts = [" ".join(text.split()) for text in TEXT]
    encoded = encode_tagged([Tagged(str(i), tuple(text.split())) for i, text in enumerate(texts)], ours, 2000, TAGS)
    read = words_read(encoded)
    assert [[i for word in words for i in word] for words in read] == ours.encode_batch(texts)
    theirs = tokenizers.Tokenizer.from_file(str(fast / "byte_level.json"))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)  # as scripts for tagging demand
    for text, words in zip(texts, read, strict=True):
        found = theirs.encode(text.split(), is_pretokenized=True, add_special_tokens=False)
        pieces = [[] for _ in words]
        for token_id, word in zip(found.ids, found.word_ids, strict=True):
            pieces[word].append(token_id)
        assert words[1:] == pieces[1:]
    theirs.save(str(fast / "prefixed.json"))  # this one has the space of itself, before the first word too
    encoded = encode_tagged([Tagged("0", tuple(texts[0].split()))], FastTokenizer(fast / "prefixed.json"), 2000, TAGS)
    assert words_read(encoded)[0] == [theirs.encode(word, add_special_tokens=False).ids for word in texts[0].split()]


def test_a_space_is_put_where_a_tokenizer_writes_one_and_nowhere_else(fast, corpus, tmp_path):
    words = ("Click", "the", "document", "", ".")
    pieces = {piece: i for i, piece in enumerate([*SPECIAL, "a", "b"])}
    tokenizers.Tokenizer(models.BPE(pieces, [], unk_token="[UNK]")).save(str(tmp_path / "no_space.json"))
    alone = FastTokenizer(fast / "word_piece.json"), FastTokenizer(tmp_path / "no_space.json"), corpus.tokenizer
    for tokenizer in alone:
        encoded = encode_tagged([Tagged("0", words)], tokenizer, 64, TAGS)
        assert words_read(encoded)[0] == [tokenizer.encode(word) or [tokenizer.unk_id] for word in words]
    tokenizer = FastTokenizer(fast / "byte_level.json")
    encoded = encode_tagged([Tagged("0", words)] * 2, tokenizer, 6, TAGS)
    assert decode_tags(np.ones(encoded.weights.shape, int), encoded, TAGS) == [("VERB",) * len(words)] * 2
    rows = [tokenizer.decode(ids) for ids in encoded.inputs["token_ids"]]
    assert "".join(rows[: len(rows) // 2]) == "Click the document ."
