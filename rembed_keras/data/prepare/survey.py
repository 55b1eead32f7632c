"""The first pass over the text: how much there is of each language, and which paragraphs cleaning keeps.

Each part is read by itself and leaves notes on disk: the totals of its languages and, where cleaning filters, of every
paragraph its language, size, verdict, and the keys it is compared by. Then the notes of each language are compared over
all parts. Memory is bounded: notes are written as they come, and paragraphs are compared in several passes, partitioned
by the remainder of their keys. On disk a paragraph costs 7 bytes, 8 more for deduplication, and 8 per band for
near-duplicates.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Literal

import numpy as np

from rembed_keras.data.prepare.cleaning import (
    DUPLICATE,
    FOREIGN,
    KEPT,
    NEAR_DUPLICATE,
    VERDICTS,
    Cleaning,
    band_keys,
    bands,
    fingerprint,
)
from rembed_keras.data.prepare.sources import Part
from rembed_keras.data.writing import write_atomically

CHUNK = 2000  # paragraphs per write
COMPARED = 2**23  # paragraphs compared in one pass: about 400 MB


def survey(part: Part, folder: Path, cleaning: Cleaning, shard_bytes: int) -> None:
    """Reads a part and writes its notes, unless they are there.

    Args:
        part: what to read.
        folder: of the notes.
        cleaning: the settings.
        shard_bytes: bytes of text per shard.
    """
    totals = folder / f"{part.name}.json"
    if totals.exists():
        return
    languages: dict[str, int] = {}  # and their indices, in order of appearance
    paragraphs: Counter = Counter()
    sizes: Counter = Counter()
    last = total = 0  # bytes of text before the last paragraph, and of all
    dtype = _note_type(cleaning)
    with open(folder / f"{part.name}.notes", "wb") as file:
        stream = cleaning.normalized(part.read())
        while chunk := list(islice(stream, CHUNK)):
            lengths = [len(paragraph.encode("utf-8")) for _, paragraph in chunk]
            for (language, _), length in zip(chunk, lengths, strict=True):
                languages.setdefault(language, len(languages))
                paragraphs[language] += 1
                last, total = total, total + length
                sizes[language] += length
            if cleaning.filters:
                _notes(chunk, lengths, languages, cleaning, dtype).tofile(file)
    found = {name: {"paragraphs": paragraphs[name], "bytes": sizes[name]} for name in languages}
    write_atomically(totals, json.dumps({"shards": last // shard_bytes + 1, "languages": found}))


def _note_type(cleaning):
    """The record of a paragraph."""
    fields: list[tuple] = [("language", "<u2"), ("size", "<u4"), ("verdict", "u1")]
    if cleaning.deduplicate:
        fields.append(("fingerprint", "<u8"))
    if cleaning.near_duplicates is not None:
        fields.append(("bands", "<u8", (bands(cleaning.near_duplicates)[0],)))
    return np.dtype(fields)


def _notes(chunk, lengths, languages, cleaning, dtype):
    notes = np.zeros(len(chunk), dtype)
    notes["language"] = [languages[language] for language, _ in chunk]
    notes["size"] = lengths
    notes["verdict"] = [FOREIGN if cleaning.is_foreign(*each) else KEPT for each in chunk]
    texts = [paragraph for _, paragraph in chunk]
    if cleaning.deduplicate:
        notes["fingerprint"] = [fingerprint(text) for text in texts]
    if cleaning.near_duplicates is not None:
        notes["bands"] = band_keys(texts, cleaning.near_duplicates)
    return notes


def compare(language: str, parts: Sequence[Part], folder: Path, cleaning: Cleaning) -> None:
    """Marks duplicates and near-duplicates among the paragraphs of a language; idempotent.

    Args:
        language: the language.
        parts: all parts that have text of it, in order.
        folder: of the notes.
        cleaning: the settings.
    """
    own = [partial(_rows_of, part, folder, cleaning, list(totals_of(part, folder)).index(language)) for part in parts]
    total = 0
    for read in own:  # one at a time: each holds a file open
        rows, are_own = read()
        verdicts = rows["verdict"]
        verdicts[are_own & (verdicts > FOREIGN)] = KEPT
        total += len(rows)
    if cleaning.deduplicate:
        _mark(own, total, itemgetter("fingerprint"), (KEPT,), DUPLICATE)
    if cleaning.near_duplicates is not None:
        for band in range(bands(cleaning.near_duplicates)[0]):
            _mark(own, total, partial(_band_of, band=band), (KEPT, NEAR_DUPLICATE), NEAR_DUPLICATE)


def _rows_of(part, folder, cleaning, number):
    """The notes of a part, which can be changed, and whether each is of the language of a number."""
    rows = read_notes(part, folder, cleaning, "r+")
    return rows, rows["language"] == number


def _band_of(rows, band):
    return rows["bands"][:, band]


def _mark(own, total, keys_of, compared, verdict):
    """Gives a verdict to all but the first of the paragraphs that share a key."""
    passes = -(-total // COMPARED)
    for remainder in range(passes):
        places, found = [], []
        for read in own:
            rows, are_own = read()
            keys = keys_of(rows)
            is_chosen = are_own & np.isin(rows["verdict"], compared) & (keys % np.uint64(passes) == remainder)
            places.append(np.flatnonzero(is_chosen))
            found.append(np.array(keys[is_chosen]))
        for read, place, is_later in zip(own, places, all_but_first(found), strict=True):
            if is_later.any():
                read()[0]["verdict"][place[is_later]] = verdict


def all_but_first(pieces: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of each piece of a sequence of keys, where keys stand that stand before already, in it or in an earlier piece.

    >>> [each.tolist() for each in all_but_first([np.array([7, 3, 7]), np.array([7, 2])])]
    [[False, False, True], [True, False]]
    """
    keys = np.concatenate(pieces)
    again = np.ones(len(keys), bool)
    again[np.unique(keys, return_index=True)[1]] = False
    return np.split(again, np.cumsum([len(piece) for piece in pieces])[:-1])


def totals_of(part: Part, folder: Path) -> dict[str, dict[str, int]]:
    """What a part has of each language, before cleaning: "paragraphs" and "bytes"."""
    return _totals(part, folder)["languages"]


def num_shards(part: Part, folder: Path) -> int:
    """How many shards a part is split into."""
    return _totals(part, folder)["shards"]


def _totals(part, folder):
    return json.loads((folder / f"{part.name}.json").read_text(encoding="utf-8"))


def count(part: Part, folder: Path, cleaning: Cleaning) -> dict[str, dict[str, int]]:
    """What cleaning keeps of a part, by language: "paragraphs", "bytes", and the number of paragraphs per verdict."""
    totals = totals_of(part, folder)
    if not cleaning.filters:
        return {name: each | {VERDICTS[KEPT]: each["paragraphs"]} for name, each in totals.items()}
    notes = read_notes(part, folder, cleaning)
    counted = {}
    for number, name in enumerate(totals):
        own = notes[notes["language"] == number]
        verdicts = np.bincount(own["verdict"], minlength=len(VERDICTS)).tolist()
        size = int(own["size"][own["verdict"] == KEPT].sum(dtype=np.int64))
        counted[name] = {"paragraphs": verdicts[KEPT], "bytes": size} | dict(zip(VERDICTS, verdicts, strict=True))
    return counted


def read_notes(part: Part, folder: Path, cleaning: Cleaning, mode: Literal["r", "r+"] = "r") -> np.ndarray:
    """The notes of a part, memory-mapped: records of "language", "size", "verdict" and the keys of comparison."""
    path = folder / f"{part.name}.notes"
    dtype = _note_type(cleaning)
    return np.memmap(path, dtype, mode) if path.stat().st_size else np.zeros(0, dtype)


def kept(part: Part, folder: Path, cleaning: Cleaning) -> Iterator[tuple[int, str, str]]:
    """Yields the paragraphs of a part that cleaning keeps.

    Yields:
        Bytes of the part's text before the paragraph, dropped paragraphs included; its language; the paragraph.
    """
    is_kept = read_notes(part, folder, cleaning)["verdict"] == KEPT if cleaning.filters else None
    before = 0
    for number, (language, paragraph) in enumerate(cleaning.normalized(part.read())):
        if is_kept is None or is_kept[number]:
            yield before, language, paragraph
        before += len(paragraph.encode("utf-8"))


def every_nth(
    part: Part, folder: Path, cleaning: Cleaning, steps: Mapping[str, tuple[int, int]]
) -> dict[str, list[str]]:
    """A sample of a part.

    Args:
        part: what to read.
        folder: of the notes.
        cleaning: the settings.
        steps: by language, how many of its paragraphs are kept in the parts before, and n: each n-th is taken.

    Returns:
        The paragraphs, by language, without those that are held out.
    """
    taken: dict[str, list[str]] = {language: [] for language in steps}
    numbers = {language: before for language, (before, _) in steps.items()}
    for _, language, paragraph in kept(part, folder, cleaning):
        if numbers[language] % steps[language][1] == 0 and not cleaning.holds_out(paragraph):
            taken[language].append(paragraph)
        numbers[language] += 1
    return taken
