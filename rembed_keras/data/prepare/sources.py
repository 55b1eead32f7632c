"""Where text comes from: paragraphs and their languages, in an order that never changes.

A source is a list of parts, and a part yields `(language, paragraph)`. Parts are the unit of parallel work, so a long
file is several parts and many short ones are one; the text of a language is that of the parts, one after another.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from rembed_keras.data import parquet
from rembed_keras.data.prepare import dataset_text
from rembed_keras.data.prepare.reading import DOCUMENTS, EXTRACTS, TEXT, Form, Piece
from rembed_keras.data.text import FORMS, READ, check_name, check_there, refuse_left_out, text_files
from rembed_keras.errors import UserError, did_you_mean, shortened

IN_FOLDERS = re.compile(r"/(?!vocab\.txt$)[^/]+\.txt(\.gz)?$")  # text in the folder of a language, or below
IN_ONE = re.compile(r"^[^/]+\.txt(\.gz)?$")  # text beside others
WHOLE = 2**63  # bytes of a part: more than files have
NUMBER = re.compile(r"-\d{5,}-of-\d{5,}(-[0-9a-f]+)?$|^[\d_]+$")  # of one of several files, in its name
OTHERS = re.compile(  # of names of files that may have text, and are of no format that is read
    r".+\.(?:json|ndjson|parquet|arrow|feather|avro|csv|tsv|xml|warc|wet)(?:\.(?:gz|bz2|lz4|xz|zst|zip))?",
    re.IGNORECASE,
)


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

    def by_language(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yields languages and their next paragraphs; a language may come again."""
        for part in self.parts:
            for language, pairs in groupby(part.read(), itemgetter(0)):
                yield language, (paragraph for _, paragraph in pairs)

    def check_found(self, languages: Collection[str]) -> None:
        """Checks that the languages of which text was found are those that must have some, and one at least.

        Raises:
            UserError: naming what has no text.
        """
        for language, where in self.expected.items():
            if language not in languages:
                raise UserError(f"{where} has no text of {language!r}: remove it or add some")
        if not languages:
            raise UserError("the source has no text")


@dataclass(frozen=True)
class FilePart:
    """Pieces of files, and how they are read; see `Part`."""

    name: str
    pieces: tuple[Piece, ...]
    reader: Callable[[Piece], Iterator[tuple[str, str]]]
    language: str | None
    languages: frozenset[str] | None = None  # that are read; all if None

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


def find_source(
    name: str | Path, part_bytes: int = WHOLE, languages: Sequence[str] | None = None, with_others: bool = False
) -> Source:
    """Opens a source of text.

    Args:
        name: a folder of text: `<language>.txt` or `.txt.gz` files; or of JSON lines, `.jsonl` or `.jsonl.gz`, or of
            Parquet, with `text` and perhaps `language` or `lang` in each, whose language is otherwise that of their
            subfolder (`de/0001.jsonl`), of their own name without a number (`de.jsonl`, `de-00000-of-00002.parquet`),
            or, where that is all, of the folder (`0001.jsonl`); or of WikiExtractor's output,
            `de/AA/wiki_00`, or `AA/wiki_00` in a folder named by its language. Or `tfds:` and names of
            tensorflow-datasets with their versions, separated by commas; see `dataset_text`.
        part_bytes: about how many bytes a part has; compressed files are not split, and no file is by default.
        languages: that are read, of a folder; all by default.
        with_others: whether text in other languages is read too, as far as it is there.

    Raises:
        UserError: for a source that is not there, or has no text or text in several formats, or packed in a way that
            is not read, or lacks a language; or has text files in subfolders, unless others than theirs are named.
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
    relative = {path: path.relative_to(folder).as_posix() for path in sorted(_files(folder))}
    form, paths = _documents(folder, relative)
    if not paths:
        return _text_source(folder, relative.values(), part_bytes, languages, with_others)
    files = {relative[path]: path for path in paths}
    for place, path in files.items():
        check_name(place, folder)
        check_there(path)
    homes = {path: _home(relative[path], folder) for path in paths}
    are_named = not {*homes.values()}.isdisjoint(languages or ())  # by languages; others may have text of any
    refuse_left_out(folder, relative.values(), paths, languages if are_named else None, partial(_home, folder=folder))
    wanted = None if languages is None or with_others else frozenset(languages)
    mixed = {path for path in paths if form.names_languages(path)}
    if wanted is not None:
        files = {name: path for name, path in files.items() if homes[path] in wanted or path in mixed}
    size = WHOLE if form is EXTRACTS else part_bytes
    pieces = [piece for path in files.values() for piece in _cut(path, homes[path], size)]
    parts = _parts(pieces, form, part_bytes, mixed, wanted)
    return Source(parts, files, expected=dict.fromkeys(languages or (), folder))


def _documents(folder, relative):
    """The format of the documents of a folder, and its files of that, none if it has text files.

    Args:
        folder: of text.
        relative: names of its files, relative to it.
    """
    found = {}
    for ending, form in DOCUMENTS.items():
        if own := [path for path, name in relative.items() if form.names.search(name)]:
            found[ending] = form, own
    if len(found) > 1:
        one, other = (own[0] for _, own in found.values())
        raise UserError(f"{one} and {other} are of two formats: keep text of one format in a folder")
    extracts = [path for path, name in relative.items() if EXTRACTS.names.search(name)]
    for ending, (form, own) in found.items():
        other = next((name for path, name in relative.items() if path in extracts or TEXT.names.search(name)), None)
        if other is not None:
            raise UserError(f"{folder} has {ending} files and {other}: keep text of one format in a folder")
        return form, own
    text = next((name for name in relative.values() if IN_FOLDERS.search(name) or IN_ONE.search(name)), None)
    if extracts and text is not None:
        raise UserError(f"{folder} has WikiExtractor's output and {text}: keep text of one format in a folder")
    return EXTRACTS, extracts


def left_out(name: str | Path) -> list[str]:
    """The files of a source, as of `find_source`, that may have text too, and are of no format that is read."""
    paths = sorted(_files(Path(name))) if Path(name).is_dir() else []
    others = [path for path in paths if OTHERS.fullmatch(path.name) and not path.name.endswith(READ)]
    return [path.relative_to(name).as_posix() for path in others]


def note_left_out(name: str | Path) -> str:
    """A note that names what is `left_out`; "" for nothing."""
    others = left_out(name)
    return f"left out of {name}: {_shown(others)}; text is read of {', '.join(READ)} files" if others else ""


def _shown(names):
    return ", ".join(map(shortened, names[:3])) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _files(folder, above=()):
    """Yields the files below a folder, in folders that are links too, but neither hidden ones nor in hidden folders.

    A link to what is gone counts as a file, and so do a pipe and a socket.
    """
    place = folder.resolve()
    if place in above:  # a link to a folder that it is in
        return
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files(path, (*above, place))
        else:
            yield path


def _text_source(folder, names, part_bytes, languages, with_others):
    """A folder of text files, whose files have these names."""
    unread = left_out(folder)
    if unread and not any(map(FORMS.fullmatch, names)):
        raise UserError(f"{folder} has no {', '.join(READ)} files: write the text of {_shown(unread)} as one of them")
    in_folders = [name for name in names if IN_FOLDERS.search(name)]
    if in_folders and not any(FORMS.fullmatch(name) for name in names if "/" not in name):
        raise UserError(f"{folder} has text in {in_folders[0]}: make one file of each language, <language>.txt, of it")
    files = text_files(folder, languages)
    refuse_left_out(folder, (name for name in names if "/" in name), files.values(), languages)
    deeper = next((name for name in in_folders if languages is None or name.partition("/")[0] in languages), None)
    if deeper is not None:
        first = next(iter(files.values())).name
        raise UserError(
            f"{folder} has text in {first} and in {deeper}, which would be left out: make one file of each language"
            + (", or name the languages to read" if languages is None else "")
        )
    absent = next((language for language in languages or () if language not in files), None)
    if absent is not None:
        others = did_you_mean(absent, files) or f"; it has {', '.join(files)}"
        raise UserError(f"{folder} has no text in {absent!r}{others}")
    expected = {language: path for language, path in files.items() if languages is None or language in languages}
    files = files if with_others else expected
    for path in files.values():
        check_there(path)
    pieces = [piece for language, path in files.items() for piece in _cut(path, language, part_bytes)]
    return Source(_parts(pieces, TEXT, part_bytes, set()), files, expected=expected)


def _home(relative, folder):
    """The language of a file by its path: that of the folder where a number is all that names it."""
    first, slash, _ = relative.partition("/")
    own = first.removesuffix(parquet.ENDING) if slash else NUMBER.sub("", first.partition(".")[0])
    return folder.resolve().name if EXTRACTS.names.match(relative) or not own else own


def _cut(path, language, part_bytes):
    """Yields the pieces of a file of lines."""
    size = path.stat().st_size
    length = size if path.suffix == ".gz" else part_bytes
    for start in range(0, max(size, 1), max(length, 1)):
        yield Piece(path, language, start, min(size, start + length))


def _parts(pieces, form: Form, part_bytes, mixed, languages=None):
    """Groups the pieces of each language into parts of about equal size, in order of languages.

    Args:
        pieces: of files.
        form: of all of them.
        part_bytes: as of `find_source`.
        mixed: files whose documents may name their languages.
        languages: that are read; all by default.
    """
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
        for name, group in zip(names, groups, strict=True):
            one = None if any(piece.path in mixed for piece in group) else language
            parts.append(FilePart(name, tuple(group), form.read, one, languages))
    return parts
