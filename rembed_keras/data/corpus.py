"""Text becomes token shards, once: what pre-training reads, and a manifest of where it came from.

A corpus is a folder: the tokenizer, one ArrayRecord file of tokens a language, the counts of every piece, and
`manifest.json` with checksums of the sources and of what was made of them. Every paragraph is a document,
`[CLS] ... [SEP]`, and a language is one long stream of documents, cut into blocks of equal length, so that any slice of
it can be had at once. A corpus is written beside its place and renamed: it is there whole or not at all.
"""

import itertools
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from rembed_keras.data.text import read_paragraphs, sha256, text_files
from rembed_keras.data.tokenizer import Tokenizer, train_tokenizer
from rembed_keras.errors import UserError
from rembed_keras.json_files import read_json

FORMAT = 1
DTYPES = ("<u2", "<u4")  # of tokens
BLOCK = 4096  # tokens a record
CACHED_BLOCKS = 2**15  # records that stay in memory once they were read: 256 MB, or 512 with many pieces
SAMPLE_BYTES = 24_000_000  # of text that a tokenizer learns from


class Corpus:
    """A prepared corpus, read at random.

    Args:
        path: the folder that `prepare` wrote.

    Attributes:
        manifest: what `manifest.json` says.
        languages: names, sorted.
        num_tokens: tokens of each language.

    Raises:
        UserError: if the folder holds no whole corpus.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self.manifest = read_json(self.path / "manifest.json")
        except UserError:
            raise UserError(f"{self.path} is not a prepared corpus: make one with `rembed prepare`") from None
        if self.manifest.get("format") != FORMAT:
            raise UserError(f"corpus {self.path} is of another version of rembed_keras: prepare it again")
        _check(self.manifest, self.path / "manifest.json")
        self.languages: list[str] = sorted(self.manifest["languages"])
        self.num_tokens: dict[str, int] = {name: self.manifest["languages"][name]["tokens"] for name in self.languages}
        self._readers: dict = {}
        self._block = lru_cache(CACHED_BLOCKS)(self._read_block)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the tokens."""
        return Tokenizer(self.path / "tokenizer.model")

    @cached_property
    def _counts(self):
        path = self.path / "counts.npy"
        try:
            counts = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            counts = np.zeros(0)
        if counts.ndim != 2 or len(counts) != len(self.languages):
            raise UserError(f"{path} is damaged or missing: remove the corpus and prepare it again")
        return counts

    def unigram_counts(self, language: str) -> np.ndarray:
        """How often each piece stands in the text of a language, int64 [V]."""
        return self._counts[self.languages.index(language)]

    def tokens(self, language: str, start: int, count: int) -> np.ndarray:
        """Tokens `start` up to `start + count` of a language's stream, which begins anew after its end.

        Args:
            language: one of `languages`.
            start: index of the first token, from 0; counted modulo the stream's length.
            count: how many.

        Returns:
            int32 [count].
        """
        size = self.num_tokens[language]
        start, parts = start % size, []
        while count > 0:
            block, offset = divmod(start, BLOCK)
            part = self._block(language, block)[offset : offset + count]
            parts.append(part)
            start, count = (start + len(part)) % size, count - len(part)
        return np.concatenate(parts or [[]], dtype=np.int32, casting="unsafe")

    def _read_block(self, language, index):
        if language not in self._readers:
            from array_record.python.array_record_data_source import ArrayRecordDataSource

            file = self.manifest["languages"][language]["file"]
            self._readers[language] = ArrayRecordDataSource(str(self.path / file))
        return np.frombuffer(self._readers[language][index], dtype=self.manifest["dtype"])

    def verify(self) -> None:
        """Reads every file and compares it with its checksum.

        Raises:
            UserError: naming the first file that is missing or damaged.
        """
        for name, expected in self.manifest["files"].items():
            path = self.path / name
            if not path.exists() or sha256(path) != expected:
                raise UserError(f"{path} is damaged or missing: remove the corpus and prepare it again")


def _check(manifest, path):
    """Judges what a manifest says before it is believed: files beside it, and as many tokens as there can be."""
    languages, files = manifest.get("languages"), manifest.get("files")
    fault = (
        not isinstance(files, dict)
        or any(Path(name).name != name or name == ".." for name in files)
        or manifest.get("dtype") not in DTYPES
        or manifest.get("block") != BLOCK
    )
    if fault or not isinstance(languages, dict) or not languages:
        raise UserError(f"{path} is damaged: remove the corpus and prepare it again")
    for language, about in languages.items():
        tokens, file = (about.get(key) if isinstance(about, dict) else None for key in ("tokens", "file"))
        is_there = isinstance(file, str) and file in files
        if not is_there or type(tokens) is not int or not 0 < tokens < 2**63:
            raise UserError(f"{path} is damaged at {language}: remove the corpus and prepare it again")


def prepare(
    text_dir: str | Path,
    out_dir: str | Path,
    vocabulary_size: int = 8000,
    tokenizer: str | Path | None = None,
    byte_fallback: bool = False,
) -> Corpus:
    """Makes a corpus of a folder of text, or finds that it is made already.

    Args:
        text_dir: folder of `<language>.txt` or `.txt.gz`, UTF-8, one paragraph a line.
        out_dir: the corpus's folder.
        vocabulary_size: V of the tokenizer that is trained.
        tokenizer: a SentencePiece model to use instead of training one.
        byte_fallback: whether a trained tokenizer spells rare characters as bytes, instead of [UNK].

    Raises:
        UserError: for text, a tokenizer or a folder that cannot be used; nothing is left behind then.
    """
    out_dir = Path(out_dir)
    files = text_files(text_dir)
    settings: dict[str, object] = {"vocabulary_size": vocabulary_size, "byte_fallback": byte_fallback}
    if tokenizer is not None:
        settings = {"tokenizer": Tokenizer(tokenizer).sha256}
    sources = {language: {"file": path.name, "sha256": sha256(path)} for language, path in files.items()}
    made_of = {"format": FORMAT, "settings": settings, "sources": sources}
    if out_dir.exists() and any(out_dir.iterdir()):
        found = Corpus(out_dir)
        if {key: found.manifest.get(key) for key in made_of} == made_of:
            return found
        raise UserError(f"{out_dir} holds a corpus of other text or settings: remove it or choose another folder")
    writing = out_dir.with_name(f".{out_dir.name}.writing")
    try:
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        _write(files, writing, made_of, tokenizer)
        if out_dir.exists():
            out_dir.rmdir()
        os.rename(writing, out_dir)
    except OSError as error:
        raise UserError(f"{out_dir} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return Corpus(out_dir)


def _write(files, folder, made_of, tokenizer):
    if tokenizer is None:
        vocabulary = train_tokenizer(_sample(files), folder / "tokenizer.model", **made_of["settings"])
    else:
        shutil.copyfile(tokenizer, folder / "tokenizer.model")
        vocabulary = Tokenizer(folder / "tokenizer.model")
    dtype = np.dtype("<u2" if vocabulary.vocabulary_size <= 2**16 else "<u4")
    languages, counts = {}, []
    for language, path in files.items():
        pieces = np.zeros(vocabulary.vocabulary_size, np.int64)
        file = f"{language}.array_record"
        stream = _documents(path, vocabulary)
        languages[language] = {"file": file} | _write_stream(stream, folder / file, dtype, pieces)
        counts.append(pieces)
    np.save(folder / "counts.npy", np.stack(counts))
    checksums = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    manifest = made_of | {"dtype": dtype.str, "block": BLOCK, "languages": languages, "files": checksums}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")


def _sample(files: Mapping[str, Path]) -> Iterator[str]:
    """Every n-th paragraph of each language, so many that large languages do not drown small ones."""
    sizes = {}
    for language, path in files.items():
        sizes[language] = sum(len(line.encode("utf-8")) for line in read_paragraphs(path))
        if not sizes[language]:
            raise UserError(f"{path} has no text: remove it or add some")
    roots = {language: size**0.5 for language, size in sizes.items()}
    for language, path in files.items():
        share = SAMPLE_BYTES * roots[language] / sum(roots.values())
        yield from itertools.islice(read_paragraphs(path), 0, None, max(1, round(sizes[language] / share)))


def _documents(path, vocabulary):
    """Yields `[CLS] ... [SEP]` of every paragraph."""
    for ids in vocabulary.encode_stream(read_paragraphs(path)):
        yield [vocabulary.cls_id, *ids, vocabulary.sep_id]


def _write_stream(documents, path, dtype, counts):
    """Writes documents as blocks of tokens, adds their pieces to `counts`, and says how many of both there are."""
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1,zstd:3")
    pending: list[int] = []
    paragraphs = tokens = 0
    for document in documents:
        paragraphs += 1
        tokens += len(document)
        pending += document
        while len(pending) >= BLOCK:
            _write_block(writer, pending[:BLOCK], dtype, counts)
            del pending[:BLOCK]
    if pending:
        _write_block(writer, pending, dtype, counts)
    writer.close()
    if not tokens:
        raise UserError(f"{path.stem}.txt has no text: remove it or add some")
    return {"paragraphs": paragraphs, "tokens": tokens}


def _write_block(writer, tokens, dtype, counts):
    array = np.array(tokens, dtype)
    counts += np.bincount(array, minlength=len(counts))
    writer.write(array.tobytes())
