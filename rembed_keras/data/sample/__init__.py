"""Real text in many languages that comes with the package, so that a first run needs no download.

It is LibreOffice's help in 25 languages, to pre-train on, to find translations in and to label, and the Universal
Declaration of Human Rights in 55; see README.md beside this file for how it was chosen, and each folder's LICENSE.
"""

from pathlib import Path

HERE = Path(__file__).parent


def text_folder() -> Path:
    """Text to pre-train on: `<language>.txt.gz`, one paragraph a line.

    >>> len(list(text_folder().glob("*.txt.gz")))
    25
    """
    return HERE / "text"


def declarations_folder() -> Path:
    """The Universal Declaration of Human Rights: lines of one number translate one another; some are empty."""
    return HERE / "parallel" / "udhr"


def help_folder() -> Path:
    """Sentences of help pages that are not in `text_folder`, parallel by line as `declarations_folder`."""
    return HERE / "parallel" / "help"


def topics_folder() -> Path:
    """A labelled task: which application a paragraph is about; English to train on, 25 languages to test."""
    return HERE / "topics"
