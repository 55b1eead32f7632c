"""The first reading of all text: how much there is of each language, and which paragraphs stay.

Each part is read by itself and leaves notes on disk: the totals of its languages and, where paragraphs may go, of every
paragraph its language, size, verdict, and what it is compared by. Then the notes of each language are compared over all
parts. Memory is bounded: notes are written as they come, and comparing takes only so many paragraphs at once, by the
remainder of what they are compared by, as often as it takes. On disk a paragraph costs 7 bytes, 8 more to find
repetitions, and 8 a band to find likenesses.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from rembed_keras.data.prepare.cleaning import (
    ALIKE,
    FOREIGN,
    KEPT,
    REPEATED,
    VERDICTS,
    Cleaning,
    band_keys,
    bands,
    fingerprint,
)
from rembed_keras.data.prepare.sources import Part

CHUNK = 2000  # paragraphs that are noted together
COMPARED = 2**23  # paragraphs that are compared at once: about 400 MB


def survey(part: Part, folder: Path, cleaning: Cleaning, shard_bytes: int) -> None:
    """Reads a part and writes its notes, unless they are there.

    Args:
        part: what to read.
        folder: of the notes.
        cleaning: what may go.
        shard_bytes: bytes of text a shard.
    """
    totals = folder / f"{part.name}.json"
    if totals.exists():
        return
    languages: dict[str, int] = {}  # and their numbers, in the order in which they come
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
            if cleaning.judges:
                _notes(chunk, lengths, languages, cleaning, dtype).tofile(file)
    found = {name: {"paragraphs": paragraphs[name], "bytes": sizes[name]} for name in languages}
    write_whole(totals, json.dumps({"shards": last // shard_bytes + 1, "languages": found}).encode())


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
    """Finds which paragraphs of a language go because of earlier ones, and notes it; doing it twice changes nothing.

    Args:
        language: whose paragraphs.
        parts: all parts that have some, in order.
        folder: of the notes.
        cleaning: what may go.
    """
    own = [(read_notes(part, folder, cleaning, "r+"), list(totals_of(part, folder)).index(language)) for part in parts]
    total = sum(len(rows) for rows, _ in own)
    for rows, number in own:
        verdicts = rows["verdict"]
        verdicts[(rows["language"] == number) & (verdicts > FOREIGN)] = KEPT
    if cleaning.deduplicate:
        _mark([(rows, rows["fingerprint"], number) for rows, number in own], total, (KEPT,), REPEATED)
    if cleaning.near_duplicates is not None:
        for band in range(bands(cleaning.near_duplicates)[0]):
            _mark([(rows, rows["bands"][:, band], number) for rows, number in own], total, (KEPT, ALIKE), ALIKE)


def _mark(own, total, compared, verdict):
    """Gives a verdict to all but the first of those that have a key in common."""
    passes = -(-total // COMPARED)
    for turn in range(passes):
        places = [
            np.flatnonzero(
                (rows["language"] == number) & np.isin(rows["verdict"], compared) & (keys % np.uint64(passes) == turn)
            )
            for rows, keys, number in own
        ]
        keys = np.concatenate([keys[place] for (_, keys, _), place in zip(own, places, strict=True)])
        again = np.ones(len(keys), bool)
        again[np.unique(keys, return_index=True)[1]] = False
        for (rows, _, _), place in zip(own, places, strict=True):
            rows["verdict"][place[again[: len(place)]]] = verdict
            again = again[len(place) :]


def totals_of(part: Part, folder: Path) -> dict[str, dict[str, int]]:
    """What a part has of each language, before anything goes: "paragraphs" and "bytes"."""
    return _totals(part, folder)["languages"]


def num_shards(part: Part, folder: Path) -> int:
    """How many shards a part is cut into."""
    return _totals(part, folder)["shards"]


def _totals(part, folder):
    return json.loads((folder / f"{part.name}.json").read_text(encoding="utf-8"))


def count(part: Part, folder: Path, cleaning: Cleaning) -> dict[str, dict[str, int]]:
    """What stays of a part, of each language: "paragraphs", "bytes", and paragraphs by the verdict on them."""
    totals = totals_of(part, folder)
    if not cleaning.judges:
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
    """The notes of a part, which stay on disk: records of "language", "size", "verdict" and what is compared."""
    path = folder / f"{part.name}.notes"
    dtype = _note_type(cleaning)
    return np.memmap(path, dtype, mode) if path.stat().st_size else np.zeros(0, dtype)


def forget(part: Part, folder: Path, cleaning: Cleaning) -> None:
    """Takes back what comparing found, which may have been stopped half-way."""
    notes = read_notes(part, folder, cleaning, "r+")
    notes["verdict"][notes["verdict"] > FOREIGN] = KEPT


def kept(part: Part, folder: Path, cleaning: Cleaning) -> Iterator[tuple[int, str, str]]:
    """Yields the paragraphs of a part that stay.

    Yields:
        Bytes of the part's text before a paragraph, those of paragraphs that go among them; its language; and itself.
    """
    stays = read_notes(part, folder, cleaning)["verdict"] == KEPT if cleaning.judges else None
    before = 0
    for number, (language, paragraph) in enumerate(cleaning.normalized(part.read())):
        if stays is None or stays[number]:
            yield before, language, paragraph
        before += len(paragraph.encode("utf-8"))


def every_nth(
    part: Part, folder: Path, cleaning: Cleaning, steps: Mapping[str, tuple[int, int]]
) -> dict[str, list[str]]:
    """A sample of a part.

    Args:
        part: what to read.
        folder: of the notes.
        cleaning: what went.
        steps: by language, how many of its paragraphs stay in parts before this, and n: each n-th is taken.

    Returns:
        The paragraphs, by language.
    """
    taken: dict[str, list[str]] = {language: [] for language in steps}
    numbers = {language: before for language, (before, _) in steps.items()}
    for _, language, paragraph in kept(part, folder, cleaning):
        if numbers[language] % steps[language][1] == 0:
            taken[language].append(paragraph)
        numbers[language] += 1
    return taken


def write_whole(path: Path, data: bytes) -> None:
    """Writes a small file so that it is there whole or not at all."""
    writing = path.with_name(f"{path.name}.writing")
    writing.write_bytes(data)
    writing.replace(path)
