"""A folder of text as its users keep it: one `<language>.txt` or `<language>.txt.gz` each, one paragraph a line.

Files are streamed, never held whole. Errors name the file and line.
"""

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rembed_keras.data import parquet
from rembed_keras.errors import UserError

ENDINGS = (".txt.gz", ".txt")
READ = (*ENDINGS, ".jsonl", ".jsonl.gz", parquet.ENDING)
FORMS = re.compile(  # of names of text, read or not, packed or not
    r"(.+\.(?:txt|jsonl)|(?:.*/)?[A-Z]{2}/wiki_\d+)(?:\.(?:gz|bz2|lz4|xz|zst|zstd|zip|7z|z))?", re.IGNORECASE
)


def text_files(folder: str | Path, languages: Sequence[str] | None = None) -> dict[str, Path]:
    """The text files of a folder by language, in the order of their names.

    Args:
        folder: the folder.
        languages: that are wanted; all by default.

    Raises:
        UserError: if there is no such folder, no text in it, two files of one language, or text of a wanted one in a
            form that is not read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of text")
    files: dict[str, Path] = {}
    paths = sorted(folder.iterdir())
    for path in paths:
        ending = next((ending for ending in ENDINGS if path.name.endswith(ending)), None)
        if ending is None or path.name.startswith(".") or path.is_dir():
            continue
        check_name(path.name, folder)
        language = path.name.removesuffix(ending)
        if language in files:
            raise UserError(f"{path} and {files[language]} are both text of {language!r}: keep one")
        files[language] = path
    refuse_left_out(folder, (path.name for path in paths if not path.is_dir()), files.values(), languages)
    if not files:
        raise UserError(f"{folder} has no <language>.txt or <language>.txt.gz file")
    return dict(sorted(files.items()))


def check_name(name: str, folder: Path) -> None:
    """Checks that the name of a file, which names files of ours, can be written as UTF-8.

    Args:
        name: of the file, in its folder.
        folder: of text.

    Raises:
        UserError: if it cannot.
    """
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{folder} has a file whose name, {name!a}, is not UTF-8: rename it") from None


def check_there(path: Path) -> None:
    """Checks that a file of text is one, and no link to what is gone.

    Raises:
        UserError: if it is such a link, or a pipe, a socket or a device.
    """
    if path.is_file():
        return
    if path.exists():
        raise UserError(f"{path} is no file: write its text into one")
    raise UserError(f"{path} is a link to what is gone: bring that back, or remove the link")


def _language_of(name):
    """The language of a text file by its name, without how it is packed, or by the folder that it is in."""
    first, is_within, _ = name.partition("/")
    return first if is_within else name.rpartition(".")[0]


def refuse_left_out(
    folder: Path,
    names: Iterable[str],
    read: Iterable[Path],
    languages: Sequence[str] | None = None,
    language_of: Callable[[str], str] = _language_of,
) -> None:
    """Checks that no text would be left out only because of how it is packed, or how its name is written.

    Args:
        folder: of text.
        names: of its files, relative to it.
        read: the files that are read; packed copies of them may stand beside them.
        languages: that are wanted; all by default.
        language_of: of a file by its name without how it is packed.

    Raises:
        UserError: naming a file that would be.
    """
    forms = (FORMS.fullmatch(path.relative_to(folder).as_posix()) for path in read)
    stems = {form[1].lower() for form in forms if form}
    for name in names:
        form = FORMS.fullmatch(name)
        is_wanted = form and (languages is None or language_of(form[1]) in languages)
        if form and is_wanted and not name.startswith(".") and not name.endswith(READ) and form[1].lower() not in stems:
            raise UserError(
                f"{folder} has {name}, which is not read and would be left out: make it a .txt, .txt.gz, .jsonl or "
                ".jsonl.gz file, or move it away"
            )


def read_exact_lines(
    path: str | Path, keep_ends: bool = False, start: int = 0, end: int | None = None
) -> Iterator[str]:
    r"""Yields the lines of a text file as they are.

    A line ends at a line feed, with or without a carriage return before it, and nowhere else; in a file without line
    feeds, at a carriage return.

    Args:
        path: the file.
        keep_ends: whether a line keeps its `\n`, `\r\n` or `\r`.
        start: read only lines that begin at this byte or after it; for uncompressed files.
        end: read only lines that begin before this byte; the file's end by default.

    Raises:
        UserError: for a file that cannot be read, text that is not UTF-8, or a damaged archive.
    """
    path, done = Path(path), 0
    place = start
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            if start:
                file.seek(start - 1)
                place += len(file.readline()) - 1  # the rest of a line that began before
            for raw in file:
                if end is not None and place >= end:
                    break
                line = raw.decode("utf-8-sig" if place == 0 else "utf-8")
                for each in _without_feeds(line) if place == 0 else [line]:
                    yield each if keep_ends else each.removesuffix("\n").removesuffix("\r")
                done += 1
                place += len(raw)
    except UnicodeDecodeError:
        raise UserError(f"{path}, line {first_line(path, start) + done} is not UTF-8: convert the file first") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{path} is not a whole gzip file: it ends or breaks after line {done}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _without_feeds(line):
    """The lines of what stands before a file's first line feed: several where there is none."""
    if line.endswith("\n") or "\r" not in line:
        return [line]
    return re.findall(r"[^\r]*\r|[^\r]+", line)


def first_line(path, start):
    """The number, from 1, of the first line that begins at a byte or after it."""
    number, left = 1, start - 1
    with open(path, "rb") as file:
        while left > 0:
            chunk = file.read(min(left, 2**20))
            number, left = number + chunk.count(b"\n"), left - len(chunk)
    return number + bool(start)


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a text file, stripped; empty ones too, so that line numbers are kept.

    Raises:
        UserError: as `read_exact_lines`.
    """
    for line in read_exact_lines(path):
        yield line.strip()


def sha256(path: Path) -> str:
    """Checksum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
