"""What a task is made of: examples as they stand in files, before any tokenizer has seen them.

Three kinds are enough for GLUE, SuperGLUE and XTREME: texts or pairs with a label, words with tags, and questions that
a passage answers. A source is a function that reads files and returns `Splits`; everything after it is the same for
every source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text, or a pair of texts, and what is to be said of it.

    Attributes:
        id: the example's name in its files, or its number from 0.
        text: the first text.
        pair: the second text; None if there is none.
        label: a label's name, a number where numbers are predicted, or None where it is hidden.
        group: the question that this is one of the possible answers to; None if it stands for itself.
        answer: the possible answer itself, where answers are compared as texts.
    """

    id: str
    text: str
    pair: str | None = None
    label: str | float | None = None
    group: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence of words, each with a tag.

    Attributes:
        id: the sentence's name in its files, or its number from 0.
        words: its N words.
        tags: N tags; None where they are hidden.
    """

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a stretch of a passage answers.

    Attributes:
        id: the question's name in its files.
        question: the question.
        context: the passage.
        answers: the right answers, each as it stands in the passage; empty where they are hidden.
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
        test: by language or part; where answers are hidden, to be predicted and handed in.
        format: how a file of such examples is read, one of `rembed_keras.tasks.formats`; None for the task's default.
    """

    train: Sequence[Example]
    dev: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    test: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    format: Any = None
