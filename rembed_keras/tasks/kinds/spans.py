"""Extractive question answering: predicted positions as text, and the task; see `windows` for what is read."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeAlias, get_args

import numpy as np

from rembed_keras.errors import Count, UserError, check_counts
from rembed_keras.modeling import SpanExtractor
from rembed_keras.tasks.answers import exact_match, mlqa_normalize, mlqa_scores, squad_scores
from rembed_keras.tasks.formats.columns import QuestionFormat
from rembed_keras.tasks.kinds.examples import Question, Splits
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.tasks.kinds.windows import Windows, encode_questions

Normalization: TypeAlias = Literal["squad", "mlqa"]


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
        UserError: for an unknown normalization, or one that the languages which are scored do not have, and for a
            length that is not positive.
    """

    takes_dropout = False  # as BERT's head for spans
    takes = "questions about passages"
    format = QuestionFormat

    def __init__(
        self,
        name: str,
        splits: Splits | None,
        normalization: Normalization = "squad",
        stride: Count = 128,
        max_answer_length: Count = 30,
        train_language: str | None = None,
        part: str = "test",
    ):
        if normalization not in get_args(Normalization):
            raise UserError(f"task {name}: normalization is {normalization!r}; it can be squad or mlqa")
        check_counts({f"task {name}: stride": stride, f"task {name}: max_answer_length": max_answer_length})
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

    def correct_in(self, example, answer, language):
        """1 for an exact match after the task's normalisation in a language."""
        if self.normalization == "mlqa":
            return exact_match(answer, example.answers, partial(mlqa_normalize, language=language))
        return self.correct(example, answer)

    def baselines(self):
        return {"first": lambda examples: [" ".join(example.context.split()[:3]) for example in examples]}

    def description(self):
        return super().description() | {
            "stride": self.stride,
            "max_answer_length": self.max_answer_length,
        }
