"""How a file of examples is read when there is nothing but a fine-tuned model left to answer it.

A recipe says once which columns its files have. A source hands that on with its examples, fine-tuning keeps it in
`task.json`, and a file that is answered later is read as those were that were learnt: nobody has to say it again, and
no other column is taken for a text. Labels and tags are not looked at.
"""

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from rembed_keras.errors import UserError, shortened
from rembed_keras.tasks.formats.lines import field, read_named
from rembed_keras.tasks.formats.readers import read_squad, read_words
from rembed_keras.tasks.kinds.examples import Labelled, Question, Splits, Tagged


class Format:
    """How a file is read; a file without names of columns has only one way."""

    @classmethod
    def of(cls, splits: Splits) -> Self:
        """The format of the files that some examples are from, as far as it is known."""
        return splits.format or cls()

    def named(self, text: str | None = None, pair: str | None = None) -> Self:
        """The same with other columns.

        Raises:
            UserError: for a column that files of the format, or of the task, do not have.
        """
        name = text if pair is None else pair
        if name is not None:
            raise UserError(f"the task reads files without names of columns: leave out {name}")
        return self

    def read(self, path: str | Path) -> Iterable[Any]:
        """The examples of a file, their answers hidden or not.

        Raises:
            UserError: naming file and line, for what cannot be read.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class TextFormat(Format):
    """Texts, or pairs of texts, in tables with a header and in JSON lines.

    Attributes:
        text: name of the column with the first text.
        pair: that of the second text.
        id: that of the examples' names, if a file has it; else they are called by their line's number.
        delimiter: what is between the cells of a table; by default what the file's name says.
        pairs: whether every example has a second text (True) or none has (False); None if some have, or nobody knows.
    """

    text: str = "text"
    pair: str = "pair"
    id: str = "id"
    delimiter: str | None = None
    pairs: bool | None = None

    @classmethod
    def of(cls, splits: Splits) -> Self:
        """The format of some `Labelled` examples, which know best whether they are pairs."""
        examples: Sequence[Any] = splits.train
        paired = {example.pair is not None for example in examples}
        return replace(super().of(splits), pairs=paired.pop() if len(paired) == 1 else None)

    def named(self, text: str | None = None, pair: str | None = None) -> Self:
        """The same with other columns; a second text that is asked for by name must be there."""
        if pair is not None and self.pairs is False:
            raise UserError(f"the task was learnt on single texts, without a second one: leave out the pair, {pair}")
        text, pairs = self.text if text is None else text, self.pairs if pair is None else True
        return replace(self, text=text, pair=self.pair if pair is None else pair, pairs=pairs)

    def read(self, path: str | Path) -> Iterator[Labelled]:
        """Yields the examples of a file one by one, without their labels."""
        needed = [self.text, self.pair] if self.pairs else [self.text]
        optional = [self.id] if self.pairs is False else [self.id, self.pair]
        for number, row in read_named(path, self.delimiter, needed, optional):
            place = f"{path}, line {number}"
            name = row.get(self.id)
            is_pair = self.pair in row if self.pairs is None else self.pairs
            yield Labelled(
                str(number if name is None else name),
                field(row, self.text, str, place),
                field(row, self.pair, str, place) if is_pair else None,
            )


@dataclass(frozen=True)
class WordFormat(Format):
    """Words, one a line, in files of the CoNLL kind; see `read_words`.

    Attributes:
        word_column: where the word is, from 0.
        separator: what is between columns.
    """

    word_column: int | None = None
    separator: str | None = None

    def read(self, path: str | Path) -> Sequence[Tagged]:
        """The sentences of a file, with or without tags, which are not looked at."""
        return read_words(path, self.word_column, self.separator)


@dataclass(frozen=True)
class QuestionFormat(Format):
    """Questions in files of SQuAD's format; see `read_squad`."""

    def read(self, path: str | Path) -> Sequence[Question]:
        """The questions of a file, with answers or without."""
        return read_squad(path, hidden=True)


def parse_format(kind: type[Format], value: Any, place: object) -> Format:
    """A format as `task.json` has it.

    Args:
        kind: its class.
        value: an object of JSON.
        place: where it stands, to begin a message with.

    Raises:
        UserError: for another value.

    >>> parse_format(WordFormat, {"word_column": 1, "separator": None}, "task.json")
    WordFormat(word_column=1, separator=None)
    """
    kinds = typing.get_type_hints(kind)
    if not isinstance(value, dict) or not all(
        key in kinds and isinstance(each, kinds[key]) for key, each in value.items()
    ):
        raise UserError(f"{place}: format is {shortened(value)}, which says no columns: fine-tune again")
    return kind(**value)
