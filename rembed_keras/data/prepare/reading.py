"""How files of text are read: as lines, as documents of JSON or Parquet, or as WikiExtractor writes them.

A reader yields `(language, paragraph)` of a piece of a file. A line of text is a paragraph everywhere: in a text file,
and in the text of a document.
"""

import html
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rembed_keras.data import parquet
from rembed_keras.data.text import first_line, read_exact_lines
from rembed_keras.errors import UserError

LANGUAGE_KEYS = ("language", "lang")


@dataclass(frozen=True)
class Piece:
    """The lines, or groups of rows, of a file that begin from byte `start` up to `end`; all of a compressed one.

    Attributes:
        language: of text that does not name its own.
    """

    path: Path
    language: str
    start: int
    end: int


def read_text(piece: Piece) -> Iterator[tuple[str, str]]:
    """Yields the paragraphs of a piece of a text file."""
    whole = piece.path.suffix == ".gz"
    lines = read_exact_lines(piece.path, start=piece.start, end=None if whole else piece.end)
    return ((piece.language, line) for line in map(str.strip, lines) if line)


def read_json_lines(piece: Piece) -> Iterator[tuple[str, str]]:
    """Yields the paragraphs of the JSON documents of a piece."""
    whole = piece.path.suffix == ".gz"
    lines = read_exact_lines(piece.path, start=piece.start, end=None if whole else piece.end)
    for number, line in enumerate(lines):
        if line.strip():
            try:
                language, text = _document(_parsed(line), piece.language)
            except ValueError as error:
                where = f"{piece.path}, line {first_line(piece.path, piece.start) + number}"
                raise UserError(f"{where} is not a JSON document: {error}") from None
            yield from ((language, paragraph) for paragraph in paragraphs(text))


def read_tables(piece: Piece) -> Iterator[tuple[str, str]]:
    """Yields the paragraphs of the documents of a piece of a Parquet file, one a row."""
    for number, row in parquet.read_parquet(piece.path, ["text"], LANGUAGE_KEYS, piece.start, piece.end):
        try:
            language, text = _document(row, piece.language)
        except ValueError as error:
            raise UserError(f"{piece.path}, row {number}: {error}") from None
        yield from ((language, paragraph) for paragraph in paragraphs(text))


def _has_languages(path):
    """Whether a Parquet file has a column of languages."""
    return not {*LANGUAGE_KEYS}.isdisjoint(parquet.column_names(path))


def read_extract(piece: Piece) -> Iterator[tuple[str, str]]:
    """Yields the paragraphs of WikiExtractor's output, JSON lines or `<doc>` blocks; titles of blocks are included."""
    lines = read_exact_lines(piece.path)
    if next((line for line in read_exact_lines(piece.path) if line.strip()), "").startswith("{"):
        yield from read_json_lines(piece)
        return
    for line in lines:
        if not line.startswith(("<doc ", "</doc>")):
            yield from ((piece.language, paragraph) for paragraph in paragraphs(html.unescape(line)))


@dataclass(frozen=True)
class Form:
    """A format of files with text.

    Attributes:
        names: is found in the names of its files, relative to their folder.
        read: yields the languages and paragraphs of a piece of one.
        names_languages: whether documents of a file may name their languages; all of its text is of one otherwise.
    """

    names: re.Pattern[str]
    read: Callable[[Piece], Iterator[tuple[str, str]]]
    names_languages: Callable[[Path], bool] = lambda path: True


TEXT = Form(re.compile(r"\.txt(\.gz)?$"), read_text, lambda path: False)
EXTRACTS = Form(re.compile(r"(^|/)[A-Z]{2}/wiki_\d+$"), read_extract)  # as WikiExtractor names its files
DOCUMENTS = {  # by the ends of their names
    ".jsonl": Form(re.compile(r"\.jsonl(\.gz)?$"), read_json_lines),
    parquet.ENDING: Form(re.compile(r"\.parquet$"), read_tables, _has_languages),
}


def _parsed(line):
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _document(document, language):
    """Language and text of a document."""
    if not isinstance(document, dict) or not isinstance(document.get("text"), str):
        raise ValueError('it must be an object with a string "text"')
    own = next((document[key] for key in LANGUAGE_KEYS if document.get(key) is not None), language)
    if not isinstance(own, str) or not own.strip() or own != _whole(own):
        raise ValueError(f"its language is {own!r}, which is not a name")
    return own.strip(), document["text"]


def paragraphs(text: str) -> Iterator[str]:
    r"""Yields the lines of a text, stripped, that are not empty.

    A lone surrogate, which JSON can encode and UTF-8 cannot, becomes U+FFFD.

    >>> list(paragraphs("One.\n\n Two\ud800. \n"))
    ['One.', 'Two\ufffd.']
    """
    return (line for line in map(str.strip, _whole(text).split("\n")) if line)


def _whole(text):
    """A text with U+FFFD for lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
