"""Texts with labels, of tables and objects; for sentences of words see `formats.sentences`, for questions
`formats.questions`.

Files are read whole, as lists of examples; for lines and rows see `rembed_keras.tasks.formats.lines`.
"""

import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.tasks.formats.lines import field, identifier, place_of, read_header, read_objects, read_rows
from rembed_keras.tasks.kinds.examples import Labelled


@dataclass(frozen=True)
class _Columns:
    """The roles of the columns of a row."""

    text: str
    pair: str | None
    label: str | None
    id: str | None
    numeric: bool
    labels: Collection[str] | None
    unlabeled: bool

    @property
    def needed(self) -> set[str]:
        """The columns that must be there."""
        named = (self.text, self.pair, self.id, None if self.unlabeled else self.label)
        return {name for name in named if name is not None}

    @property
    def optional(self) -> list[str]:
        """The columns that may be there."""
        return [self.label] if self.label else []

    def add(self, row: Mapping[str, Any], examples: dict[str, Labelled], place: str) -> None:
        name = str(len(examples)) if self.id is None else identifier(row, self.id, place)
        if name in examples:
            raise UserError(
                f"{place}: an earlier example has the {self.id} {name!r} too: name a column of ids, or none"
            )
        text = field(row, self.text, str, place)
        pair = None if self.pair is None else field(row, self.pair, str, place)
        examples[name] = Labelled(name, text, pair, self._label(row, place))

    def _label(self, row, place):
        if self.label is None:
            return None
        value = row.get(self.label)
        value = value.strip() if isinstance(value, str) else value
        if value is None or value == "":
            if self.unlabeled:
                return None
            hint = "" if self.label in row else did_you_mean(self.label, row)
            raise UserError(f"{place} has no {self.label}{hint}")
        if self.numeric:
            return self._number(value, place)
        if isinstance(value, bool | int):
            value = str(value).lower()
        if not isinstance(value, str):
            raise UserError(
                f"{place}: {self.label} is {value!r}, not a name; say numeric=True if numbers are predicted"
            )
        if self.labels is not None and value not in self.labels:
            raise UserError(f"{place}: {self.label} is {value!r}, none of {', '.join(self.labels)}")
        return value

    def _number(self, value, place):
        try:
            is_none = isinstance(value, bool) or "_" in str(value)  # Python reads 1_5 as 15
            number = math.nan if is_none else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise UserError(f"{place}: {self.label} is {value!r}, not a number")
        return number


def read_table(
    path: str | Path,
    text: str = "text",
    pair: str | None = None,
    label: str | None = "label",
    id: str | None = None,  # noqa: A002
    delimiter: str | None = None,
    numeric: bool = False,
    labels: Collection[str] | None = None,
    unlabeled: bool = False,
    skip_broken: bool = False,
) -> list[Labelled]:
    """Texts and labels of a table whose first line names its columns; see `read_rows`.

    A text may be empty. Spaces around a label are removed.

    Args:
        path: a file, `.tsv` or `.csv`.
        text: name of the column with the first text.
        pair: that of the second text; None if there is none.
        label: that of the label; None to read no labels.
        id: that of the examples' ids; by default they are numbered from 0.
        delimiter: between cells, whatever the file name's ending; by default as that says.
        numeric: whether labels are numbers to be predicted (regression), and not names of classes.
        labels: the allowed labels; any by default.
        unlabeled: whether the column of labels, or one of its cells, may be missing: the label is None then.
        skip_broken: whether to skip rows with another number of cells than the first line, or without a label, and
            count them in a warning.

    Raises:
        UserError: for a missing column, another number of cells, an id that comes twice, no example, or a label that is
            not allowed.
    """
    columns = _Columns(text, pair, label, id, numeric, labels, unlabeled)
    rows = read_rows(path, delimiter)
    header = read_header(path, rows, columns.needed, columns.optional)
    examples: dict[str, Labelled] = {}
    broken: list[int] = []
    for number, cells in rows:
        row = dict(zip(header, cells, strict=False))
        if skip_broken and (len(cells) != len(header) or (label and not unlabeled and not row[label])):
            broken.append(number)
            continue
        if len(cells) != len(header):
            raise UserError(f"{path}, line {number} has {len(cells)} cells, and the first line {len(header)}")
        columns.add(row, examples, f"{path}, line {number}")
    if not examples:
        raise UserError(f"{path} has no examples")
    if broken:
        warnings.warn(f"{path}: skipped {len(broken)} broken rows, the first in line {broken[0]}", stacklevel=2)
    return [*examples.values()]


def read_records(
    path: str | Path,
    text: str = "text",
    pair: str | None = None,
    label: str | None = "label",
    id: str | None = None,  # noqa: A002
    numeric: bool = False,
    labels: Collection[str] | None = None,
    unlabeled: bool = False,
) -> list[Labelled]:
    """Texts and labels of a file of objects, JSON lines or Parquet, with the arguments of `read_table`.

    A label that is `true`, `false` or an integer becomes its name, unless `numeric`; `null` is a missing label.

    Raises:
        UserError: for a line that is not a JSON object, a missing value, a text that is not a string, an id that comes
            twice, no example, or a label that is not allowed.
    """
    columns = _Columns(text, pair, label, id, numeric, labels, unlabeled)
    examples: dict[str, Labelled] = {}
    for number, row in read_objects(path, columns.needed, columns.optional):
        columns.add(row, examples, place_of(path, number))
    if not examples:
        raise UserError(f"{path} has no examples")
    return [*examples.values()]
