"""What fine-tuning and scoring need to know of a task, whatever its kind.

A task brings its examples, the model that learns them, the way from examples to arrays and from the model's outputs
back to answers, and the official metrics of those answers. `Classification`, `Regression`, `Candidates`, `Tagging` and
`QuestionAnswering` are its kinds.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import grain
import keras

from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.encoding import Encoded
from rembed_keras.tasks.kinds.examples import Splits

PARTS = ("test", "dev")


class Task:
    """Examples to learn and examples to be scored on.

    Args:
        name: what scores call the task; a slash makes folders.
        splits: the examples; None for a task that only answers.
        metrics: functions by the name of what they give, each of (right answers, answers) and into a number.
        train_language: the language of the training examples.
        part: which examples are scored: "test", or "dev" where the answers of the test are hidden.

    Attributes:
        scored: by language, the examples that are scored.
        choosing: development examples of the training language, to choose settings by.

    Raises:
        UserError: for a part that is unknown or without examples, or training examples without answers.
    """

    learns: Sequence[str] = ("accuracy",)  # what Keras measures while the task is learned

    def __init__(
        self,
        name: str,
        splits: Splits | None,
        metrics: Mapping[str, Callable],
        train_language: str = "en",
        part: str = "test",
    ):
        if part not in PARTS:
            raise UserError(f"task {name}: part is {part!r}; it can be test or dev")
        languages = [] if splits is None else [*splits.dev, *splits.test]
        for kind, parts in (("name of a task", name.split("/")), *(("language", [each]) for each in languages)):
            if any(each in ("", ".", "..") or not set(each).isdisjoint("/\0") for each in parts):
                raise UserError(f"{'/'.join(parts)!r} is no {kind}: files are called by it")
        self.name, self.metrics = name, dict(metrics)
        self.splits: Any = splits or Splits(())  # of the kind of example that the kind of task is made of
        self.train_language, self.part = train_language, part
        if splits is None:
            return
        self.scored: dict[str, list] = {
            language: self._known(examples) for language, examples in getattr(splits, part).items()
        }
        ours = splits.dev.get(train_language, ())
        self.choosing: list = self.scored.get(train_language, []) if part == "dev" else self._known(ours)
        empty = [language for language, examples in self.scored.items() if not examples]
        if empty or not self.scored:
            other = "; their answers are hidden: score part 'dev'" if part == "test" and splits.dev else ""
            raise UserError(f"task {name} has no {part} examples of {', '.join(empty) or 'any language'}{other}")
        if not splits.train or any(self.gold(example) is None for example in splits.train):
            raise UserError(f"task {name} has no training examples, or some without an answer")

    def _known(self, examples):
        """The examples whose answers are not hidden."""
        return [example for example in examples if self.gold(example) is not None]

    @property
    def metric_names(self) -> list[str]:
        """Names of what `score` gives, the first the one to choose settings by."""
        return list(self.metrics)

    def gold(self, example: Any) -> Any:
        """The right answer of an example; None where it is hidden."""
        raise NotImplementedError

    def check_labels(self, trained: Collection[str], known: Sequence[str], labels_of: Callable) -> None:
        """Raises `UserError` for a label that was never trained, or one in the examples that is not known."""
        if not self.splits.train:
            return
        missing = next((label for label in known if label not in trained), None)
        if missing is not None:
            raise UserError(f"task {self.name}: no training example has the label {missing!r}")
        for split, parts in (("dev", self.splits.dev), ("test", self.splits.test)):
            for language, examples in parts.items():
                for example in examples:
                    strange = next((label for label in labels_of(example) if label not in known), None)
                    if strange is not None:
                        raise UserError(
                            f"task {self.name}, {split} of {language}, example {example.id}: label {strange!r} is not "
                            "in the training data"
                        )

    def make_model(self, encoder, dropout: float) -> keras.Model:
        """The encoder with this task's head."""
        raise NotImplementedError

    def encode(
        self, examples: Sequence[Any], tokenizer: Tokenizer, sequence_length: int, num_segments: int = 2
    ) -> Encoded:
        """Examples as arrays, with targets where all answers are known."""
        raise NotImplementedError

    def answers(self, examples: Sequence[Any], encoded: Encoded, outputs) -> list:
        """What a model's outputs for `encoded` say of each example."""
        raise NotImplementedError

    def score(self, examples: Sequence[Any], answers: Sequence[Any], language: str) -> dict[str, float]:
        """The metrics of answers to examples whose right answers are known."""
        gold = [self.gold(example) for example in examples]
        return {name: float(metric(gold, answers)) for name, metric in self.metrics.items()}

    def correct(self, example: Any, answer: Any) -> float:
        """How right one answer is, from 0 to 1."""
        return float(self.gold(example) == answer)

    def baselines(self) -> dict[str, Callable[[Sequence[Any]], list]]:
        """Systems that need no encoder, by name: functions from examples to answers."""
        raise NotImplementedError

    def description(self) -> dict:
        """What is needed to answer new examples with a fine-tuned model, as JSON can say it."""
        return {"kind": type(self).__name__, "name": self.name}


def batches(encoded: Encoded, batch_size: int, seed: int) -> grain.MapDataset:
    """Training batches as a function of (seed, step): every row once in each pass, in another order each time.

    Args:
        encoded: rows with targets.
        batch_size: B.
        seed: of the orders.

    Returns:
        An endless dataset; `dataset[step]` is `(inputs, targets)`, or `(inputs, targets, weights)` where rows have
        weights, of B rows.
    """
    columns = tuple(each for each in (encoded.inputs, encoded.targets, encoded.weights) if each is not None)
    order = grain.MapDataset.range(len(encoded.rows)).seed(seed).shuffle().repeat().batch(batch_size)
    return order.map(lambda rows: keras.tree.map_structure(lambda column: column[rows], columns))
