"""The one exception that is the user's to mend.

A recipe with a misspelt knob, a file that is not there, text that is not UTF-8: these are not bugs, and a traceback
would only hide what to do about them. Whoever finds such a mistake raises `UserError` with one line that names the
file or the knob and the remedy; the command line prints that line and exits with 2. In a notebook it is a ValueError.
"""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake of the user's, told in one line that names what to change.

    >>> raise UserError("corpus/xx.txt is empty: remove it or add text")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: corpus/xx.txt is empty: remove it or add text
    """


class DivergedError(UserError):
    """Training whose loss is no longer a number."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question about the nearest known name, to end a message with; nothing if none is near.

    >>> did_you_mean("STEP", ["STEPS", "SEED"])
    '; did you mean STEPS?'
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1) or [each for each in names if each.lower() == name.lower()][:1]
    return f"; did you mean {close[0]}?" if close else ""


def shortened(value: object, most: int = 60) -> str:
    """A value as a message shows it: in one line, and not the whole of a long one.

    >>> shortened("x" * 100, most=10)
    "'xxxxx ..."
    """
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[: most - 4]} ..."
