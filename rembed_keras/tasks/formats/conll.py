"""Sentences of words, one a line, in files of the CoNLL kind and CoNLL-U, as lists of examples."""

import re
from pathlib import Path

from rembed_keras.data.text import read_exact_lines
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Tagged

INDEX = re.compile(r"[0-9]+([-.][0-9]+)?")  # of a word, a multi-word token or an empty node in CoNLL-U


def read_conll(
    path: str | Path,
    word_column: int | None = None,
    tag_column: int | None = None,
    separator: str | None = None,
    unlabeled: bool = False,
) -> list[Tagged]:
    """Sentences of a file with one word per line and a blank line after every sentence.

    Lines of -DOCSTART- are skipped, and so are comments: lines before a sentence's first word that begin with # and
    have another number of columns than words have, so that # can be a word. A file of ten columns whose first has
    indices is CoNLL-U: multi-word tokens (1-2) and empty nodes (1.1) are skipped, their words are not.

    Args:
        path: the file.
        word_column: index of the word's column, negative from the end; by default 0, in CoNLL-U 1. In a file of one
            column it is that one.
        tag_column: index of the tag's column; by default -1, in CoNLL-U 3, the universal part of speech. Spaces around
            a tag are removed.
        separator: between columns; by default tabs if the first word's line has one, else spaces.
        unlabeled: whether tags may be missing: tags are None then if the column is missing or empty throughout, as "_"
            is in CoNLL-U.

    Returns:
        Sentences, numbered from 0; none is empty.

    Raises:
        UserError: for a line with another number of columns, a missing column, an empty word or tag, or no sentence.
    """
    sentences, width, is_conllu = _read_sentences(path, separator)
    tag_column = tag_column if tag_column is not None else 3 if is_conllu else -1
    is_there = width > 1 and -width <= tag_column < width
    tags = {cells[tag_column].strip() for rows in sentences for _, cells in rows} if is_there else set()
    has_tags = not unlabeled or not tags <= ({"", "_"} if is_conllu else {""})
    word_column = _word_column(word_column, width, is_conllu)
    examples = []
    for number, rows in enumerate(sentences):
        words = tuple(_column(cells, word_column, place, "word") for place, cells in rows)
        its_tags = tuple(_column(cells, tag_column, place, "tag") for place, cells in rows) if has_tags else None
        examples.append(Tagged(str(number), words, its_tags))
    return examples


def read_words(path: str | Path, word_column: int | None = None, separator: str | None = None) -> list[Tagged]:
    """Sentences of a file as `read_conll` reads it, with or without a column of tags, which is ignored.

    Args:
        path: the file.
        word_column: as in `read_conll`.
        separator: as in `read_conll`.

    Returns:
        Sentences without tags, numbered from 0; none is empty.

    Raises:
        UserError: for a line with another number of columns, a missing column, an empty word, or no sentence.
    """
    sentences, width, is_conllu = _read_sentences(path, separator)
    word_column = _word_column(word_column, width, is_conllu)
    return [
        Tagged(str(number), tuple(_column(cells, word_column, place, "word") for place, cells in rows))
        for number, rows in enumerate(sentences)
    ]


def _word_column(given, width, is_conllu):
    """Index of the word's column; in a file of one column it is that one."""
    if width == 1:
        return 0
    return given if given is not None else int(is_conllu)


def _read_sentences(path, separator):
    """Sentences as rows of (place, cells), the number of columns, and whether the file is CoNLL-U."""
    lines = list(enumerate(read_exact_lines(path), start=1))
    first = next((line for _, line in lines if line.strip(" \t") and not line.startswith(("#", "-DOCSTART-"))), None)
    if first is None:
        raise UserError(f"{path} has no words")
    separator = separator or ("\t" if "\t" in first else " ")
    width = len(_cells(first, separator))
    is_conllu = width == 10 and INDEX.fullmatch(_cells(first, separator)[0]) is not None
    sentences: list[list[tuple[str, list[str]]]] = [[]]
    for number, line in lines:
        cells = _cells(line, separator)
        if not line.strip(" \t"):
            sentences.append([])
        elif cells[0] == "-DOCSTART-" or (not sentences[-1] and line.startswith("#") and len(cells) != width):
            continue
        elif len(cells) != width:
            raise UserError(f"{path}, line {number} has {len(cells)} columns, and the first word's line {width}")
        elif not is_conllu or cells[0].isdecimal():
            sentences[-1].append((f"{path}, line {number}", cells))
    return [rows for rows in sentences if rows], width, is_conllu


def _cells(line, separator):
    """Columns of a line; several spaces separate like one."""
    return re.split(" +", line.strip(" ")) if separator == " " else line.split(separator)


def _column(cells, column, place, kind):
    if not -len(cells) <= column < len(cells) or (kind == "tag" and len(cells) == 1):
        raise UserError(f"{place} has no column {column} with a {kind}")
    cell = cells[column].strip() if kind == "tag" else cells[column]
    if not cell:
        raise UserError(f"{place} has an empty {kind}")
    return cell
