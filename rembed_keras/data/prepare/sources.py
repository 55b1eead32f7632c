"""Where text comes from: paragraphs and their languages, in an order that never changes.

A source is a list of parts, and a part yields `(language, paragraph)`. Parts are the unit of parallel work, so a long
file is several parts and many short ones are one; the text of a language is that of the parts, one after another. A
line of text is a paragraph everywhere: in a text file, and in the text of a JSON document.
"""

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Protocol

from rembed_keras.data.prepare import dataset_text
from rembed_keras.data.text import check_name, first_line, read_exact_lines, refuse_left_out, text_files
from rembed_keras.errors import UserError

JSON_LINES = re.compile(r"\.jsonl(\.gz)?$")
EXTRACT = re.compile(r"(^|/)[A-Z]{2}/wiki_\d+$")  # as WikiExtractor names its files
IN_FOLDERS = re.compile(r"^(?!\.)[^/]+/(?!vocab\.txt$)[^/]+\.txt(\.gz)?$")  # text in the folder of a language
IN_ONE = re.compile(r"^[^/]+\.txt(\.gz)?$")  # text beside others
WHOLE = 2**63  # bytes of a part: more than files have
OTHERS = re.compile(  # of names of files that may have text, and are of no format that is read
    r".+\.(?:json|ndjson|parquet|arrow|feather|avro|csv|tsv|xml|warc|wet)(?:\.(?:gz|bz2|lz4|xz|zst|zip))?",
    re.IGNORECASE,
)
LANGUAGE_KEYS = ("language", "lang")


class Part(Protocol):
    """What one process reads at a time."""

    @property
    def name(self) -> str:
        """A unique name, which files are named by."""

    @property
    def language(self) -> str | None:
        """The language of all its text; None if documents may name others."""

    @property
    def size(self) -> int:
        """Bytes on disk, or an estimate: for progress and scheduling; results do not depend on it."""

    def read(self) -> Iterator[tuple[str, str]]:
        """Yields languages and paragraphs, stripped and not empty."""


@dataclass(frozen=True)
class Source:
    """All text of a corpus.

    Attributes:
        parts: in the order of their text.
        files: what they read, by name in the manifest.
        facts: the manifest's entries of sources that are not files.
        expected: languages that must have text, and where it should be.
    """

    parts: Sequence[Part]
    files: Mapping[str, Path] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    expected: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """The lines of a file that begin from byte `start` up to `end`; all lines of a compressed file.

    Attributes:
        language: of text that does not name its own.
    """

    path: Path
    language: str
    start: int
    end: int


@dataclass(frozen=True)
class FilePart:
    """Pieces of files, and how they are read; see `Part`."""

    name: str
    pieces: tuple[Piece, ...]
    reader: Callable[[Piece], Iterator[tuple[str, str]]]
    languages: frozenset[str] | None = None  # that are read; all if None

    @property
    def language(self) -> str | None:
        """The language of all its text; None if documents may name others."""
        return self.pieces[0].language if self.reader is read_text else None

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(piece.end - piece.start for piece in self.pieces)

    def read(self) -> Iterator[tuple[str, str]]:
        """Yields languages and their paragraphs."""
        for piece in self.pieces:
            for language, paragraph in self.reader(piece):
                if self.languages is None or language in self.languages:
                    yield language, paragraph


def find_source(name: str | Path, part_bytes: int, languages: Sequence[str] | None = None) -> Source:
    """Opens a source of text.

    Args:
        name: a folder of text: `<language>.txt` or `.txt.gz` files; or of JSON lines, `.jsonl` or `.jsonl.gz`, with
            `text` and perhaps `language` or `lang` in each, whose language is otherwise that of their subfolder
            (`de/0001.jsonl`) or of their own name (`de.jsonl`); or of WikiExtractor's output, `de/AA/wiki_00`, or
            `AA/wiki_00` in a folder named by its language. Or `tfds:` and names of tensorflow-datasets with their
            versions, separated by commas; see `dataset_text`.
        part_bytes: about how many bytes a part has; compressed files are not split.
        languages: that are read, of a folder; all by default.

    Raises:
        UserError: for a source that is not there, or has no text or text in several formats, or packed in a way that
            is not read, or lacks a language; or has text files in subfolders, unless languages are named.
    """
    if languages is not None and not languages:
        raise UserError("no language is chosen: name some, or leave languages out to read all")
    if str(name).startswith(dataset_text.PREFIX):
        if languages is not None:
            raise UserError(f"{name}: name the data sets of the languages that you want, and leave languages out")
        parts, facts = dataset_text.dataset_parts(str(name))
        return Source(parts, facts=facts)
    folder = Path(name)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of text")
    paths = sorted(_files(folder))
    relative = {path: path.relative_to(folder).as_posix() for path in paths}
    documents = [path for path in paths if JSON_LINES.search(relative[path])]
    extracts = [path for path in paths if EXTRACT.search(relative[path])]
    if documents and (extracts or any(path.name.endswith((".txt", ".txt.gz")) for path in paths)):
        raise UserError(f"{folder} has .jsonl files and others: keep text of one format in a folder")
    if not documents and not extracts:
        return _text_source(folder, relative.values(), part_bytes, languages)
    text = next((name for name in relative.values() if IN_FOLDERS.search(name) or IN_ONE.search(name)), None)
    if text is not None:
        raise UserError(f"{folder} has WikiExtractor's output and {text}: keep text of one format in a folder")
    files = {relative[path]: path for path in documents or extracts}
    for place in files:
        check_name(place, folder)
    refuse_left_out(folder, relative.values(), files.values(), languages)
    if documents:
        pieces = [piece for path in documents for piece in _cut(path, _home(relative[path], folder), part_bytes)]
        return _source(pieces, read_json_lines, part_bytes, files, languages, folder)
    pieces = [Piece(path, _home(relative[path], folder), 0, path.stat().st_size) for path in extracts]
    return _source(pieces, read_extract, part_bytes, files, languages, folder)


def left_out(name: str | Path) -> list[str]:
    """The files of a source, as of `find_source`, that may have text too, and are of no format that is read."""
    paths = sorted(_files(Path(name))) if Path(name).is_dir() else []
    return [path.relative_to(name).as_posix() for path in paths if OTHERS.fullmatch(path.name)]


def _files(folder, above=()):
    """Yields the files below a folder, in folders that are links too, but neither hidden ones nor in hidden folders."""
    place = folder.resolve()
    if place in above:  # a link to a folder that it is in
        return
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files(path, (*above, place))
        elif path.is_file():
            yield path


def _text_source(folder, names, part_bytes, languages):
    """A folder of text files, whose files have these names."""
    files = text_files(folder, languages)
    refuse_left_out(folder, (name for name in names if name.count("/") == 1), files.values(), languages)
    deeper = next((name for name in names if IN_FOLDERS.search(name)), None)
    if deeper is not None and languages is None:
        first = next(iter(files.values())).name
        raise UserError(
            f"{folder} has text in {first} and in {deeper}, which would be left out: make one file of each language, "
            "or name the languages to read"
        )
    if languages is not None:
        absent = next((language for language in languages if language not in files), None)
        if absent is not None:
            raise UserError(f"{folder} has no text in {absent!r}; it has {', '.join(files)}")
        files = {language: path for language, path in files.items() if language in languages}
    pieces = [piece for language, path in files.items() for piece in _cut(path, language, part_bytes)]
    return Source(_parts(pieces, read_text, part_bytes, None), files, expected=files)


def _source(pieces, reader, part_bytes, files, languages, folder):
    """Documents, whose languages are known when they are read."""
    wanted = None if languages is None else frozenset(languages)
    return Source(_parts(pieces, reader, part_bytes, wanted), files, expected=dict.fromkeys(languages or (), folder))


def _home(relative, folder):
    """The language of a file by its path."""
    first, slash, _ = relative.partition("/")
    if not slash:
        return first.partition(".")[0]
    return folder.resolve().name if EXTRACT.match(relative) else first


def _cut(path, language, part_bytes):
    """Yields the pieces of a file of lines."""
    size = path.stat().st_size
    length = size if path.suffix == ".gz" else part_bytes
    for start in range(0, max(size, 1), max(length, 1)):
        yield Piece(path, language, start, min(size, start + length))


def _parts(pieces, reader, part_bytes, languages):
    """Groups the pieces of each language into parts of about equal size, in order of languages."""
    parts = []
    for language, own in groupby(sorted(pieces, key=lambda piece: piece.language), lambda piece: piece.language):
        groups: list[list[Piece]] = []
        free = 0
        for piece in own:
            size = piece.end - piece.start
            if not groups or size > free:
                groups.append([])
                free = part_bytes
            groups[-1].append(piece)
            free -= size
        names = [language] if len(groups) == 1 else [f"{language}-{number:05}" for number in range(len(groups))]
        parts += [FilePart(name, tuple(group), reader, languages) for name, group in zip(names, groups, strict=True)]
    return parts


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
                language, text = _document(line, piece.language)
            except ValueError as error:
                where = f"{piece.path}, line {first_line(piece.path, piece.start) + number}"
                raise UserError(f"{where} is not a JSON document: {error}") from None
            yield from ((language, paragraph) for paragraph in paragraphs(text))


def read_extract(piece: Piece) -> Iterator[tuple[str, str]]:
    """Yields the paragraphs of WikiExtractor's output, JSON lines or `<doc>` blocks; titles of blocks are included."""
    lines = read_exact_lines(piece.path)
    if next((line for line in read_exact_lines(piece.path) if line.strip()), "").startswith("{"):
        yield from read_json_lines(piece)
        return
    for line in lines:
        if not line.startswith(("<doc ", "</doc>")):
            yield from ((piece.language, paragraph) for paragraph in paragraphs(html.unescape(line)))


def _document(line, language):
    """Language and text of a JSON document."""
    try:
        document = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
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
