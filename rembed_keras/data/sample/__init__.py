"""Real text in many languages that comes with the package, so that a first run needs no download.

It is LibreOffice's help in 25 languages, for pre-training, bitext retrieval and classification, and the Universal
Declaration of Human Rights in 55; README.md beside this file says how it was chosen, each folder's LICENSE its licence.
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
    """The Universal Declaration of Human Rights, parallel by line; lines without a translation are empty."""
    return HERE / "parallel" / "udhr"


def help_folder() -> Path:
    """Sentences of help pages that are not in `text_folder`, parallel by line like `declarations_folder`."""
    return HERE / "parallel" / "help"


def topics_folder() -> Path:
    """A classification task: which application a paragraph is about; English training data, tests in 25 languages."""
    return HERE / "topics"
