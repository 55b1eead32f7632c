"""Passages as overlapping windows, with the positions of an answer in each.

A passage that is too long for a row is read in overlapping windows. The targets of a window that has all of the answer
are the answer's first and last piece; those of any other window are [CLS]. Where the tokenizer's pieces do not begin
and end with the answer, as in scripts without spaces, the pieces that cover it are the target.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.encoding import Encoded, fill_rows
from rembed_keras.tasks.kinds.examples import Question


@dataclass(frozen=True)
class Windows(Encoded):
    """Windows of passages as rows, and the offsets of their pieces.

    Attributes:
        offsets: int32 [N, S, 2], where in the passage a piece begins and ends, in characters, combining marks after it
            that belong to no piece included; equal for tokens that are not text of the passage.
        uncovered: how many questions have an answer that no window has whole.
    """

    offsets: np.ndarray
    uncovered: int

    def shortfalls(self):
        """Questions that are cut, and those whose answer no window has whole: to train on them teaches no answer."""
        return {
            "have a question that is cut": self.truncated,
            f"have an answer that no window of {self.length} tokens has whole": self.uncovered,
        }


def encode_questions(
    questions: Sequence[Question],
    tokenizer: AnyTokenizer,
    sequence_length: int,
    stride: int = 128,
    max_question_length: int = 64,
    num_segments: int = 2,
) -> Windows:
    """`[CLS] question [SEP] window [SEP]`, for every window of the question's passage.

    Args:
        questions: questions; the first answer of each is the target.
        tokenizer: the encoder's.
        sequence_length: S, more than `max_question_length` by 4 or more.
        stride: pieces from the beginning of a window to that of the next (BERT's doc_stride, not the overlap); capped
            at the window's length, so that all of the passage is read.
        max_question_length: pieces; longer questions are truncated at the end.
        num_segments: as in `encode_pairs`.

    Returns:
        Rows with `targets` int32 [N, 2], the positions of the first and the last piece of the answer, both 0 in a
        window that does not have it whole; None if any question is unlabeled. `truncated` and `lost` are of questions:
        passages are never truncated.

    Raises:
        UserError: for lengths that leave no room for the passage, a stride below 1, or an answer that is not at its
            start in the passage.

    Source: Devlin et al. 2019, section 4.2; windows as in BERT's release.
    """
    if stride < 1:
        raise UserError(f"the stride is {stride}; it must be 1 or more")
    if sequence_length < max_question_length + 4:
        raise UserError(
            f"the sequence length is {sequence_length}; with questions of {max_question_length} pieces it must be "
            f"{max_question_length + 4} or more"
        )
    asked = tokenizer.encode_batch([question.question for question in questions])
    lost = [max(0, len(ids) - max_question_length) for ids in asked]
    contexts = {question.context for question in questions}
    passages = {text: _with_marks(text, *tokenizer.encode_with_offsets(text)) for text in contexts}
    rows, firsts, seconds, targets, offsets = [], [], [], [], []
    for number, (question, ids) in enumerate(zip(questions, asked, strict=True)):
        first = ids[:max_question_length]
        pieces, starts, ends = passages[question.context]
        answer = _pieces_of_answer(question, starts, ends)
        begin = len(first) + 2  # of the window in its row, after [CLS], the question and [SEP]
        for window in _windows(len(pieces), sequence_length - begin - 1, stride):
            rows.append(number)
            firsts.append(first)
            seconds.append(pieces[window])
            targets.append(_target(answer, window, begin))
            offsets.append(np.zeros((sequence_length, 2), np.int32))
            offsets[-1][begin : begin + len(seconds[-1])] = np.stack([starts[window], ends[window]], axis=1)
    reached = {number for number, (_, last) in zip(rows, targets, strict=True) if last}
    unlabeled = any(not question.answers for question in questions)
    return Windows(
        inputs=fill_rows(firsts, seconds, tokenizer, sequence_length, num_segments),
        targets=None if unlabeled else np.array(targets, np.int32).reshape(-1, 2),
        weights=None,
        rows=np.array(rows, np.int32),
        truncated=sum(count > 0 for count in lost),
        lost=sum(lost),
        offsets=np.array(offsets, np.int32).reshape(-1, sequence_length, 2),
        uncovered=sum(bool(question.answers) and i not in reached for i, question in enumerate(questions)),
    )


def _windows(length: int, room: int, stride: int) -> list[slice]:
    """Windows of a passage of `length` pieces; a single empty one if it has none."""
    windows = [slice(0, min(length, room))]
    while windows[-1].stop < length:
        start = windows[-1].start + min(stride, room)
        windows.append(slice(start, min(length, start + room)))
    return windows


def _with_marks(text, ids, starts, ends):
    """Pieces whose ends take what is after them and of no piece: marks, as where accents are stripped, and characters
    that are written as one with those before, as the jamo of a Hangul syllable are by NFKC.
    """
    ends = np.array(ends)
    for i, start in enumerate(starts):
        until = starts[i + 1] if i + 1 < len(starts) else len(text)
        while start < ends[i] < until and _goes_on(text[start : ends[i]], text[ends[i]]):
            ends[i] += 1
    return ids, starts, ends


def _goes_on(text, character):
    """Whether a character is a mark on a text before it, or composes with it."""
    if unicodedata.category(character).startswith("M"):
        return True
    alone = (unicodedata.normalize("NFKC", each) for each in (text, character))
    return unicodedata.normalize("NFKC", text + character) != "".join(alone)


def _pieces_of_answer(question, starts, ends) -> tuple[int, int] | None:
    """The first and the last piece that overlap the first answer; None if there are none."""
    if not question.answers:
        return None
    answer, start = question.answers[0], question.starts[0] if question.starts else -1
    if start < 0 or question.context[start : start + len(answer)] != answer:
        raise UserError(f"question {question.id}: answer {answer!r} is not at character {start} of the passage")
    covering = np.flatnonzero(np.maximum(starts, start) < np.minimum(ends, start + len(answer)))
    return (int(covering[0]), int(covering[-1])) if len(covering) else None


def _target(answer, window, begin) -> tuple[int, int]:
    """Positions of the answer's first and last piece in a window's row; 0 if the window does not have all of it."""
    if answer is None or answer[0] < window.start or answer[1] >= window.stop:
        return 0, 0
    shift = begin - window.start
    return answer[0] + shift, answer[1] + shift
