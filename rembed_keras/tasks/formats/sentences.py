"""Sentences of words with tags: CoNLL files, and the rows that `datasets` makes of them."""

from pathlib import Path
from typing import Any

from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.conll import read_conll, read_words
from rembed_keras.tasks.formats.lines import field, has_objects, place_of, read_objects
from rembed_keras.tasks.kinds.examples import Tagged

WORDS, TAGS = "tokens", "tags"  # columns of rows, where none is named


def read_sentences(
    path: str | Path,
    word_column: int | str | None = None,
    tag_column: int | str | None = None,
    separator: str | None = None,
    unlabeled: bool = False,
) -> list[Tagged]:
    """Sentences of a file: of JSON lines or Parquet as its ending says, else of the CoNLL kind by `read_conll`.

    A row has a list of words and one of as many tags. Rows without a word are skipped, as blank lines are.

    Args:
        path: the file.
        word_column: of rows its name, by default `tokens`; else as in `read_conll`.
        tag_column: of rows its name, by default `tags`; else as in `read_conll`.
        separator: as in `read_conll`; rows have none.
        unlabeled: whether tags may be missing.

    Raises:
        UserError: as `read_conll`, and for a row that lacks a list, or whose lists are of two lengths; or for a column
            that is a number where it should be a name, or the other way round.
    """
    if not has_objects(path):
        return read_conll(path, _number(word_column, path), _number(tag_column, path), separator, unlabeled)
    return _read_rows(path, _name(word_column, WORDS, path), _name(tag_column, TAGS, path), unlabeled)


def read_untagged(path: str | Path, word_column: int | str | None = None, separator: str | None = None) -> list[Tagged]:
    """Sentences of a file with or without tags, which are ignored; of another kind than the recipe's, too.

    Each row is one, so that answers stand in its place.

    Args:
        path: the file.
        word_column: that of the recipe's files, left aside if they are of the other kind.
        separator: as in `read_conll`.

    Raises:
        UserError: as `read_sentences`, and for a row without a word.
    """
    if has_objects(path):
        return _read_rows(path, word_column if isinstance(word_column, str) else WORDS, None, unlabeled=True)
    return read_words(path, None if isinstance(word_column, str) else word_column, separator)


def _number(column: int | str | None, path: str | Path) -> int | None:
    if isinstance(column, str):
        raise UserError(f"{path}: a column is {column!r}; here it is a number, from 0")
    return column


def _name(column: int | str | None, default: str, path: str | Path) -> str:
    if column is None:
        return default
    if not isinstance(column, str) or not column:
        raise UserError(f"{path}: a column is {column!r}; here it is a name")
    return column


def _read_rows(path: str | Path, word_column: str, tag_column: str | None, unlabeled: bool) -> list[Tagged]:
    tag_columns = [] if tag_column is None else [tag_column]
    needed = [word_column] if unlabeled else [word_column, *tag_columns]
    examples = []
    for index, (number, row) in enumerate(read_objects(path, needed, tag_columns)):
        place = place_of(path, number)
        words = tuple(_cells(row, word_column, place))
        if not words and tag_column is None:
            raise UserError(f"{place}: {word_column} has no word to answer for")
        if not words:
            continue
        tags = None
        if tag_column is not None and not (unlabeled and row.get(tag_column) is None):
            tags = tuple(_cells(row, tag_column, place))
        if tags is not None and len(tags) != len(words):
            raise UserError(f"{place} has {len(words)} {word_column} and {len(tags)} {tag_column}")
        examples.append(Tagged(str(index), words, tags))
    if not examples:
        raise UserError(f"{path} has no words")
    return examples


def _cells(row: dict[str, Any], column: str, place: str) -> list[str]:
    """The words or tags of a row; tags that are numbers are names of classes, as labels are."""
    cells = [str(cell) if type(cell) is int else cell for cell in field(row, column, list, place)]
    for cell in cells:
        if not isinstance(cell, str) or not cell:
            raise UserError(f"{place}: {column} has {cell!r}, not a text")
    return cells
