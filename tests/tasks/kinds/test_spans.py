import re
import unicodedata

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from rembed_keras.data.text import read_lines
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer, train_tokenizer
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Question
from rembed_keras.tasks.kinds.spans import decode_answers
from rembed_keras.tasks.kinds.windows import encode_questions
from tests.data.tokenizers.trained import word_piece, write_vocabulary

# characters that normalization lengthens or shortens, scripts without spaces, clusters of code points, and words
FRAGMENTS = [
    *("Save ", "the file", " ", "  ", "\n", "\u3000", "\u200b", "▁", "", "x", "."),
    *("ﬁx", "½", "①②", "㍿", "ＡＢＣ", "ｶﾞ", "Straße", "cafe\u0301", "café", "ﷺ", "각", "¨"),
    *("日本語の文書", "を保存", "中国", "Слово", "السلام عليكم", "नमस्ते दुनिया", "ไทย"),
    *("👨\u200d👩\u200d👧", "😀", "👍🏽", "🇩🇪", "x\ufe0f"),
]
PASSAGES = st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join)


@pytest.fixture(scope="module")
def tokenizers(corpus, text_dir, tmp_path_factory):
    """Tokenizers with different normalization and fallback."""
    folder = tmp_path_factory.mktemp("models")
    lines = list(filter(None, read_lines(text_dir / "en.txt")))
    found = {"plain": corpus.tokenizer, "bytes": train_tokenizer(lines, folder / "b.model", 600, byte_fallback=True)}
    spaces = {"remove_extra_whitespaces": False, "add_dummy_prefix": False}
    for name, options in (("identity", spaces), ("nfkc_cf", {}), ("nfkc", {"treat_whitespace_as_suffix": True})):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=str(folder / name),
            vocab_size=400,
            normalization_rule_name=name,
            user_defined_symbols=["[PAD]", "[CLS]", "[SEP]", "[MASK]"],
            unk_piece="[UNK]",
            minloglevel=2,
            **options,
        )
        found[name] = Tokenizer(folder / f"{name}.model")
    return found


NAMES = ["plain", "bytes", "identity", "nfkc_cf", "nfkc"]


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(max_size=20) | PASSAGES)
@settings(deadline=None)
def test_offsets_are_of_the_text_before_normalization(tokenizers, name, text):
    tokenizer = tokenizers[name]
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert starts.dtype == ends.dtype == np.int32 and starts.shape == ends.shape == (len(ids),)
    assert (starts >= 0).all() and (starts <= ends).all() and (ends <= len(text)).all()
    assert (np.diff(starts) >= 0).all()
    for start, end in zip(starts, ends, strict=True):
        assert text[start:end] == text[start:end].strip(" \n\u3000")
    covered = {place for start, end in zip(starts, ends, strict=True) for place in range(start, end)}
    for place, char in enumerate(text):
        if char.isalnum():
            assert place in covered, "every letter is in a span"


@pytest.mark.parametrize(("name", "form"), [("plain", "NFKC"), ("bytes", "NFKC"), ("nfkc", "NFKC"), ("identity", None)])
@given(fragments=st.lists(st.sampled_from([each for each in FRAGMENTS if each not in ("▁", "\u200b", "¨", "ﷺ", "㍿")])))
@settings(deadline=None)
def test_a_span_is_its_piece_after_normalization(tokenizers, name, form, fragments):
    text = "".join(fragments)
    _, starts, ends = tokenizers[name].encode_with_offsets(text)
    spelled: list[tuple[int, int, str]] = []  # pieces of one span are joined
    for piece, start, end in zip(tokenizers[name]._model.encode(text, return_type=str), starts, ends, strict=True):
        if start == end:
            assert not piece.strip("▁\n\u3000")
        elif spelled and start < spelled[-1][1]:
            first, last, before = spelled.pop()
            spelled.append((first, max(last, end), before + piece))
        else:
            spelled.append((start, end, piece))
    for start, end, pieces in spelled:
        raw = re.sub(
            "(<0x..>)+", lambda run: bytes.fromhex(run[0].replace("<0x", "").replace(">", "")).decode(), pieces
        )
        expected = unicodedata.normalize(form, text[start:end]) if form else text[start:end]
        assert "".join(raw.replace("▁", " ").split()) == "".join(expected.split())


def test_offsets_by_hand(tokenizers):
    def places(name, text):
        _, starts, ends = tokenizers[name].encode_with_offsets(text)
        pieces = tokenizers[name]._model.encode(text, return_type=str)
        return list(zip(pieces, starts.tolist(), ends.tolist(), strict=True))

    assert places("plain", "ﬁ  ½") == [
        *(("▁", 0, 0), ("f", 0, 1), ("i", 0, 1)),
        *(("▁", 3, 3), ("1", 3, 4), ("⁄", 3, 4), ("2", 3, 4)),
    ]
    assert places("bytes", "e\u0301 語")[:3] == [("▁", 0, 0), ("<0xC3>", 0, 2), ("<0xA9>", 0, 2)]
    assert [(start, end) for _, start, end in places("bytes", "e\u0301 語")[3:]] == [(3, 3), (3, 4), (3, 4), (3, 4)]
    assert places("plain", "") == []


def test_rows_by_hand(corpus):
    model = corpus.tokenizer._model
    space, a, b, c = (model.piece_to_id(piece) for piece in ("▁", "▁a", "b", "c"))
    # the passage is _ b c b b c c; the question loses its last piece; windows have 3 pieces and begin 2 apart
    question = Question("0", "abc", "bcbbcc", ("bb",), (2,))
    encoded = encode_questions([question], corpus.tokenizer, 8, stride=2, max_question_length=2)
    assert corpus.tokenizer.encode("abc") == [a, b, c]
    assert encoded.inputs["token_ids"].tolist() == [
        [2, a, b, 3, space, b, c, 3],
        [2, a, b, 3, c, b, b, 3],
        [2, a, b, 3, b, c, c, 3],
    ]
    assert encoded.inputs["segment_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]] * 3
    assert encoded.targets.tolist() == [
        [0, 0],
        [5, 6],
        [0, 0],
    ]  # whole at the edge of the second window, split elsewhere
    assert encoded.offsets[:, 4:7].tolist() == [
        [[0, 0], [0, 1], [1, 2]],
        [[1, 2], [2, 3], [3, 4]],
        [[3, 4], [4, 5], [5, 6]],
    ]
    assert not encoded.offsets[:, :4].any() and not encoded.offsets[:, 7].any()
    assert encoded.rows.tolist() == [0, 0, 0]
    assert (encoded.truncated, encoded.lost, encoded.uncovered) == (1, 1, 0)
    assert encoded.targets.dtype == encoded.offsets.dtype == encoded.rows.dtype == np.int32
    zeros = encode_questions([question], corpus.tokenizer, 8, stride=2, max_question_length=2, num_segments=1)
    assert not zeros.inputs["segment_ids"].any()


def test_an_answer_that_no_window_has_whole_points_at_cls_and_is_counted(corpus):
    long = Question("0", "a", "bcbbcc", ("bcbb",), (0,))
    blank = Question("1", "a", "b c", (" ",), (1,))
    encoded = encode_questions([long, blank], corpus.tokenizer, 7, stride=1, max_question_length=1)
    assert encoded.inputs["padding_mask"].sum(axis=1).max() == 7, "windows of three pieces"
    assert not encoded.targets.any()
    assert encoded.uncovered == 2


def windows_from_scratch(pieces, room, stride):
    """Beginnings and ends: advanced by the stride, until a window ends with the passage."""
    start, found = 0, []
    while True:
        length = min(len(pieces) - start, room)
        found.append((start, start + length))
        if start + length == len(pieces):
            return found
        start += min(length, stride)


def drawn_question(context, draw):
    start = draw.draw(st.integers(0, len(context) - 1))
    end = draw.draw(st.integers(start + 1, len(context)))
    return Question(
        "q", draw.draw(st.sampled_from(["", "Where?", "日本語 half"])), context, (context[start:end],), (start,)
    )


@pytest.mark.parametrize("name", NAMES)
@given(contexts=st.lists(PASSAGES.filter(bool), min_size=1, max_size=3), draw=st.data())
@settings(deadline=None, max_examples=60)
def test_the_answer_comes_back_from_its_targets(tokenizers, name, contexts, draw):
    tokenizer, questions = tokenizers[name], [drawn_question(context, draw) for context in contexts]
    length, stride = draw.draw(st.integers(8, 40)), draw.draw(st.integers(1, 40))
    encoded = encode_questions(questions, tokenizer, length, stride, max_question_length=4)
    logits = 10 * np.eye(length)[encoded.targets]  # [N, 2, S]
    answers = decode_answers(logits, encoded, questions, max_answer_length=length)
    uncovered = row = 0
    for number, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        start, end = question.starts[0], question.starts[0] + len(question.answers[0])
        pieces, starts, ends = tokenizer.encode_with_offsets(question.context)
        covering = [i for i in range(len(pieces)) if set(range(starts[i], ends[i])) & set(range(start, end))]
        asked = tokenizer.encode(question.question)[:4]
        reached = False
        for first, last in windows_from_scratch(pieces, length - 3 - len(asked), stride):
            ids = [tokenizer.cls_id, *asked, tokenizer.sep_id, *pieces[first:last], tokenizer.sep_id]
            assert encoded.inputs["token_ids"][row].tolist() == ids + [tokenizer.pad_id] * (length - len(ids))
            assert encoded.rows[row] == number
            inside = bool(covering) and first <= covering[0] and covering[-1] < last
            shift = len(asked) + 2 - first
            expected = [covering[0] + shift, covering[-1] + shift] if inside else [0, 0]
            assert encoded.targets[row].tolist() == expected
            reached, row = reached or inside, row + 1
        uncovered += not reached
        if reached:
            assert answer == question.context[min(starts[i] for i in covering) : max(ends[i] for i in covering)]
            assert question.answers[0].strip("\u200b▁ \n\u3000") in answer
        assert answer in question.context
    assert row == len(encoded.rows)
    assert encoded.uncovered == uncovered


@pytest.mark.parametrize("answer", ["cafe\u0301", "नमस्ते", "x\ufe0f", "cafe\u0301 x\ufe0f"])
def test_an_answer_keeps_the_marks_that_its_pieces_leave_out(tmp_path, answer):
    tokenizer = open_tokenizer(write_vocabulary(word_piece(), tmp_path))  # strips accents
    context = f"the {answer} of the world"
    question = Question("1", "which?", context, (answer,), (4,))
    encoded = encode_questions([question], tokenizer, sequence_length=40, max_question_length=8)
    logits = 10 * np.eye(40)[encoded.targets]
    assert decode_answers(logits, encoded, [question], max_answer_length=40) == [answer]


def answers_from_scratch(logits, encoded, questions, max_length, n_best):
    answers = []
    for number, question in enumerate(questions):
        best, answer = -np.inf, ""
        for row in np.flatnonzero(encoded.rows == number):
            offsets = encoded.offsets[row]
            text = [i for i in range(len(offsets)) if offsets[i, 0] < offsets[i, 1]]
            firsts, lasts = (sorted(text, key=lambda i: -scores[i])[:n_best] for scores in logits[row])
            for i in firsts:
                for j in lasts:
                    score = logits[row, 0, i] + logits[row, 1, j]
                    if i <= j < i + max_length and score > best:
                        best, answer = score, question.context[offsets[i, 0] : offsets[j, 1]]
        answers.append(answer)
    return answers


@pytest.mark.parametrize("name", ["plain", "bytes"])
@given(
    contexts=st.lists(PASSAGES, min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    max_length=st.integers(1, 30),
    n_best=st.integers(1, 30),
)
@settings(deadline=None, max_examples=60)
def test_the_best_span_is_that_of_brute_force(tokenizers, name, contexts, seed, max_length, n_best):
    questions = [Question(str(i), "Where?", context) for i, context in enumerate(contexts)]
    encoded = encode_questions(questions, tokenizers[name], 24, stride=5, max_question_length=4)
    assert encoded.targets is None and encoded.uncovered == 0
    logits = np.random.default_rng(seed).normal(size=(len(encoded.rows), 2, 24))
    expected = answers_from_scratch(logits, encoded, questions, max_length, n_best)
    assert decode_answers(logits, encoded, questions, max_length, n_best) == expected


def test_the_length_of_an_answer_and_the_number_of_best_pieces_matter(corpus):
    question = Question("0", "a", "bcbbcc")
    encoded = encode_questions([question], corpus.tokenizer, 16, max_question_length=1)
    logits = np.zeros((1, 2, 16), np.float32)  # the passage is at 3 to 9, its first piece a space
    logits[0, 0, [2, 4, 8]] = 90, 5, 4
    logits[0, 1, [0, 5, 8, 4]] = 90, 3, 5, 1
    assert decode_answers(logits, encoded, [question]) == ["bcbbc"]
    assert decode_answers(logits, encoded, [question], max_answer_length=4) == ["c"]
    logits[0, 0, 8] = -9
    assert decode_answers(logits, encoded, [question], max_answer_length=4) == ["bc"]
    assert decode_answers(logits, encoded, [question], max_answer_length=4, n_best=1) == [""]


def test_a_passage_without_text_has_a_row_and_no_answer(corpus):
    questions = [Question("0", "a", ""), Question("1", "", " \n")]
    encoded = encode_questions(questions, corpus.tokenizer, 8, max_question_length=2)
    assert encoded.inputs["token_ids"][:, :4].tolist() == [[2, corpus.tokenizer.encode("a")[0], 3, 3], [2, 3, 3, 0]]
    assert decode_answers(np.zeros((2, 2, 8)), encoded, questions) == ["", ""]
    nothing = encode_questions([], corpus.tokenizer, 8, max_question_length=2)
    assert nothing.offsets.shape == (0, 8, 2)
    assert decode_answers(np.zeros((0, 2, 8)), nothing, []) == []


def test_mistakes_are_named(corpus):
    good = Question("0", "a", "bcb", ("c",), (1,))
    with pytest.raises(UserError, match="question q9: answer 'c' is not at character 2 of the passage"):
        encode_questions([Question("q9", "a", "bcb", ("c",), (2,))], corpus.tokenizer, 8, max_question_length=2)
    with pytest.raises(UserError, match="with questions of 64 pieces it must be 68 or more"):
        encode_questions([good], corpus.tokenizer, 67)
    with pytest.raises(UserError, match="the stride is 0; it must be 1 or more"):
        encode_questions([good], corpus.tokenizer, 128, stride=0)
    encoded = encode_questions([good], corpus.tokenizer, 8, max_question_length=2)
    with pytest.raises(ValueError, match=r"logits have shape \(1, 8, 2\) for 1 windows of 8 tokens"):
        decode_answers(np.zeros((1, 8, 2)), encoded, [good])
    with pytest.raises(ValueError, match="the windows are of 1 questions, and there are 2"):
        decode_answers(np.zeros((1, 2, 8)), encoded, [good, good])
