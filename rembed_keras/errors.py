"""The exception for users' mistakes, and the ranges of numbers that users give.

A recipe with a misspelled knob, a missing file, text that is not UTF-8: these are not bugs, and a traceback would only
hide the remedy. Whatever code detects such a mistake raises `UserError` with one line that names the file or the knob
and the remedy; the command line prints that line and exits with 2. In a notebook it is a ValueError.
"""

import difflib
import math
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

SEEDS = 2**32  # number of distinct seeds of NumPy
FORMER_NAMES = {"FINETUNE_WAYS": "FINETUNE_METHODS", "ways": "methods"}  # of knobs and parameters

IN_A_LAYER = re.compile(r"Exception encountered when calling [^\n]*\n\n\x1b\[1m(.*?)\x1b\[0m\n", re.DOTALL)

# ranges of numbers, as annotations that are checked when a recipe is read, see `config.recipes.annotations`
Count: TypeAlias = int
CountOrZero: TypeAlias = int
Seed: TypeAlias = int
Rate: TypeAlias = float
Share: TypeAlias = float
BelowOne: TypeAlias = float
RANGES: dict[str, tuple[str, Callable[[int | float], bool]]] = {
    "Count": ("a positive whole number", lambda value: isinstance(value, int) and value > 0),
    "CountOrZero": ("a whole number of at least 0", lambda value: isinstance(value, int) and value >= 0),
    "Seed": ("a whole number from 0 to 2**32 - 1", lambda value: isinstance(value, int) and 0 <= value < SEEDS),
    "Rate": ("a number of at least 0", lambda value: 0 <= value < math.inf),
    "Share": ("a number from 0 to 1", lambda value: 0 <= value <= 1),
    "BelowOne": ("a number of at least 0 and below 1", lambda value: 0 <= value < 1),
}


class UserError(ValueError):
    """A user's mistake, reported in one line that names the remedy.

    Args:
        message: the line; what Keras puts around that of an error inside a layer, all its arguments, is left out.

    >>> raise UserError("corpus/xx.txt is empty: remove it or add text")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: corpus/xx.txt is empty: remove it or add text
    """

    ag_pass_through = True  # for TensorFlow's AutoGraph, which would raise an error of its own around it

    def __init__(self, message: str = ""):
        found = IN_A_LAYER.match(message)
        super().__init__(found[1] if found else message)


class DivergedError(UserError):
    """Training whose loss is non-finite."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion of the nearest known name, to end a message with; "" if none is near.

    >>> did_you_mean("STEP", ["STEPS", "SEED"])
    '; did you mean STEPS?'
    >>> did_you_mean("DTYPE", ["FINETUNE_DTYPE", "SEED"])
    '; did you mean FINETUNE_DTYPE?'
    """
    names = list(known)
    if FORMER_NAMES.get(name) in names:
        return f"; did you mean {FORMER_NAMES[name]}?"
    close = difflib.get_close_matches(name, names, n=1) or [
        each for each in names if each.lower() == name.lower() or each.endswith(f"_{name}")
    ]
    return f"; did you mean {close[0]}?" if close else ""


def shortened(value: object, most: int = 60) -> str:
    """A value for a message: on one line, shortened if it is long.

    >>> shortened("x" * 100, most=10)
    "'xxxxx ..."
    """
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[: most - 4]} ..."


def with_article(noun: str) -> str:
    """A noun with its indefinite article.

    >>> with_article("Evaluator"), with_article("Task")
    ('an Evaluator', 'a Task')
    """
    return f"{'an' if noun[:1] in 'AEIOUaeiou' else 'a'} {noun}"


def is_within(value: object, kind: str) -> bool:
    """Whether a value is a number in one of the `RANGES`.

    >>> is_within(0, "Count"), is_within(0, "Seed"), is_within(True, "Count"), is_within(float("nan"), "Rate")
    (False, True, False, False)
    """
    _, is_in = RANGES[kind]
    return isinstance(value, int | float) and not isinstance(value, bool) and is_in(value)


def check_counts(counts: Mapping[str, object], kind: str = "Count") -> None:
    """Checks numbers, such as of steps or outputs, against a range.

    Args:
        counts: the numbers by their names in messages.
        kind: which of the `RANGES` they must be in.

    Raises:
        UserError: for a number out of range.

    >>> check_counts({"STEPS": 0})
    Traceback (most recent call last):
    rembed_keras.errors.UserError: STEPS is 0; it must be a positive whole number
    """
    for name, count in counts.items():
        if not is_within(count, kind):
            raise UserError(f"{name} is {shortened(count)}; it must be {RANGES[kind][0]}")


def check_spelled_out(name: str, folder: str) -> None:
    """Checks that a folder's name has no ~ for a home, of which a folder would be made, or nothing be known.

    Args:
        name: what says it, for the message.
        folder: the folder.

    Raises:
        UserError: for one that begins with ~.

    >>> check_spelled_out("WORKDIR", "~/run")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: WORKDIR ~/run begins with ~, which no shell has replaced: write the folder in full
    """
    if folder.startswith("~"):
        raise UserError(f"{name} {folder} begins with ~, which no shell has replaced: write the folder in full")


def check_lists(lists: Mapping[str, Sequence[object]]) -> None:
    """Checks lists of what there is one model each of, such as seeds.

    Args:
        lists: the lists by their names in messages.

    Raises:
        UserError: for a list that is empty or has a value twice.

    >>> check_lists({"seeds": (0, 0)})
    Traceback (most recent call last):
    rembed_keras.errors.UserError: seeds is (0, 0); it must have one value or more, and each once
    """
    for name, values in lists.items():
        written = [f"{value:g}" if isinstance(value, float) else repr(value) for value in values]  # as folders have it
        if not 0 < len(written) == len(set(written)):
            raise UserError(f"{name} is {shortened(values)}; it must have one value or more, and each once")


def first_line(error: BaseException) -> str:
    r"""What an error says, in a line; the name of its class if it says nothing.

    >>> first_line(ValueError("no text: see below\nmore")), first_line(TimeoutError())
    ('no text: see below', 'TimeoutError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def import_failure(error: BaseException) -> str:
    """Why a module cannot be imported, with the line of it that is to blame, where there is a file."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f" ({place.filename}, line {place.lineno})" if Path(place.filename).is_file() else ""
    return f"{type(error).__name__}: {error}".splitlines()[0] + where
