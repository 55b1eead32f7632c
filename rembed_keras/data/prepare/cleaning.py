"""What is done to text before it is tokenized, by choice: one Unicode form, no repetitions, no foreign paragraphs.

Everything here is about one paragraph: what it becomes, what it is compared by, whether it is of its language. So the
local way and Apache Beam's are the same functions. Who is dropped is defined by order, not by chance: of paragraphs of
a language that are alike, the first of the text stays.
"""

import hashlib
import importlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from rembed_keras.errors import UserError

UNICODE_FORMS = ("NFC", "NFKC")
KEPT, FOREIGN, REPEATED, ALIKE = range(4)  # verdicts on a paragraph
VERDICTS = ("kept", "of another language", "repeated", "nearly repeated")
HASHES = 128  # of a paragraph's shingles, for near duplicates
SHINGLE = 5  # characters
SAME = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}  # codes that the model has under one, or tells apart badly


@dataclass(frozen=True)
class Cleaning:
    """What is asked for; nothing by default.

    Attributes:
        unicode_form: "NFC" or "NFKC", or None to leave text as it is.
        deduplicate: whether of equal paragraphs of a language the first alone stays.
        near_duplicates: over 0 and at most 1: a paragraph goes if it is about as like an earlier one as this, by the
            share of their five-letter shingles that both have (Jaccard). MinHash and banding decide, so likeness is
            judged by chance that grows steeply near this number; see `bands`. The extra `clean` brings rensa for it.
        language_threshold: over 0 and at most 1: a paragraph goes if it is of another language than its own with at
            least this probability. A language that the model does not know passes whole. The extra `clean` brings
            py3langid and its model of 140 languages for it.

    Raises:
        UserError: for a setting that makes no sense, or a library that is not installed.

    Source: Broder 1997, "On the resemblance and containment of documents", for MinHash; Lui & Baldwin 2012,
    "langid.py", for languages.
    """

    unicode_form: Literal["NFC", "NFKC"] | None = None
    deduplicate: bool = False
    near_duplicates: float | None = None
    language_threshold: float | None = None

    def __post_init__(self):
        if self.unicode_form not in (None, *UNICODE_FORMS):
            raise UserError(f"unicode_form is {self.unicode_form!r}; it must be one of {', '.join(UNICODE_FORMS)}")
        for name in ("near_duplicates", "language_threshold"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value <= 1):
                raise UserError(f"{name} is {value!r}; it must be over 0 and at most 1")
        if self.near_duplicates is not None:
            _library("rensa", "near duplicates")
        if self.language_threshold is not None:
            _library("py3langid.langid", "language identification")

    @property
    def judges(self) -> bool:
        """Whether it may drop paragraphs."""
        return self.compares or self.language_threshold is not None

    @property
    def compares(self) -> bool:
        """Whether a paragraph may go because of another."""
        return self.deduplicate or self.near_duplicates is not None

    def settings(self) -> dict[str, object]:
        """What a manifest says of it: settings that do something, and versions that matter."""
        made = {name: value for name, value in asdict(self).items() if value not in (None, False)}
        if self.near_duplicates is not None:
            made["minhash"] = f"rensa.RMinHash {_library('rensa', '').RMinHash.ALGORITHM_VERSION}"
        if self.language_threshold is not None:
            made["identifier"] = f"py3langid {_library('py3langid', '').__version__}"
        return made

    def normalized(self, paragraphs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yields languages and paragraphs in the form that was asked for; what is nothing then is left out."""
        if self.unicode_form is None:
            yield from paragraphs
            return
        for language, paragraph in paragraphs:
            text = unicodedata.normalize(self.unicode_form, paragraph).strip()
            if text:
                yield language, text

    def is_foreign(self, language: str, paragraph: str) -> bool:
        """Whether a paragraph is of another language than it should be."""
        return self.language_threshold is not None and foreign(language, paragraph) >= self.language_threshold


def fingerprint(paragraph: str) -> int:
    """64 bits that tell a paragraph from others: among a billion two unlike ones meet with a chance of 3 in 100.

    >>> fingerprint("Guten Tag") == fingerprint("Guten Tag"), fingerprint("Guten Tag") < 2**64
    (True, True)
    """
    return int.from_bytes(hashlib.blake2b(paragraph.encode("utf-8"), digest_size=8).digest(), "little")


@lru_cache
def bands(likeness: float) -> tuple[int, int]:
    """How a paragraph's hashes are cut into bands, so that paragraphs as like as this are found and others are not.

    Two paragraphs meet in a band with a chance of 1 - (1 - s ** rows) ** bands, where s is their likeness. The cut is
    the one with the least sum of false chances on both sides.

    Args:
        likeness: the Jaccard index from which on paragraphs are too like.

    Returns:
        Number of bands, and rows in each.

    Source: Leskovec, Rajaraman & Ullman, "Mining of Massive Datasets", section 3.4.

    Example:
        >>> bands(0.8)
        (9, 13)
    """
    grid = np.linspace(0, 1, 1001)

    def wrong(count, rows):
        meets = 1 - (1 - grid**rows) ** count
        return meets[grid < likeness].sum() + (1 - meets[grid >= likeness]).sum()

    cuts = [(count, rows) for count in range(1, HASHES + 1) for rows in range(1, HASHES // count + 1)]
    return min(cuts, key=lambda cut: wrong(*cut))


def band_keys(paragraphs: list[str], likeness: float) -> np.ndarray:
    """What paragraphs have in common with those that are like them, uint64 [N, bands].

    A paragraph is its set of shingles, in small letters and with single blanks; a short one is one shingle.
    """
    count, rows = bands(likeness)
    rensa = _library("rensa", "near duplicates")
    signatures = np.empty((len(paragraphs), count * rows), np.uint32)
    for place, paragraph in enumerate(paragraphs):
        text = " ".join(paragraph.casefold().split())
        sketch = rensa.RMinHash(num_perm=HASHES, seed=1)
        sketch.update([text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))])
        signatures[place] = sketch.digest()[: count * rows]
    flat = signatures.reshape(-1, rows)
    keys = [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little") for row in flat]
    return np.array(keys, np.uint64).reshape(len(paragraphs), count)


def foreign(language: str, paragraph: str) -> float:
    """The probability of the most likely other language; 0 for a language that the model does not know.

    Args:
        language: a tag such as "de", "pt-BR" or "zh-Hant", of which what stands before "-" or "_" counts.
        paragraph: text.
    """
    own = language.replace("_", "-").partition("-")[0].lower()
    own = SAME.get(own, own)
    if not knows(own):
        return 0.0
    shares = {label: share for label, share in _identifier().rank(paragraph) if SAME.get(label, label) != own}
    return max(shares.values())


@lru_cache
def knows(language: str) -> bool:
    """Whether the language model knows a language."""
    return any(SAME.get(label, label) == language for label in _identifier().labels)


@lru_cache
def _identifier() -> Any:
    library = _library("py3langid.langid", "language identification")
    return library.LanguageIdentifier.from_model_file(library.MODEL_FILE, norm_probs=True)


def _library(name, what) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"{name.partition('.')[0]} is not installed, for {what}: pip install 'rembed-keras[clean]'"
        ) from None
