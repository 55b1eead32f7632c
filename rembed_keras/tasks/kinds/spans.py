"""Extractive question answering: passages as overlapping windows, and predicted positions as text.

A passage that is too long for a row is read in overlapping windows. The targets of a window that has all of the answer
are the answer's first and last piece; those of any other window are [CLS]. Where the tokenizer's pieces do not begin
and end with the answer, as in scripts without spaces, the pieces that cover it are the target.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError
from rembed_keras.modeling import SpanExtractor
from rembed_keras.tasks.answers import exact_match, mlqa_normalize, mlqa_scores, squad_scores
from rembed_keras.tasks.formats.columns import QuestionFormat
from rembed_keras.tasks.kinds.encoding import Encoded, fill_rows
from rembed_keras.tasks.kinds.examples import Question, Splits
from rembed_keras.tasks.kinds.task import Task

Normalization: TypeAlias = Literal["squad", "mlqa"]


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


def decode_answers(
    logits: np.ndarray,
    windows: Windows,
    questions: Sequence[Question],
    max_answer_length: int = 30,
    n_best: int = 20,
) -> list[str]:
    """The answer to every question: a span of its passage, exactly as it stands there.

    A span scores the sum of its first and its last piece's logits. The best span over all windows is the answer; ties
    go to the first window, the shortest span, the first span. A span in two windows has the higher of its scores. No
    span begins or ends with a piece of spaces alone.

    Args:
        logits: [N, 2, S], of first and of last pieces, for every row.
        windows: the rows, from `encode_questions`.
        questions: the questions that they are of.
        max_answer_length: pieces of an answer.
        n_best: how many pieces of each window may begin a span, and how many may end one: those with the highest
            logits, and ties.

    Returns:
        An answer for each question; "" where no span is allowed.

    Raises:
        ValueError: for logits of other rows, or other questions.

    Source: BERT's release. It takes an answer only from the window where its first piece has most context; here any
    window counts, so that no answer is lost where windows are short.

    >>> offsets = np.array([[[0, 0], [0, 0], [0, 3], [4, 9]]])
    >>> windows = Windows({}, None, None, np.array([0]), truncated=0, lost=0, offsets=offsets, uncovered=0)
    >>> logits = np.array([[[9.0, 9.0, 0.0, 2.0], [9.0, 9.0, 2.0, 1.0]]])
    >>> decode_answers(logits, windows, [Question("1", "Where?", "the river")])
    ['river']
    """
    count, size = windows.offsets.shape[:2]
    if np.shape(logits) != (count, 2, size):
        raise ValueError(f"logits have shape {np.shape(logits)} for {count} windows of {size} tokens")
    if count and windows.rows[-1] + 1 != len(questions):
        raise ValueError(f"the windows are of {windows.rows[-1] + 1} questions, and there are {len(questions)}")
    is_text = windows.offsets[:, :, 0] < windows.offsets[:, :, 1]  # [N, S]
    first_logits, last_logits = (_best_of(np.asarray(logits)[:, i], is_text, n_best) for i in (0, 1))
    scores, firsts, lasts = _best_spans(first_logits, last_logits, max_answer_length)
    answers, best = [""] * len(questions), np.full(len(questions), -np.inf)
    for row, number in enumerate(windows.rows):
        if scores[row] > best[number]:
            start, end = windows.offsets[row, firsts[row], 0], windows.offsets[row, lasts[row], 1]
            best[number], answers[number] = scores[row], questions[number].context[start:end]
    return answers


def _windows(length: int, room: int, stride: int) -> list[slice]:
    """Windows of a passage of `length` pieces; a single empty one if it has none."""
    windows = [slice(0, min(length, room))]
    while windows[-1].stop < length:
        start = windows[-1].start + min(stride, room)
        windows.append(slice(start, min(length, start + room)))
    return windows


def _with_marks(text, ids, starts, ends):
    """Pieces whose ends take the combining marks after them that belong to no piece, as where accents are stripped."""
    ends = np.array(ends)
    for i, start in enumerate(starts):
        until = starts[i + 1] if i + 1 < len(starts) else len(text)
        while start < ends[i] < until and unicodedata.category(text[ends[i]]).startswith("M"):
            ends[i] += 1
    return ids, starts, ends


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


def _best_of(logits, allowed, n_best):
    """Logits of the best of the allowed positions of each row, and -inf elsewhere: [N, S] -> [N, S]."""
    logits = np.where(allowed, logits, -np.inf)
    worst = -min(n_best, logits.shape[1])
    return np.where(logits >= np.partition(logits, worst, axis=1)[:, [worst]], logits, -np.inf)


def _best_spans(first_logits, last_logits, max_length):
    """For each row the highest sum of both, and where its span begins and ends: [N, S], [N, S] -> [N], [N], [N]."""
    count, size = first_logits.shape
    every = np.arange(count)
    scores, firsts, lasts = np.full(count, -np.inf), np.zeros(count, int), np.zeros(count, int)
    for distance in range(min(max_length, size)):
        sums = first_logits[:, : size - distance] + last_logits[:, distance:]
        places = sums.argmax(axis=1)
        better = sums[every, places] > scores
        scores = np.where(better, sums[every, places], scores)
        firsts = np.where(better, places, firsts)
        lasts = np.where(better, places + distance, lasts)
    return scores, firsts, lasts


class QuestionAnswering(Task):
    """Extractive question answering: a span of a passage that answers a question.

    Args:
        name: as in `Task`.
        splits: examples of `Question`.
        normalization: of answers in scoring: "squad", the same in all languages, as in SQuAD, XQuAD and TyDiQA; or
            "mlqa", by language.
        stride: tokens between the beginnings of two windows of a passage.
        max_answer_length: word pieces of an answer.
        train_language: as in `Task`.
        part: as in `Task`.

    Raises:
        UserError: for an unknown normalization, or one that the languages which are scored do not have.
    """

    takes = "questions about passages"
    format = QuestionFormat

    def __init__(
        self,
        name: str,
        splits: Splits | None,
        normalization: Normalization = "squad",
        stride: int = 128,
        max_answer_length: int = 30,
        train_language: str = "en",
        part: str = "test",
    ):
        if normalization not in get_args(Normalization):
            raise UserError(f"task {name}: normalization is {normalization!r}; it can be squad or mlqa")
        self.normalization, self.stride, self.max_answer_length = normalization, stride, max_answer_length
        super().__init__(name, splits, {}, train_language, part)
        if splits is not None and normalization == "mlqa":
            for language in self.scored:
                mlqa_normalize("", language)

    @property
    def metric_names(self):
        return ["exact_match", "f1"]

    def fits(self, example):
        return isinstance(example, Question)

    def gold(self, example):
        return example.answers or None

    def make_model(self, encoder, dropout):
        return SpanExtractor(encoder)

    def encode(self, examples, tokenizer, sequence_length, num_segments=2):
        lengths = self.preprocessing(sequence_length)
        return encode_questions(examples, tokenizer, sequence_length, **lengths, num_segments=num_segments)

    def preprocessing(self, sequence_length):
        longest = min(64, sequence_length // 3)
        return {"stride": min(self.stride, sequence_length // 2), "max_question_length": longest}

    def answers(self, examples, encoded, outputs):
        return decode_answers(outputs, encoded, examples, self.max_answer_length)

    def score(self, examples, answers, language):
        right = [example.answers for example in examples]
        if self.normalization == "mlqa":
            return mlqa_scores(answers, right, language)
        return squad_scores(answers, right)

    def correct(self, example, answer):
        """1 for an exact match after SQuAD's normalisation."""
        return exact_match(answer, example.answers)

    def baselines(self):
        return {"first": lambda examples: [" ".join(example.context.split()[:3]) for example in examples]}

    def description(self):
        return super().description() | {
            "stride": self.stride,
            "max_answer_length": self.max_answer_length,
        }
