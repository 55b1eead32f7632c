"""Shards: files of tokens, each written whole by one process, and found again after a kill.

A part's text is cut into shards of so many bytes, by what is read and not by what stays of it. In a shard the languages
stand one after another, each as one stream of documents, `[CLS] ... [SEP]`, cut into blocks of equal length. Beside it
stands a note of what is in it, written last: where there is a note, there is a shard.
"""

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.sources import Part
from rembed_keras.data.prepare.survey import kept, num_shards, write_whole
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer

BLOCK = 4096  # tokens a record
CHUNK = 2000  # paragraphs that are tokenized together


def write_part(
    part: Part, notes: Path, folder: Path, cleaning: Cleaning, tokenizer: Path, shard_bytes: int, threads: int
) -> int:
    """Writes the shards of a part that are not there yet.

    Args:
        part: whose text.
        notes: folder of the survey's notes, and of those of shards.
        folder: of the shards.
        cleaning: what went.
        tokenizer: the model file.
        shard_bytes: bytes of text a shard.
        threads: that tokenize.

    Returns:
        How many tokens the part has.
    """
    status = tokenizer.stat()
    vocabulary = _load(tokenizer, status.st_mtime_ns, status.st_ino)
    names = shard_names(part, notes)
    tokens = 0
    for number, group in groupby(kept(part, notes, cleaning), lambda each: each[0] // shard_bytes):
        texts = ((language, paragraph) for _, language, paragraph in group)
        note = read_note(notes, names[number]) or write_shard(names[number], texts, notes, folder, vocabulary, threads)
        tokens += sum(each["tokens"] for each in note.values())
    return tokens


def shard_names(part: Part, notes: Path) -> list[str]:
    """Names of a part's shards, in order; one of which nothing stays is never written."""
    count = num_shards(part, notes)
    return [part.name] if count == 1 else [f"{part.name}-{number:05}" for number in range(count)]


@lru_cache(1)
def _load(path, *_):
    """A tokenizer, which stays loaded for the next part as long as its file is the same."""
    return Tokenizer(path)


def read_note(notes: Path, name: str) -> dict[str, dict[str, int]] | None:
    """What is in a shard, see `write_shard`; None if it is not there."""
    path = notes / f"{name}.shard.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_shard(
    name: str, texts: Iterable[tuple[str, str]], notes: Path, folder: Path, vocabulary: Tokenizer, threads: int = 1
) -> dict[str, dict[str, int]]:
    """Writes a shard, how often each piece stands in it, and the note of it.

    Args:
        name: of its files, without their endings.
        texts: languages and paragraphs, in order.
        notes: folder of notes, and of what is not whole yet.
        folder: where the shard goes to.
        vocabulary: makes tokens of text.
        threads: that tokenize.

    Returns:
        The note: of each language its "paragraphs", "tokens", and the number of its "first_block".
    """
    dtype = token_type(vocabulary)
    streams, paragraphs = _tokenize(texts, vocabulary, threads, dtype)
    whole = {language: np.concatenate(streams.pop(language)) for language in sorted(streams)}
    writing = notes / f"{name}.shard.writing"
    _write_blocks(writing, whole.values())
    languages, counts, first = {}, {}, 0
    for language, stream in whole.items():
        languages[language] = {"paragraphs": paragraphs[language], "tokens": len(stream), "first_block": first}
        first += -(-len(stream) // BLOCK)
        counted = np.bincount(stream, minlength=vocabulary.vocabulary_size)
        pieces = np.flatnonzero(counted)
        counts[language] = np.stack([pieces, counted[pieces]])
    writing.replace(folder / f"{name}.array_record")
    packed = io.BytesIO()
    np.savez_compressed(packed, *(counts[language] for language in languages))
    write_whole(notes / f"{name}.shard.npz", packed.getvalue())
    write_whole(notes / f"{name}.shard.json", json.dumps(languages).encode())
    return languages


def _write_blocks(path, streams):
    """Writes streams of tokens, a block a record."""
    from array_record.python.array_record_module import ArrayRecordWriter

    try:
        writer = ArrayRecordWriter(str(path), "group_size:1,zstd:3")
        for stream in streams:
            for start in range(0, len(stream), BLOCK):
                writer.write(stream[start : start + BLOCK].tobytes())
        writer.close()
    except RuntimeError as error:  # how ArrayRecord says that the disk is full
        raise OSError(str(error).splitlines()[0]) from None


def token_type(vocabulary: Tokenizer) -> np.dtype:
    """How a token is stored."""
    return np.dtype("<u2" if vocabulary.vocabulary_size <= 2**16 else "<u4")


def _tokenize(texts, vocabulary, threads, dtype):
    """The tokens of each language, in pieces, and how many paragraphs they are."""
    streams: dict[str, list[np.ndarray]] = defaultdict(list)
    paragraphs: dict[str, int] = defaultdict(int)
    for language, own in _chunks(texts):
        streams[language].append(vocabulary.encode_documents(own, threads).astype(dtype))
        paragraphs[language] += len(own)
    return streams, paragraphs


def _chunks(texts) -> Iterator[tuple[str, list[str]]]:
    """Yields texts by the thousand, those of each language together."""
    texts = iter(texts)
    while chunk := list(islice(texts, CHUNK)):
        own = defaultdict(list)
        for language, paragraph in chunk:
            own[language].append(paragraph)
        yield from own.items()


def add_counts(notes: Path, name: str, counts: Mapping[str, np.ndarray]) -> None:
    """Adds how often pieces stand in a shard to the counts of its languages."""
    with np.load(notes / f"{name}.shard.npz", allow_pickle=False) as packed:
        for language, array in zip(read_note(notes, name) or (), packed.files, strict=True):
            pieces, counted = packed[array]
            counts[language][pieces] += counted
