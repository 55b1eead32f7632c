"""JSON that may be anybody's: what cannot be read is told in one line that names its place."""

import json
from pathlib import Path
from typing import Any

from rembed_keras.errors import UserError


def parse_json(text: str, place: object) -> Any:
    """What a text in JSON says.

    Args:
        text: the text.
        place: where it stands, to begin a message with.

    Raises:
        UserError: for what is no JSON, or holds half of a surrogate pair, which no file can be written with.
    """
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise UserError(f"{place} is not JSON: brackets in brackets are too many") from None
    except UnicodeEncodeError:
        raise UserError(f"{place} has half of a surrogate pair, which is no character") from None
    except ValueError as error:
        raise UserError(f"{place} is not JSON: {error}") from None
    return value


def read_json(path: Path, kind: type = dict) -> Any:
    """What a file in JSON says.

    Args:
        path: the file.
        kind: of what it should be: dict, list, or object for anything.

    Raises:
        UserError: for a file that cannot be read, is no JSON, or something else.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not JSON: it is not UTF-8") from None
    value = parse_json(text, path)
    if not isinstance(value, kind):
        raise UserError(f"{path} is not a JSON {'object' if kind is dict else 'array'}")
    return value
