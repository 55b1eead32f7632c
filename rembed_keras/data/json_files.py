"""JSON files, trusted or not: what cannot be read is reported in one line that names the file."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rembed_keras.errors import UserError, shortened

SEAL = "record_sha256"  # of an object, the checksum of all else in it


def parse_json(text: str, place: object) -> Any:
    """Parses JSON.

    Args:
        text: the text.
        place: where it is from, to begin an error message with.

    Raises:
        UserError: for text that is not JSON, or has half of a surrogate pair, which cannot be written as UTF-8.
    """
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise UserError(f"{place} is not JSON: it is nested too deeply") from None
    except UnicodeEncodeError:
        raise UserError(f"{place} has half of a surrogate pair, which is not a character") from None
    except ValueError as error:
        raise UserError(f"{place} is not JSON: {error}") from None
    return value


def json_text(value: Any, what: str) -> str:
    """A value as JSON; scalars and arrays of NumPy's as the numbers and lists that they are.

    Args:
        value: the value.
        what: it is, to begin an error message with.

    Raises:
        UserError: for what JSON cannot say.

    >>> json_text({"heads": np.arange(2), "share": np.float32(0.5)}, "an answer")
    '{"heads": [0, 1], "share": 0.5}'
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} is nothing that JSON can say: {error}") from None


def _plain(value):
    """A scalar or an array of NumPy's as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{shortened(value)} is a {type(value).__name__}")


def read_whole_lines(path: Path) -> list[dict]:
    """The JSON objects of a log, one a line; a last line that a kill cut short is left out. None of an absent file.

    Raises:
        UserError: for a whole line that is no JSON object.
    """
    lines = _text_of(path, "utf-8").splitlines(keepends=True) if path.is_file() else []
    rows = [parse_json(line, path) for line in lines if line.endswith("\n")]
    if not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} has a line that is no JSON object")
    return rows


@contextlib.contextmanager
def understood(path: object, what: str) -> Iterator[None]:
    """A block that takes what it needs of a file's JSON.

    Args:
        path: the file, or files.
        what: it should be, as "a ledger".

    Raises:
        UserError: instead of the errors that lacking and malformed values end in.
    """
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
        raise UserError(f"{path} is not {what}: it is damaged, or of another version") from None


def _text_of(path, encoding):
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not JSON: it is not UTF-8") from None


def check_rows(rows: Iterable[Any], fields: Mapping[str, Any], path: Path, what: str = "a row") -> None:
    """Checks that what was read of a file are objects with certain fields.

    Args:
        rows: the objects.
        fields: the type of each field, or types as a union.
        path: the file.
        what: an object's name in an error message.

    Raises:
        UserError: for what is no object, or lacks a field or has another type in it.

    >>> check_rows([{"n": 1}, {"n": True}], {"n": int}, Path("scores.json"))
    Traceback (most recent call last):
    rembed_keras.errors.UserError: scores.json is malformed: n of a row is missing or of the wrong kind: restore it...
    """
    for row in rows:
        for name, kind in fields.items():
            value = row.get(name) if isinstance(row, dict) else ...
            if not isinstance(value, kind) or isinstance(value, bool):
                wrong = f"{name} of {what} is missing or of the wrong kind"
                raise UserError(f"{path} is malformed: {wrong}: restore it, or remove it")


def read_json(path: Path, kind: type = dict) -> Any:
    """Reads a JSON file.

    Args:
        path: the file.
        kind: the type that it must have: dict, list, or object for any.

    Raises:
        UserError: for a file that cannot be read, is not JSON, or has another type.
    """
    value = parse_json(_text_of(path, "utf-8-sig"), path)
    if not isinstance(value, kind):
        raise UserError(f"{path} is not a JSON {'object' if kind is dict else 'array'}")
    return value


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """An object with a checksum of what it says, however its text is laid out.

    >>> is_as_sealed(sealed({"step": 3})), is_as_sealed(sealed({"step": 3}) | {"step": 4})
    (True, False)
    """
    said = {key: value for key, value in record.items() if key != SEAL}
    return said | {SEAL: hashlib.sha256(json.dumps(said).encode()).hexdigest()}


def is_as_sealed(record: Mapping[str, Any]) -> bool:
    """Whether an object says what it said when it was sealed; one that never was, as of earlier versions, is believed.

    >>> is_as_sealed({"step": 3})
    True
    """
    return SEAL not in record or record[SEAL] == sealed(record)[SEAL]
