"""How a file of new examples is read for prediction, when only the fine-tuned model is left.

A recipe names the columns of its files once. A reader passes them on with its examples, fine-tuning stores them in
`task.json`, and a file for prediction is read by the same columns as the training data. Labels and tags are ignored.
"""

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from rembed_keras.errors import UserError, shortened
from rembed_keras.tasks.formats.lines import field, place_of, read_named
from rembed_keras.tasks.formats.questions import read_questions
from rembed_keras.tasks.formats.sentences import read_untagged
from rembed_keras.tasks.kinds.examples import Labelled, Question, Splits, Tagged


@dataclass(frozen=True)
class Format:
    """How a file is read; by default a format without named columns."""

    @classmethod
    def of(cls, splits: Splits) -> Self:
        """The format of the files that examples were read from, or the default if it is not known."""
        return splits.format or cls()

    def named(self, text: str | None = None, pair: str | None = None) -> Self:
        """A copy with other columns.

        Raises:
            UserError: for a column that the format, or the task, does not have.
        """
        name = text if pair is None else pair
        if name is not None:
            raise UserError(f"the task reads files without named columns: leave out {name}")
        return self

    def read(self, path: str | Path) -> Iterable[Any]:
        """The examples of a file, labeled or not.

        Raises:
            UserError: naming file and line, for what cannot be read.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class TextFormat(Format):
    """Texts, or pairs of texts, in tables with a header, in JSON lines and in Parquet.

    Attributes:
        text: name of the column with the first text.
        pair: that of the second text.
        id: that of the examples' ids, if a file has it; else ids are line numbers.
        delimiter: between the cells of a table; by default as the file name's ending says.
        pairs: whether every example has a second text (True) or none has (False); None if some have, or if unknown.
    """

    text: str = "text"
    pair: str = "pair"
    id: str = "id"
    delimiter: str | None = None
    pairs: bool | None = None

    @classmethod
    def of(cls, splits: Splits) -> Self:
        """The format of `Labelled` examples, which show whether they are pairs."""
        examples: Sequence[Any] = splits.train
        paired = {example.pair is not None for example in examples}
        return replace(super().of(splits), pairs=paired.pop() if len(paired) == 1 else None)

    def named(self, text: str | None = None, pair: str | None = None) -> Self:
        """A copy with other columns; a second text that is named must be there."""
        if pair is not None and self.pairs is False:
            raise UserError(f"the task was fine-tuned on single texts, not on pairs: leave out the pair, {pair}")
        text, pairs = self.text if text is None else text, self.pairs if pair is None else True
        return replace(self, text=text, pair=self.pair if pair is None else pair, pairs=pairs)

    def read(self, path: str | Path) -> Iterator[Labelled]:
        """Yields the examples of a file one by one, without their labels."""
        needed = [self.text, self.pair] if self.pairs else [self.text]
        optional = [self.id] if self.pairs is False else [self.id, self.pair]
        for number, row in read_named(path, self.delimiter, needed, optional):
            place = place_of(path, number)
            name = row.get(self.id)
            is_pair = self.pair in row if self.pairs is None else self.pairs
            yield Labelled(
                str(number if name is None else name),
                field(row, self.text, str, place),
                field(row, self.pair, str, place) if is_pair else None,
            )


@dataclass(frozen=True)
class WordFormat(Format):
    """Words, one a line in files of the CoNLL kind, or a list a row; see `read_untagged`.

    Attributes:
        word_column: where the word is, from 0, or the name of the list.
        separator: between columns.
    """

    word_column: int | str | None = None
    separator: str | None = None

    def read(self, path: str | Path) -> Sequence[Tagged]:
        """The sentences of a file, with or without tags, which are ignored."""
        return read_untagged(path, self.word_column, self.separator)


@dataclass(frozen=True)
class QuestionFormat(Format):
    """Questions in files of SQuAD's format, JSON lines or Parquet; see `read_questions`."""

    def read(self, path: str | Path) -> Sequence[Question]:
        """The questions of a file, with answers or without."""
        return read_questions(path, unlabeled=True)


def parse_format(kind: type[Format], value: Any, place: object) -> Format:
    """A format as `task.json` has it.

    Args:
        kind: its class.
        value: an object of JSON.
        place: where it is from, to begin an error message with.

    Raises:
        UserError: for another value.

    >>> parse_format(WordFormat, {"word_column": 1, "separator": None}, "task.json")
    WordFormat(word_column=1, separator=None)
    """
    kinds = typing.get_type_hints(kind)
    if not isinstance(value, dict) or not all(key in kinds and _is_of(each, kinds[key]) for key, each in value.items()):
        raise UserError(f"{place}: format is {shortened(value)}, which names no columns: fine-tune again")
    return kind(**{key: tuple(each) if _is_tuple(kinds[key]) else each for key, each in value.items()})


def _is_tuple(kind):
    return getattr(kind, "__name__", None) == "tuple"  # of tuple[str, ...] too


def _is_of(value, kind):
    """Whether a value of JSON, in which tuples are lists, is of a field's type."""
    try:
        return isinstance(value, list if _is_tuple(kind) else kind)
    except TypeError:  # of a type with parts, as list[str], which a format of one's own may have
        return True
