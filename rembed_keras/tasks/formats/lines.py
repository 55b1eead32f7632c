"""Files of lines, rows and objects, read as they are.

A line ends at a line feed, with or without a carriage return before it, and nowhere else: U+2028, U+0085 and similar
characters are part of a text, and so are spaces and quotes. Every file of lines may be compressed, with `.gz` at the
end of its name. Errors name the file, and its line or row.
"""

import csv
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from rembed_keras.data.json_files import parse_json
from rembed_keras.data.parquet import is_parquet, read_parquet
from rembed_keras.data.text import read_exact_lines
from rembed_keras.errors import UserError, did_you_mean, shortened

DELIMITERS = {".tsv": "\t", ".csv": ","}
csv.field_size_limit(2**31 - 1)  # Python's own limit of 131,072 characters is less than a long document
KINDS = {str: "a text", int: "a whole number", list: "an array", dict: "an object"}


def read_rows(path: str | Path, delimiter: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of a table that are not blank, each as the number of its first line, from 1, and its cells.

    With tabs as delimiter, quotes are ordinary characters. With another one, a cell may be quoted and have the
    delimiter or line breaks in it; a quote inside is doubled.

    Args:
        path: the file.
        delimiter: between cells; by default that of the file name's ending, `.tsv` or `.csv`.

    Raises:
        UserError: for another ending, an unclosed quote, and whatever `read_exact_lines` refuses.
    """
    path = Path(path)
    delimiter = _delimiter(path, delimiter)
    if delimiter is None or len(delimiter) != 1:
        if delimiter is not None:
            raise UserError(f"{path}: the delimiter is {delimiter!r}; it must be one character")
        raise UserError(
            f"{path}: the name says no format: let it end in .jsonl, .tsv or .csv, all also with .gz, or in .parquet"
        )
    if delimiter == "\t":
        for number, line in enumerate(read_exact_lines(path), start=1):
            if line:
                yield number, line.split("\t")
        return
    reader, done = csv.reader(read_exact_lines(path, keep_ends=True), delimiter=delimiter, strict=True), 0
    try:
        for cells in reader:
            if cells:
                yield done + 1, cells
            done = reader.line_num
    except csv.Error as error:
        raise UserError(f"{path}, line {done + 1} is not CSV: {error}") from None


def _delimiter(path, given):
    """What is between the cells of a table: by default what its name says, if anything."""
    return given or DELIMITERS.get(Path(Path(path).name.removesuffix(".gz")).suffix)


def read_objects(
    path: str | Path, needed: Collection[str] = (), optional: Collection[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the objects of a file: of JSON lines, each with the number of its line, from 1, or the rows of Parquet.

    Blank lines are skipped.

    Args:
        path: the file.
        needed: columns that Parquet must have; of objects of JSON `field` asks for them.
        optional: columns that are read of Parquet where they are there; of JSON all are.

    Raises:
        UserError: for a line that is not an object, and whatever `read_exact_lines` and `read_parquet` refuse.
    """
    if is_parquet(path):
        yield from read_parquet(path, needed, optional)
        return
    for number, line in enumerate(read_exact_lines(path), start=1):
        if not line.strip():
            continue
        if line.lstrip().startswith("["):
            raise UserError(f"{path}, line {number} begins a JSON array: write one object per line, without brackets")
        value = parse_json(line, f"{path}, line {number}")
        if not isinstance(value, dict):
            raise UserError(f"{path}, line {number} is not a JSON object, but {line.strip()[:40]}")
        yield number, value


def read_header(
    path: str | Path, rows: Iterator[tuple[int, list[str]]], needed: Collection[str], optional: Collection[str] = ()
) -> list[str]:
    """The names of a table's columns, its first row.

    Args:
        path: the file, to begin an error message with.
        rows: from `read_rows`; the first one is consumed.
        needed: columns that must be there, each once.
        optional: columns that may be there, each once.

    Raises:
        UserError: for an empty table, a missing column, or two of one name.
    """
    _, header = next(rows, (0, []))
    if not header:
        raise UserError(f"{path} is empty; its first line should name the columns")
    for name in sorted({*needed, *optional}):
        if name in needed and name not in header:
            raise UserError(f"{path}, line 1 has no column {name}{did_you_mean(name, header)}")
        if header.count(name) > 1:
            raise UserError(f"{path}, line 1 has two columns {name}")
    return header


def read_named(
    path: str | Path, delimiter: str | None, needed: Collection[str], optional: Collection[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the rows of a table, or the objects of a file, by the names of columns, with their numbers.

    The keys of objects of JSON are not checked here: `field` does it, object by object. In a table of tabs the only
    column that is needed may have tabs itself if it stands alone or before `label`, as in a labelled folder.

    Args:
        path: the file, whose ending says which it is.
        delimiter: as in `read_rows`.
        needed: as in `read_header`.
        optional: as in `read_header`.

    Raises:
        UserError: for a row with another number of columns, no row at all, and as `read_header` and `read_objects`.
    """
    number = 0
    if has_objects(path):
        for number, row in read_objects(path, needed, optional):
            yield number, row
    else:
        rows = read_rows(path, delimiter)
        header = read_header(path, rows, needed, optional)
        is_alone = len(needed) == 1 and header in ([*needed], [*needed, "label"])
        has_tabs = is_alone and _delimiter(path, delimiter) == "\t"
        for number, found in rows:
            first = len(found) - len(header) + 1 if has_tabs else 1
            cells = ["\t".join(found[:first]), *found[first:]] if first > 1 else found
            if len(cells) != len(header):
                raise UserError(f"{path}, line {number} has {len(cells)} cells, and the first line {len(header)}")
            yield number, dict(zip(header, cells, strict=True))
    if not number:
        raise UserError(f"{path} has no examples")


def has_objects(path: str | Path) -> bool:
    """Whether a file's name says that `read_objects` reads it: that it has a JSON object a line, or is Parquet."""
    return is_parquet(path) or Path(Path(path).name.removesuffix(".gz")).suffix == ".jsonl"


def place_of(path: str | Path, number: int) -> str:
    """What an error message says of where an example is.

    >>> place_of("train.tsv", 3), place_of("train.parquet", 3)
    ('train.tsv, line 3', 'train.parquet, row 3')
    """
    return f"{path}, {'row' if is_parquet(path) else 'line'} {number}"


def identifier(row: Any, key: str, place: object) -> str:
    """The id of an example in a JSON object, a string or an integer; the arguments are those of `field`.

    Raises:
        UserError: for an id that is missing, or neither.

    >>> identifier({"id": 7}, "id", "squad.json, paragraph 1")
    '7'
    """
    value = row.get(key) if isinstance(row, dict) else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else field(row, key, str, place)


def field(row: Any, key: str, kind: type, place: object) -> Any:
    """A value of a JSON object.

    Args:
        row: the object.
        key: the value's key.
        kind: its type: str, int, list or dict.
        place: where the object is from, to begin an error message with.

    Raises:
        UserError: for a value that is missing, or of another type.

    >>> field({"text": 7}, "text", str, "pairs.jsonl, line 3")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: pairs.jsonl, line 3: text is 7, not a text
    """
    if not isinstance(row, dict):
        raise UserError(f"{place} is not an object with {key}")
    if key not in row:
        raise UserError(f"{place} has no {key}{did_you_mean(key, row)}")
    value = row[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise UserError(f"{place}: {key} is {shortened(value)}, not {KINDS[kind]}")
    return value
