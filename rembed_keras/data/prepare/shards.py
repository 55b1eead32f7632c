"""Shards: files of tokens, each written atomically by one process, and reused after a kill.

A part's text is cut into shards of equal size, measured before cleaning. A shard has its languages one after another,
each as one stream of documents, `[CLS] ... [SEP]`, cut into blocks of equal length; after them come the streams of what
is held out. A note of its contents is written last: where there is a note, there is a shard.
"""

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.sources import Part
from rembed_keras.data.prepare.survey import kept, num_shards
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import first_line

BLOCK = 4096  # tokens a record
CHUNK = 2000  # paragraphs that are tokenized together
NOTE = ".shard"  # between the name of a shard and the ending of its notes
NOTHING = {"paragraphs": 0, "tokens": 0, "first_block": 0}


def write_part(
    part: Part, notes: Path, folder: Path, cleaning: Cleaning, tokenizer: Path, shard_bytes: int, threads: int
) -> int:
    """Writes the shards of a part that are not there yet.

    Args:
        part: the text.
        notes: folder of the survey's notes, and of those of shards.
        folder: of the shards.
        cleaning: the settings.
        tokenizer: the model file.
        shard_bytes: bytes of text per shard.
        threads: of tokenization.

    Returns:
        How many tokens the part has.
    """
    status = tokenizer.stat()
    vocabulary = _load(tokenizer, status.st_mtime_ns, status.st_ino)
    names = shard_names(part, notes)
    tokens = 0
    for number, group in groupby(kept(part, notes, cleaning), lambda each: each[0] // shard_bytes):
        texts = ((cleaning.holds_out(paragraph), language, paragraph) for _, language, paragraph in group)
        note = read_note(notes, names[number]) or write_shard(names[number], texts, notes, folder, vocabulary, threads)
        tokens += sum(each["tokens"] + each.get("held_out", NOTHING)["tokens"] for each in note.values())
    return tokens


def shard_names(part: Part, notes: Path) -> list[str]:
    """Names of a part's shards, in order; one of which cleaning keeps nothing is never written."""
    count = num_shards(part, notes)
    return [part.name] if count == 1 else [f"{part.name}-{number:05}" for number in range(count)]


@lru_cache(1)
def _load(path, *_):
    """A tokenizer, cached for the next part as long as its file is the same."""
    return open_tokenizer(path)


def read_note(notes: Path, name: str) -> dict[str, dict[str, Any]] | None:
    """The note of a shard, see `write_shard`; None if it is not there."""
    path = notes / f"{name}{NOTE}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_shard(
    name: str,
    texts: Iterable[tuple[bool, str, str]],
    notes: Path,
    folder: Path,
    vocabulary: AnyTokenizer,
    threads: int = 1,
) -> dict[str, dict[str, Any]]:
    """Writes a shard, the counts of its pieces, and its note.

    Args:
        name: of its files, without their endings.
        texts: paragraphs in order, each after whether it is held out and its language.
        notes: folder of notes, and of unfinished files.
        folder: of the shards.
        vocabulary: the tokenizer.
        threads: of tokenization.

    Returns:
        The note: for each language its "paragraphs", "tokens", and the index of its "first_block"; and "held_out",
        the same of what is held out, where something is.
    """
    dtype = token_type(vocabulary)
    streams, paragraphs = _tokenize(texts, vocabulary, threads, dtype)
    whole = {stream: np.concatenate(streams.pop(stream)) for stream in sorted(streams)}  # what is held out comes last
    writing = notes / f"{name}{NOTE}.writing"
    _write_blocks(writing, whole.values())
    languages: dict[str, dict[str, Any]] = {language: dict(NOTHING) for language in sorted({each for _, each in whole})}
    counts, first = {language: np.zeros((2, 0), np.int64) for language in languages}, 0
    for (is_held_out, language), stream in whole.items():
        about = {"paragraphs": paragraphs[is_held_out, language], "tokens": len(stream), "first_block": first}
        first += -(-len(stream) // BLOCK)
        if is_held_out:
            languages[language]["held_out"] = about
            continue
        languages[language] |= about
        counted = np.bincount(stream, minlength=vocabulary.vocabulary_size)
        pieces = np.flatnonzero(counted)
        counts[language] = np.stack([pieces, counted[pieces]])
    writing.replace(folder / f"{name}.array_record")
    packed = io.BytesIO()
    np.savez_compressed(packed, *(counts[language] for language in languages))
    write_atomically(notes / f"{name}{NOTE}.npz", packed.getvalue())
    write_atomically(notes / f"{name}{NOTE}.json", json.dumps(languages))
    return languages


def _write_blocks(path, streams):
    """Writes streams of tokens, one block per record."""
    from array_record.python.array_record_module import ArrayRecordWriter

    try:
        writer = ArrayRecordWriter(str(path), "group_size:1,zstd:3")
        for stream in streams:
            for start in range(0, len(stream), BLOCK):
                writer.write(stream[start : start + BLOCK].tobytes())
        writer.close()
    except RuntimeError as error:  # how ArrayRecord reports a full disk
        raise OSError(first_line(error)) from None


def token_type(vocabulary: AnyTokenizer) -> np.dtype:
    """How a token is stored."""
    return np.dtype("<u2" if vocabulary.vocabulary_size <= 2**16 else "<u4")


def _tokenize(texts, vocabulary, threads, dtype):
    """The tokens of each stream, in chunks, and its number of paragraphs; see `_chunks`."""
    streams: dict[tuple[bool, str], list[np.ndarray]] = defaultdict(list)
    paragraphs: dict[tuple[bool, str], int] = defaultdict(int)
    for stream, own in _chunks(texts):
        streams[stream].append(vocabulary.encode_documents(own, threads).astype(dtype))
        paragraphs[stream] += len(own)
    return streams, paragraphs


def _chunks(texts) -> Iterator[tuple[tuple[bool, str], list[str]]]:
    """Yields chunks of a few thousand texts, grouped by whether they are held out and their language."""
    texts = iter(texts)
    while chunk := list(islice(texts, CHUNK)):
        own = defaultdict(list)
        for is_held_out, language, paragraph in chunk:
            own[is_held_out, language].append(paragraph)
        yield from own.items()


def add_counts(notes: Path, name: str, counts: Mapping[str, np.ndarray]) -> None:
    """Adds the piece counts of a shard to those of its languages."""
    with np.load(notes / f"{name}{NOTE}.npz", allow_pickle=False) as packed:
        for language, array in zip(read_note(notes, name) or (), packed.files, strict=True):
            pieces, counted = packed[array]
            counts[language][pieces] += counted
