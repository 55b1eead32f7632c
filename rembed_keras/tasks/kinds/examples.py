"""Examples of tasks as text, before tokenization.

Three kinds are enough for GLUE, SuperGLUE and XTREME: texts or pairs with a label, words with tags, and questions that
a passage answers. A reader is a function that reads files and returns `Splits`; everything after it is the same for
every reader.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text, or a pair of texts, and its label.

    Attributes:
        id: the example's id in its files, or its index from 0.
        text: the first text.
        pair: the second text; None if there is none.
        label: a label's name, a number for regression, or None if it is unlabeled.
        group: id of the question that this is a candidate answer to; None if it is no candidate.
        answer: the candidate answer itself, where answers are compared as texts.
    """

    id: str
    text: str
    pair: str | None = None
    label: str | float | None = None
    group: str | None = None
    answer: str | None = None

    @property
    def target(self) -> str | float | None:
        """The right prediction: its label."""
        return self.label


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence of words, each with a tag.

    Attributes:
        id: the sentence's id in its files, or its index from 0.
        words: its N words.
        tags: N tags; None if it is unlabeled.
    """

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None

    @property
    def target(self) -> tuple[str, ...] | None:
        """The right prediction: its tags."""
        return self.tags


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a span of a passage answers.

    Attributes:
        id: the question's id in its files.
        question: the question.
        context: the passage.
        answers: the right answers, each as it stands in the passage; empty if it is unlabeled.
        starts: where each begins in the passage, in characters (code points) from 0.
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()


Example = Labelled | Tagged | Question


@dataclass(frozen=True, slots=True)
class Splits:
    """The examples of a task, all of one kind.

    Attributes:
        train: of the language that is trained on.
        dev: by language, or by the name of another part, such as "mismatched".
        test: by language or part; unlabeled ones are predicted for a submission.
        format: how a file of such examples is read, see `rembed_keras.tasks.formats.columns`; None for the task's
            default.
        train_language: the language of `train`; None if it is not known.
    """

    train: Sequence[Example]
    dev: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    test: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    format: Any = None
    train_language: str | None = field(default=None, kw_only=True)

    def by_place(self) -> dict[str, Sequence[Any]]:
        """The examples of every part, by what an error message calls it."""
        parts: dict[str, Sequence[Any]] = {"train": self.train}
        parts |= {f"dev of {language}": examples for language, examples in self.dev.items()}
        return parts | {f"test of {language}": examples for language, examples in self.test.items()}
