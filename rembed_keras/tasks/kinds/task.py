"""The interface of a task for fine-tuning and scoring.

A task brings its examples, its model, the encoding of examples as arrays, the decoding of outputs into predictions
(`answers`), and the official metrics of those. `Classification`, `Regression`, `Candidates`, `Tagging` and
`QuestionAnswering` are its kinds.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import keras

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError, first_line, shortened
from rembed_keras.tasks.formats.columns import Format
from rembed_keras.tasks.kinds.encoding import Encoded
from rembed_keras.tasks.kinds.examples import Splits

PARTS = ("test", "dev")
DROPOUT = 0.1  # before a head, as in BERT


class Task:
    """A task with training examples and examples to score.

    Args:
        name: the task's name in scores; a slash makes folders.
        splits: the examples; None for a task that only predicts.
        metrics: functions by metric name, each of (labels, predictions) with a number as result, higher for better
            predictions: by the first one learning rates are chosen. An error is given as its negative. Where a
            prediction is a label, they are tried before a model is trained, on labels as their own predictions.
        train_language: the language of the training examples; by default what `splits` say, else "en".
        part: which examples are scored: "test", or "dev" where the test set is unlabeled.

    Attributes:
        scored: by language, the examples that are scored: those with a label.
        validation: development examples of the training language, for model selection.

    Raises:
        UserError: for another training language than that of the splits, an unknown part or one without examples,
            examples of another kind, two that are scored and have the same id, or unlabeled training examples.
    """

    training_metrics: Sequence[str] = ("accuracy",)  # Keras metrics that are logged during fine-tuning
    takes_dropout = True  # whether `make_model` puts dropout before the head
    takes: str = "examples of its own kind"  # what `fits` is true of, for an error message
    format: type[Format] | None = None  # of files that a model of it can answer

    def __init__(
        self,
        name: str,
        splits: Splits | None,
        metrics: Mapping[str, Callable],
        train_language: str | None = None,
        part: str = "test",
    ):
        if part not in PARTS:
            raise UserError(f"task {name}: part is {part!r}; it can be test or dev")
        languages = [] if splits is None else [*splits.dev, *splits.test]
        for kind, parts in (("name of a task", name.split("/")), *(("language", [each]) for each in languages)):
            if any(each in ("", ".", "..") or not set(each).isdisjoint("/\0") for each in parts):
                raise UserError(f"{'/'.join(parts)!r} is not a valid {kind}: files are named by it")
        self.name, self.metrics = name, dict(metrics)
        self.splits: Any = splits or Splits(())  # of the kind of example that the kind of task is made of
        self.train_language, self.part = self._training_language(train_language), part
        self.scored: dict[str, list] = {}
        if splits is None:
            return
        self._check_kind(splits)
        self.scored = {language: self._labeled(examples) for language, examples in getattr(splits, part).items()}
        ours = splits.dev.get(self.train_language, ())
        self.validation: list = self.scored.get(self.train_language, []) if part == "dev" else self._labeled(ours)
        empty = [language for language, examples in self.scored.items() if not examples]
        if empty or not self.scored:
            other = "; score the development set, part 'dev'" if part == "test" and splits.dev else ""
            where = ", ".join(empty) or "any language"
            raise UserError(f"task {name} has no labeled {part} examples of {where}{other}")
        for language, examples in self.scored.items():
            self._check_ids(language, examples)
        if not splits.train or any(self.gold(example) is None for example in splits.train):
            raise UserError(f"task {name} has no training examples, or some are unlabeled")

    def _training_language(self, given):
        known = self.splits.train_language
        if given and known and given != known:
            raise UserError(
                f"task {self.name}: train_language is {given!r}, and its examples train in {known!r}: leave it out here"
            )
        return given or known or "en"

    def _check_kind(self, splits):
        """Raises `UserError` for an example of another kind."""
        for place, examples in splits.by_place().items():
            strange = next((example for example in examples if not self.fits(example)), None)
            if strange is not None:
                raise UserError(f"task {self.name} takes {self.takes}; {place} has {shortened(strange)}")

    def _check_ids(self, language, examples):
        """Raises `UserError` for two examples of one id, whose predictions could not be told apart."""
        seen: set[Any] = set()
        for example in examples:
            name = getattr(example, "id", None)
            if name is not None and name in seen:
                raise UserError(
                    f"task {self.name}, {self.part} of {language}: two examples have the id {shortened(name)}; give "
                    "each its own"
                )
            seen.add(name)

    def fits(self, example: Any) -> bool:
        """Whether an example is of the kind that the task takes, its label too if it has one."""
        return True

    def _labeled(self, examples):
        """The labeled examples."""
        return [example for example in examples if self.gold(example) is not None]

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics of `score`; the first is for model selection."""
        return list(self.metrics)

    def gold(self, example: Any) -> Any:
        """The label or reference of an example; None if it is unlabeled."""
        raise NotImplementedError

    def check_labels(self, trained: Collection[str], known: Sequence[str], labels_of: Callable) -> None:
        """Raises `UserError` for a known label twice or without training examples, or an unknown one in examples."""
        if not self.splits.train:
            return
        names = Counter(known)
        twice = next((label for label, count in names.items() if count > 1), None)
        if twice is not None:
            raise UserError(f"task {self.name}: the label {twice!r} is named twice")
        missing = next((label for label in known if label not in trained), None)
        if missing is not None:
            raise UserError(f"task {self.name}: no training example has the label {missing!r}")
        unnamed = min(set(trained) - set(names), default=None)
        if unnamed is not None:
            raise UserError(
                f"task {self.name}: training examples have the label {unnamed!r}, which is not among those that are "
                f"named, {', '.join(map(repr, known))}: name it, or leave them out"
            )
        for place, examples in self.splits.by_place().items():
            for example in examples:
                strange = next((label for label in labels_of(example) if label not in names), None)
                if strange is not None:
                    where = f"{place}, example {example.id}"
                    raise UserError(f"task {self.name}, {where}: label {strange!r} is not in the training data")

    def head_dropout(self, given: float | None) -> float:
        """The rate before the head that `make_model` is given.

        Args:
            given: what a recipe says; None for the default.

        Raises:
            UserError: for a rate before a head that takes none.
        """
        if given and not self.takes_dropout:
            raise UserError(
                f"finetune/{self.name}: dropout is {given}, and {type(self).__name__} has none before its head: leave "
                "dropout out"
            )
        return DROPOUT if given is None else given

    def make_model(self, encoder, dropout: float) -> keras.Model:
        """The encoder with this task's head."""
        raise NotImplementedError

    def model_settings(self) -> dict[str, Any]:
        """Settings of the head, as JSON has them: models of others are not taken for this task's."""
        return {}

    def encode(
        self, examples: Sequence[Any], tokenizer: AnyTokenizer, sequence_length: int, num_segments: int = 2
    ) -> Encoded:
        """Examples as arrays, with targets if all are labeled."""
        raise NotImplementedError

    def preprocessing(self, sequence_length: int) -> dict[str, Any]:
        """Arguments with which a preprocessor, of the model's kind, encodes as `encode` does, besides that length."""
        return {}

    def answers(self, examples: Sequence[Any], encoded: Encoded, outputs) -> list:
        """The prediction for each example, decoded from a model's outputs for `encoded`."""
        raise NotImplementedError

    def score(self, examples: Sequence[Any], answers: Sequence[Any], language: str) -> dict[str, float]:
        """The metrics of predictions for labeled examples."""
        return self.measured([self.gold(example) for example in examples], answers)

    def measured(self, gold: Any, answers: Any) -> dict[str, float]:
        """Every metric of predictions.

        Args:
            gold: the labels of N examples, as metrics take them.
            answers: as many predictions.

        Raises:
            UserError: for a metric that cannot be computed of them.
        """
        values = {}
        for name, metric in self.metrics.items():
            try:
                values[name] = float(metric(gold, answers))
            except Exception as error:  # of a metric that may be anyone's
                said = first_line(error)
                raise UserError(f"task {self.name}: the metric {name!r} cannot be computed: {said}") from error
        return values

    def check_metrics(self) -> None:
        """Tries the metrics on the labels of a language, taken for predictions, before a model is trained for them.

        It is left out where a prediction is something else than the label of an example, as a span of a passage is.

        Raises:
            UserError: for a metric that cannot be computed of them.
        """
        language, examples = next(iter(self.scored.items()), ("", []))
        if examples and all(self.gold(example) is getattr(example, "target", None) for example in examples):
            self.score(examples, [self.gold(example) for example in examples], language)

    def correct(self, example: Any, answer: Any) -> float:
        """The score of one prediction, from 0 to 1."""
        return float(self.gold(example) == answer)

    def correct_in(self, example: Any, answer: Any, language: str) -> float:
        """As `correct`, where it depends on the language."""
        return self.correct(example, answer)

    def predictions(self, examples: Sequence[Any], answers: Sequence[Any], language: str) -> list[dict[str, Any]]:
        """What is kept of predictions for labeled examples, a row for each that counts once in a score.

        Args:
            examples: the examples.
            answers: the prediction for each.
            language: that of the examples.

        Returns:
            Rows with `id`, `answer`, and `correct`, a score from 0 to 1.
        """
        return [
            {"id": getattr(each, "id", str(i)), "answer": answer, "correct": self.correct_in(each, answer, language)}
            for i, (each, answer) in enumerate(zip(examples, answers, strict=True))
        ]

    def count(self, examples: Sequence[Any], metric: str) -> int:
        """How many examples a metric counts, or questions, where several examples are one."""
        return len(examples)

    def baselines(self) -> dict[str, Callable[[Sequence[Any]], list]]:
        """Encoder-free baselines by name: functions from examples to predictions."""
        raise NotImplementedError

    def one_each(self, examples: Sequence[Any], answers: Any, system: str = "the model") -> Any:
        """The predictions for examples, if they are as many, as those of a task or a baseline of one's own may not be.

        Args:
            examples: the examples.
            answers: what should be a prediction for each.
            system: what gave them, for the message.

        Raises:
            UserError: if there are more or fewer, or none.
        """
        if not hasattr(answers, "__len__") or len(answers) != len(examples):
            many = f"{len(examples)} examples"
            raise UserError(f"task {self.name}: {system} answers {many} by {shortened(answers)}; it must be one each")
        return answers

    def baselines_beside(self, systems: Collection[str]) -> dict[str, Callable[[Sequence[Any]], Any]]:
        """The baselines, which are scored beside other systems, by name.

        Args:
            systems: names of those.

        Raises:
            UserError: for what is no dictionary of functions, a baseline of the name of another system, and, once
                asked, as `one_each`.
        """
        baselines = self.baselines()
        if not isinstance(baselines, Mapping) or not all(map(callable, baselines.values())):
            raise UserError(f"task {self.name}: baselines gives {shortened(baselines)}; it must be functions by name")
        if taken := sorted(baselines.keys() & {*systems}):
            raise UserError(f"task {self.name}: a baseline is called {taken[0]!r}, as an encoder is: rename it")
        return {name: partial(self._asked, name, answer) for name, answer in baselines.items()}

    def _asked(self, name, answer, examples):
        """What a baseline says to examples."""
        return self.one_each(examples, answer(examples), f"the baseline {name!r}")

    def description(self) -> dict:
        """What prediction needs besides the model, as JSON values: arguments of the task's class, and `kind`."""
        module, name = type(self).__module__, type(self).__name__
        said = {"kind": name if module.startswith("rembed_keras.") else f"{module}.{name}", "name": self.name}
        return said if self.format is None else said | {"format": asdict(self.format.of(self.splits))}
