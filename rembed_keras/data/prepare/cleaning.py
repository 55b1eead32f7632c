"""Optional cleaning of text before tokenization: Unicode normalization, deduplication, language identification; and
which paragraphs are held out.

Everything here is about one paragraph: its normal form, the keys it is compared by, whether it is of its language. So
the local preparation and Apache Beam's share their functions. What is dropped is defined by order, not by chance: of
duplicate paragraphs of a language, the first in the text stays; and what is held out follows from its text alone.
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
KEPT, FOREIGN, DUPLICATE, NEAR_DUPLICATE = range(4)  # verdicts on a paragraph
VERDICTS = ("kept", "of another language", "repeated", "nearly repeated")  # as manifests have them
VERDICT_TITLES = ("kept", "other language", "duplicate", "near-duplicate")  # as tables show them
HASHES = 128  # of a paragraph's shingles, for near-duplicates
SHINGLE = 5  # characters
SAME = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}  # codes that the model has under one, or confuses
SEEN_SCRIPTS = {"hans", "hant"}  # that tags name, and of which the model saw one as well as the other


@dataclass(frozen=True)
class Cleaning:
    """Settings of cleaning; nothing is cleaned by default.

    Attributes:
        unicode_form: "NFC" or "NFKC", or None to leave text as it is.
        deduplicate: whether to drop exact duplicates: all but the first of equal paragraphs of a language.
        near_duplicates: threshold, greater than 0 and at most 1: a paragraph is dropped if its Jaccard similarity to an
            earlier one, over five-character shingles, is about this or more. MinHash with banding decides, so the
            chance to be dropped rises steeply near the threshold; see `bands`. Needs rensa, from the extra `clean`.
        language_threshold: greater than 0 and at most 1: a paragraph is dropped if it is of another language with at
            least this probability. Languages that the model does not know are not filtered, nor those whose tag names
            a script, as "az-Cyrl", but Chinese. Needs py3langid, whose model knows 140 languages, from the extra
            `clean`.
        held_out: share of the paragraphs that is held out: no step trains on them, and evaluation reads them.

    Raises:
        UserError: for a setting out of range, or a library that is not installed.

    Source: Broder 1997, "On the resemblance and containment of documents", for MinHash; Lui & Baldwin 2012,
    "langid.py", for languages.
    """

    unicode_form: Literal["NFC", "NFKC"] | None = None
    deduplicate: bool = False
    near_duplicates: float | None = None
    language_threshold: float | None = None
    held_out: float = 0.0

    def __post_init__(self):
        if self.unicode_form not in (None, *UNICODE_FORMS):
            raise UserError(f"unicode_form is {self.unicode_form!r}; it must be one of {', '.join(UNICODE_FORMS)}")
        for name in ("near_duplicates", "language_threshold"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value <= 1):
                raise UserError(f"{name} is {value!r}; it must be greater than 0 and at most 1")
        if not (isinstance(self.held_out, int | float) and 0 <= self.held_out < 1):
            raise UserError(f"held_out is {self.held_out!r}; it must be at least 0 and less than 1")
        if self.near_duplicates is not None:
            _library("rensa", "near-duplicates")
        if self.language_threshold is not None:
            _library("py3langid.langid", "language identification")

    @property
    def filters(self) -> bool:
        """Whether it may drop paragraphs."""
        return self.compares or self.language_threshold is not None

    @property
    def compares(self) -> bool:
        """Whether it drops duplicates or near-duplicates."""
        return self.deduplicate or self.near_duplicates is not None

    def settings(self) -> dict[str, object]:
        """The manifest's entry: settings that differ from the default, and versions of libraries."""
        made = {name: value for name, value in asdict(self).items() if value not in (None, False)}
        if self.near_duplicates is not None:
            made["minhash"] = f"rensa.RMinHash {_library('rensa', '').RMinHash.ALGORITHM_VERSION}"
        if self.language_threshold is not None:
            made["identifier"] = f"py3langid {_library('py3langid', '').__version__}"
        return made

    def normalized(self, paragraphs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yields languages and normalized paragraphs, without those that become empty."""
        if self.unicode_form is None:
            yield from paragraphs
            return
        for language, paragraph in paragraphs:
            text = unicodedata.normalize(self.unicode_form, paragraph).strip()
            if text:
                yield language, text

    def is_foreign(self, language: str, paragraph: str) -> bool:
        """Whether a paragraph is identified as another language than its own."""
        return self.language_threshold is not None and foreign(language, paragraph) >= self.language_threshold

    def holds_out(self, paragraph: str) -> bool:
        """Whether a paragraph is held out.

        It follows from the paragraph's text, without case, compatibility forms and white space: of equal paragraphs, in
        whatever languages, parts and corpora, all are held out or none. A higher share holds out those of a lower one.

        >>> held = [n for n in range(1000) if Cleaning(held_out=0.1).holds_out(f"Paragraph {n}.")]
        >>> len(held), Cleaning(held_out=0.1).holds_out(f" PARAGRAPH  {held[0]}. ")
        (118, True)
        """
        if not self.held_out:
            return False
        text = " ".join(unicodedata.normalize("NFKC", paragraph).casefold().split())
        drawn = hashlib.blake2b(text.encode("utf-8"), digest_size=8, person=b"held out").digest()
        return int.from_bytes(drawn, "little") < self.held_out * 2**64


def fingerprint(paragraph: str) -> int:
    """A 64-bit hash of a paragraph; among a billion paragraphs a collision has a probability of 3 %.

    >>> fingerprint("Guten Tag") == fingerprint("Guten Tag"), fingerprint("Guten Tag") < 2**64
    (True, True)
    """
    return int.from_bytes(hashlib.blake2b(paragraph.encode("utf-8"), digest_size=8).digest(), "little")


@lru_cache
def bands(threshold: float) -> tuple[int, int]:
    """How MinHash signatures are split into bands, so that pairs above a similarity are found and others are not.

    Two paragraphs share a band with a probability of 1 - (1 - s ** rows) ** bands, where s is their similarity. The
    split is the one with the least sum of false positive and false negative probabilities.

    Args:
        threshold: the Jaccard similarity from which on paragraphs are near-duplicates.

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
        return meets[grid < threshold].sum() + (1 - meets[grid >= threshold]).sum()

    cuts = [(count, rows) for count in range(1, HASHES + 1) for rows in range(1, HASHES // count + 1)]
    return min(cuts, key=lambda cut: wrong(*cut))


def band_keys(paragraphs: list[str], threshold: float) -> np.ndarray:
    """Hashes of the bands of each paragraph, of which near-duplicates share one or more, uint64 [N, bands].

    A paragraph is its set of shingles, in lower case and with single spaces; a short one is one shingle.
    """
    count, rows = bands(threshold)
    rensa = _library("rensa", "near-duplicates")
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
        language: a tag such as "de", "pt-BR" or "zh-Hant", of which the part before "-" or "_" counts. One that names a
            script, as "az-Cyrl", is not known: text in another script than the model saw is of other languages to it.
        paragraph: text.
    """
    own, *others = language.replace("_", "-").split("-")
    own = SAME.get(own.lower(), own.lower())
    scripts = {part.lower() for part in others if len(part) == 4 and part.isalpha()}
    if not knows(own) or scripts - SEEN_SCRIPTS:
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
