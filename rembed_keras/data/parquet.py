"""Parquet files, as hubs of data sets keep text, read a batch of rows at a time.

Reading needs pyarrow, of the extra `parquet`.
"""

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rembed_keras.errors import UserError, did_you_mean, first_line

ENDING = ".parquet"
ROWS = 1024  # that are in memory at a time
NO_LABEL = -1  # as `datasets` writes the label of an example that has none


def is_parquet(path: str | Path) -> bool:
    """Whether a file's name says that it is Parquet.

    >>> is_parquet("de/train-00000-of-00002.parquet")
    True
    """
    return Path(path).suffix == ENDING


def read_parquet(
    path: str | Path,
    needed: Collection[str] = (),
    optional: Collection[str] = (),
    start: int = 0,
    end: int | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the rows of a file, each with its number, from 1, and its values by the names of their columns.

    Other columns, of which some have values that Python has not, are not read. What `datasets` stored as numbers of
    classes comes as their names, and as None where there is none.

    Args:
        path: the file.
        needed: columns that must be there.
        optional: columns that are read where they are there.
        start: read only groups of rows that begin at this byte or after it.
        end: read only groups of rows that begin before this byte; the file's end by default.

    Raises:
        UserError: for a file that cannot be read or is not Parquet, or lacks a column or has it twice; or if pyarrow is
            not installed.
    """
    with _opened(path) as file:
        names = file.schema_arrow.names
        for name in sorted(needed):
            if name not in names:
                raise UserError(f"{path} has no column {name}{did_you_mean(name, names)}")
        columns = [name for name in names if name in needed or name in optional]
        twice = next((name for name in columns if columns.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"{path} has two columns {twice}")
        classes = {name: own for name, own in _classes(file.schema_arrow.metadata or {}).items() if name in columns}
        number = 0
        for index in range(file.num_row_groups):
            group = file.metadata.row_group(index)
            if not group.num_rows or not start <= _place(group) < (2**63 if end is None else end):
                number += group.num_rows
                continue
            for batch in file.iter_batches(ROWS, [index], columns, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row | {name: _class(row[name], own) for name, own in classes.items()}


def column_names(path: str | Path) -> list[str]:
    """The names of a file's columns.

    Raises:
        UserError: as `read_parquet`.
    """
    with _opened(path) as file:
        return file.schema_arrow.names


def _place(group):
    """The byte at which a group of rows begins."""
    first = group.column(0)
    return min(place for place in (first.dictionary_page_offset, first.data_page_offset) if place)


def _classes(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Names of classes by the columns that have their numbers, where `datasets` wrote the file."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        own = {name: _feature(each) for name, each in features.items()}
        labels = {name: each for name, each in own.items() if isinstance(each, dict) and "names" in each}
        return {name: [*each["names"]] for name, each in labels.items() if each.get("_type") == "ClassLabel"}
    except (LookupError, TypeError, AttributeError, ValueError):
        return {}


def _feature(feature):
    """What a column has, or its lists have; `datasets` writes lists as `Sequence`, as `List` or in brackets."""
    while isinstance(feature, list) or (isinstance(feature, dict) and isinstance(feature.get("feature"), dict)):
        feature = feature[0] if isinstance(feature, list) else feature["feature"]
    return feature


def _class(value, names):
    if isinstance(value, list):
        return [_class(each, names) for each in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None if value == NO_LABEL else value


@contextlib.contextmanager
def _opened(path):
    """A file of pyarrow's; what that raises of it ends in one line that names it."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{path}: to read Parquet takes pyarrow: pip install 'rembed-keras[parquet]'") from None
    try:
        open(path, "rb").close()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
            yield file
    except UserError:
        raise
    except UnicodeDecodeError:
        raise UserError(f"{path} has text that is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a whole Parquet file: {first_line(error)}") from None
