"""Classification and regression of texts and pairs of texts, and multiple choice.

Where a question has several candidate answers, as in MultiRC, COPA and ReCoRD, each candidate is an example of its own
that is true or false, and the most probable candidate of a question is its answer.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from numbers import Real
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Regressor
from rembed_keras.modeling.heads.classification import Pooling
from rembed_keras.tasks import answers as texts_of_answers
from rembed_keras.tasks import metrics as official
from rembed_keras.tasks.baselines import tfidf_classifier
from rembed_keras.tasks.formats.columns import TextFormat
from rembed_keras.tasks.kinds.encoding import encode_pairs
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.tasks.kinds.task import Task

Scoring: TypeAlias = Literal["choice", "each", "text"]


class Classification(Task):
    """One of several labels for a text or a pair.

    Args:
        name: as in `Task`.
        splits: examples of `Labelled`, with label names.
        metrics: as in `Task`; of label ids.
        labels: names in the order of their ids; those of the training examples, sorted, by default.
        train_language: as in `Task`.
        part: as in `Task`.
        pooling: what of the encoder the head reads, "first" or "mean"; see `modeling.Classifier`.

    Attributes:
        labels: names; a label's id is its index.

    Raises:
        UserError: for fewer than two labels, one that is named twice or is not in the training data, or one of an
            example that is unknown.
    """

    takes = "texts whose labels are names"
    format: type[TextFormat] | None = TextFormat

    def __init__(
        self,
        name: str,
        splits: Splits | None,
        metrics: Mapping[str, Callable] | None = None,
        labels: Sequence[str] | None = None,
        train_language: str | None = None,
        part: str = "test",
        pooling: Pooling = "first",
    ):
        self.pooling = pooling
        super().__init__(name, splits, metrics or {"accuracy": official.accuracy}, train_language, part)
        trained = {example.label for example in self.splits.train}
        self.labels = sorted(trained) if labels is None else list(labels)
        if len(self.labels) < 2:
            raise UserError(f"task {name}: the training data has one class; there must be two or more")
        self.check_labels(trained, self.labels, lambda example: () if example.label is None else (example.label,))
        self._ids = {label: number for number, label in enumerate(self.labels)}

    def fits(self, example):
        return isinstance(example, Labelled) and isinstance(example.label, str | None)

    def gold(self, example):
        return example.label

    def make_model(self, encoder, dropout):
        return Classifier(encoder, len(self.labels), dropout, pooling=self.pooling)

    def model_settings(self):
        return {"pooling": self.pooling}

    def encode(self, examples, tokenizer, sequence_length, num_segments=2):
        known = all(example.label is not None for example in examples)
        targets = np.array([self._ids[example.label] for example in examples], np.int32) if known else None
        return encode_pairs(examples, tokenizer, sequence_length, targets, num_segments)

    def answers(self, examples, encoded, outputs):
        return [self.labels[number] for number in np.argmax(outputs, axis=-1)]

    def score(self, examples, answers, language):
        gold, guesses = (
            np.array([self._ids[label] for label in labels]) for labels in ([e.label for e in examples], answers)
        )
        return self.measured(gold, guesses)

    def baselines(self):
        labels = [self._ids[example.label] for example in self.splits.train]
        most = self.labels[np.bincount(labels).argmax()]
        linear = tfidf_classifier([joined(example) for example in self.splits.train], np.array(labels))
        return {
            "tfidf": lambda examples: [self.labels[i] for i in linear.predict([joined(e) for e in examples])],
            "majority": lambda examples: [most] * len(examples),
        }

    def description(self):
        return super().description() | {"labels": self.labels}


class Regression(Task):
    """A number for a text or a pair.

    Args:
        name: as in `Task`.
        splits: examples of `Labelled`, with numbers as labels.
        metrics: as in `Task`; Pearson's and Spearman's correlation by default.
        train_language: as in `Task`.
        part: as in `Task`.
    """

    training_metrics = ()
    takes = "texts whose labels are numbers, read with numeric=True"
    format = TextFormat

    def __init__(
        self,
        name: str,
        splits: Splits | None,
        metrics: Mapping[str, Callable] | None = None,
        train_language: str | None = None,
        part: str = "test",
    ):
        both = {"pearson": official.pearson, "spearman": official.spearman}
        super().__init__(name, splits, metrics or both, train_language, part)
        labels = [example.label for example in self.splits.train]
        self._width = (max(labels) - min(labels) if labels else 0.0) or 1.0  # of the labels' range

    def fits(self, example):
        is_text = isinstance(example, Labelled) and not isinstance(example.label, bool)
        return is_text and isinstance(example.label, Real | None)

    def gold(self, example):
        return example.label

    def make_model(self, encoder, dropout):
        return Regressor(encoder, dropout)

    def encode(self, examples, tokenizer, sequence_length, num_segments=2):
        known = all(example.label is not None for example in examples)
        targets = np.array([example.label for example in examples], np.float32) if known else None
        return encode_pairs(examples, tokenizer, sequence_length, targets, num_segments)

    def answers(self, examples, encoded, outputs):
        return [float(number) for number in outputs]

    def correct(self, example, answer):
        """One minus the absolute error, relative to the range of the training labels; at least 0."""
        return max(0.0, 1.0 - abs(example.label - answer) / self._width)

    def baselines(self):
        mean = float(np.mean([example.label for example in self.splits.train]))
        return {"mean": lambda examples: [mean] * len(examples)}


class Candidates(Classification):
    """Multiple choice: candidates that are "true" or "false", several to a question.

    Args:
        name: as in `Task`.
        splits: examples of `Labelled` with `group`, and with `answer` for the scoring "text".
        scoring: "choice", accuracy of the most probable candidate (COPA); "each", F1 over all candidates and the share
            of questions without an error (MultiRC); "text", exact match and F1 of the most probable text (ReCoRD).
        train_language: as in `Task`.
        part: as in `Task`.

    Raises:
        UserError: for an unknown scoring, or an example to score without what it asks for.
    """

    takes = 'texts whose labels are "true" or "false"'
    format = None  # there is no file of one's own with questions and their candidates

    def __init__(
        self,
        name: str,
        splits: Splits | None,
        scoring: Scoring = "choice",
        train_language: str | None = None,
        part: str = "test",
    ):
        if scoring not in get_args(Scoring):
            raise UserError(f"task {name}: scoring is {scoring!r}; it can be choice, each or text")
        super().__init__(name, splits, None, ("false", "true"), train_language, part)
        self.scoring = scoring
        asked = ("group", "answer") if scoring == "text" else ("group",)
        for example in chain(*self.splits.dev.values(), *self.splits.test.values()):
            if (lacking := next((field for field in asked if getattr(example, field) is None), None)) is not None:
                raise UserError(
                    f"task {name}: example {example.id} has no {lacking}, which scoring {scoring!r} of candidates "
                    "needs: give every example one, or make the task a Classification"
                )
        for examples in chain(self.splits.dev.values(), self.splits.test.values()) if scoring == "text" else ():
            right = _right_texts([example for example in examples if example.label is not None])
            if (group := next((group for group, texts in right.items() if not texts), None)) is not None:
                raise UserError(f"task {name}: question {group} has no candidate that is true, which 'text' needs")

    @property
    def metric_names(self):
        return {"choice": ["accuracy"], "each": ["f1a", "exact_match"], "text": ["exact_match", "f1"]}[self.scoring]

    def description(self):
        return Task.description(self) | {"scoring": self.scoring}

    def answers(self, examples, encoded, outputs):
        margin = outputs[:, 1] - outputs[:, 0]
        if self.scoring == "each":
            return ["true" if each > 0 else "false" for each in margin]
        best = {examples[i].group: i for i in np.argsort(margin, kind="stable")}
        return ["true" if best[example.group] == i else "false" for i, example in enumerate(examples)]

    def score(self, examples, answers, language):
        gold, guesses = (
            [int(label == "true") for label in labels] for labels in ([e.label for e in examples], answers)
        )
        groups = [example.group for example in examples]
        if self.scoring == "each":
            exact = official.exact_match_by_question(groups, gold, guesses)
            return {"f1a": official.binary_f1(gold, guesses), "exact_match": exact}
        chosen = {group: i for i, group in enumerate(groups) if guesses[i]}
        if self.scoring == "choice":
            return {"accuracy": float(np.mean([gold[i] for i in chosen.values()]))}
        right = _right_texts(examples)
        predictions = [examples[i].answer for i in chosen.values()]
        return texts_of_answers.squad_scores(predictions, [right[group] for group in chosen])

    def predictions(self, examples, answers, language):
        """A row for each question, with the question's id, and the prediction for each of its candidates by their ids.

        The answer is the text of the candidate that was chosen, or those of all that were; the id where it has none.
        """
        right = _right_texts(examples)
        questions: dict[Any, list[tuple[Labelled, str]]] = {}
        for example, answer in zip(examples, answers, strict=True):
            questions.setdefault(example.group, []).append((example, answer))
        rows = []
        for group, candidates in questions.items():
            chosen = [example for example, answer in candidates if answer == "true"]
            texts = [example.id if example.answer is None else example.answer for example in chosen]
            if self.scoring == "each":
                correct = float(all(example.label == answer for example, answer in candidates))
            elif self.scoring == "choice":
                correct = float(chosen[0].label == "true")
            else:
                correct = texts_of_answers.exact_match(texts[0], right[group])
            said = {example.id: answer for example, answer in candidates}
            answer = texts if self.scoring == "each" else texts[0]
            rows.append({"id": group, "answer": answer, "correct": correct, "candidates": said})
        return rows

    def count(self, examples, metric):
        """How many questions; candidates for F1a, which counts each."""
        return len(examples) if metric == "f1a" else len({example.group for example in examples})

    def baselines(self):
        linear = super().baselines()["tfidf"]
        first = {"first": _firsts}
        return first | ({"tfidf": linear} if self.scoring == "each" else {})


def _right_texts(examples: Sequence[Labelled]) -> dict[Any, list[Any]]:
    """The texts of the right candidates of every question, by its id."""
    right: dict[Any, list[Any]] = {example.group: [] for example in examples}
    for example in examples:
        if example.label == "true":
            right[example.group].append(example.answer)
    return right


def _firsts(examples: Sequence[Labelled]):
    """Baseline: the first candidate of every question is true."""
    seen: set = set()
    answers = []
    for example in examples:
        answers.append("false" if example.group in seen else "true")
        seen.add(example.group)
    return answers


def joined(example: Labelled) -> str:
    """A text, or a pair joined by a space, for linear models."""
    return example.text if example.pair is None else f"{example.text} {example.pair}"
