"""A prepared corpus, which is what pre-training reads, and how it is made of text.

A corpus is a folder: the tokenizer, ArrayRecord files of tokens, the counts of every piece, and `manifest.json` with
checksums of the sources and of the files made from them. Every paragraph is a document, `[CLS] ... [SEP]`, and a
language is one long stream of documents over one file or several, cut into blocks of equal length for random access.
A corpus is written to a temporary folder and renamed, so it is there whole or not at all; a preparation that was killed
is resumed by the next.
"""

import shutil
import sys
import threading
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rembed_keras.data.json_files import read_json
from rembed_keras.data.manifest import check_manifest, shards_of
from rembed_keras.data.prepare.beam import BeamWorkers
from rembed_keras.data.prepare.cleaning import VERDICT_TITLES, VERDICTS, Cleaning
from rembed_keras.data.prepare.jobs import Workers
from rembed_keras.data.prepare.preparation import Plan, checksums, make, staging_folder
from rembed_keras.data.prepare.shards import BLOCK
from rembed_keras.data.prepare.sources import find_source
from rembed_keras.data.text import sha256
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError

_begin = attrgetter("begin")
CACHED_BLOCKS = 2**15  # records that stay in memory once they were read: 256 MB, or 512 with many pieces
OPEN_FILES = 256
UNKNOWN = 0.01  # share of [UNK] among a language's tokens from which on a warning is printed


class Corpus:
    """A prepared corpus, read at random.

    Args:
        path: the folder that `prepare` wrote.

    Attributes:
        manifest: what `manifest.json` says.
        languages: names, sorted.
        num_tokens: tokens of each language, to train on.
        num_held_out: tokens that are held out, of the languages that have any.
        damage: the error about the shard that could not be read, for callers whom it reaches wrapped in another; or
            None.

    Raises:
        UserError: if the folder holds no whole corpus.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self.manifest = read_json(self.path / "manifest.json")
        except UserError:
            raise UserError(f"{self.path} is not a prepared corpus: make one with `rembed prepare`") from None
        check_manifest(self.manifest, self.path / "manifest.json")
        self.languages: list[str] = sorted(self.manifest["languages"])
        entries = self.manifest["languages"]
        held_out = {name: entries[name]["held_out"] for name in self.languages if "held_out" in entries[name]}
        self.num_tokens: dict[str, int] = {name: entries[name]["tokens"] for name in self.languages}
        self.num_held_out: dict[str, int] = {name: held_out[name]["tokens"] for name in held_out}
        self._shards = {name: shards_of(entries[name]) for name in self.languages}
        self._held_out = {name: shards_of(held_out[name]) for name in held_out}
        self.damage: UserError | None = None
        self._block = lru_cache(CACHED_BLOCKS)(self._read_block)
        self._reader, self._opening = lru_cache(OPEN_FILES)(self._open), threading.Lock()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the tokens; it is compared with its checksum first."""
        return Tokenizer(self._whole("tokenizer.model"))

    @cached_property
    def _counts(self):
        path = self._whole("counts.npy")
        try:
            counts = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            counts = np.zeros(0)
        if counts.ndim != 2 or len(counts) != len(self.languages):
            raise _damaged(path)
        return counts

    def unigram_counts(self, language: str) -> np.ndarray:
        """How often each piece occurs in the text of a language, int64 [V]."""
        return self._counts[self.languages.index(language)]

    def tokens(self, language: str, start: int, count: int) -> np.ndarray:
        """Tokens `start` up to `start + count` of a language's stream, which wraps around at its end.

        Args:
            language: one of `languages`.
            start: index of the first token, from 0; counted modulo the stream's length.
            count: how many.

        Returns:
            int32 [count].

        Raises:
            UserError: for a shard that is damaged there or missing.
        """
        return self._read(self._shards[language], self.num_tokens[language], start, count)

    def held_out(self, language: str, start: int, count: int) -> np.ndarray:
        """As `tokens`, of what is held out of a language: no step trains on it.

        Args:
            language: one of `num_held_out`.
            start: as in `tokens`.
            count: as in `tokens`.
        """
        return self._read(self._held_out[language], self.num_held_out[language], start, count)

    def _read(self, shards, size, start, count):
        start, parts = start % size, []
        while count > 0:
            shard = shards[bisect_right(shards, start, key=_begin) - 1]
            block, offset = divmod(start - shard.begin, BLOCK)
            try:
                part = self._block(shard, block)[offset : offset + count]
            except (RuntimeError, OSError):  # every record has a checksum in its file
                self.damage = _damaged(self.path / shard.file)
                raise self.damage from None
            parts.append(part)
            start, count = (start + len(part)) % size, count - len(part)
        return np.concatenate(parts or [[]], dtype=np.int32, casting="unsafe")

    def _read_block(self, shard, block):
        with self._opening:  # else many threads would each open a large file, and one handle would be kept
            reader = self._reader(shard.file)
        return np.frombuffer(reader[shard.first_block + block], dtype=self.manifest["dtype"])

    def _open(self, file):
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        return ArrayRecordDataSource(str(self.path / file))

    @property
    def verdicts(self) -> dict[str, dict[str, int]]:
        """Number of paragraphs of each language by what cleaning did with them; empty if it filtered nothing."""
        entries = self.manifest["languages"]
        return {name: entries[name]["verdicts"] for name in self.languages if "verdicts" in entries[name]}

    @property
    def unknown_shares(self) -> dict[str, float]:
        """Share of each language's tokens that are [UNK]; adjacent characters without a piece share one [UNK]."""
        known = self.tokenizer
        text = self._counts.sum(axis=1) - self._counts[:, [known.cls_id, known.sep_id]].sum(axis=1)  # [languages]
        shares = self._counts[:, known.unk_id] / np.maximum(text, 1)
        return dict(zip(self.languages, shares.tolist(), strict=True))

    def show(self, name: str, seconds: float) -> None:
        """Prints what was prepared, and warns on stderr of languages that the tokenizer covers badly.

        Args:
            name: of the corpus, as printed.
            seconds: how long preparing it took.
        """
        console = Console()
        if self.verdicts:
            console.print(self._verdicts_table())
        tokens, size = sum(self.num_tokens.values()), self.tokenizer.vocabulary_size
        made = f"{tokens:,} tokens in {len(self.languages)} languages, vocabulary of {size:,}"
        if self.num_held_out:
            made += f"; {sum(self.num_held_out.values()):,} tokens are held out"
        console.out(f"{name}: {made}, in {seconds:.0f} s", highlight=False)
        for language, share in self.unknown_shares.items():
            if share > UNKNOWN:
                advice = "use byte fallback, a larger vocabulary, or a tokenizer that covers its characters"
                sys.stderr.write(f"warning: {share:.1%} of the tokens of {language} are [UNK]: {advice}\n")

    def _verdicts_table(self):
        table = Table(title="Paragraphs")
        for column in ("language", *VERDICT_TITLES):
            table.add_column(column, justify="left" if column == "language" else "right")
        for language, found in self.verdicts.items():
            table.add_row(language, *(f"{found[verdict]:,}" for verdict in VERDICTS))
        table.add_section()
        table.add_row("all", *(f"{sum(each[name] for each in self.verdicts.values()):,}" for name in VERDICTS))
        return table

    def verify(self) -> None:
        """Reads every file and compares it with its checksum.

        Raises:
            UserError: naming the first file that is missing or damaged.
        """
        for name in self.manifest["files"]:
            self._whole(name)

    def _whole(self, name):
        path = self.path / name
        if not path.exists() or sha256(path) != self.manifest["files"].get(name):
            raise _damaged(path)
        return path


def _damaged(path):
    return UserError(f"{path} is damaged or missing: remove the corpus and prepare it again")


def prepare(
    text_dir: str | Path,
    out_dir: str | Path,
    vocabulary_size: int = 8000,
    tokenizer: str | Path | None = None,
    byte_fallback: bool = False,
    normalization: str = "nmt_nfkc",
    cleaning: Cleaning | None = None,
    shard_megabytes: float = 64,
    processes: int | None = None,
    beam: Sequence[str] | None = None,
) -> Corpus:
    """Prepares a corpus from text, or returns the one that was prepared from it already.

    Args:
        text_dir: folder of `<language>.txt` or `.txt.gz`, UTF-8, one paragraph a line; or another source of text, see
            `sources.find_source`.
        out_dir: the corpus's folder.
        vocabulary_size: V of the tokenizer that is trained.
        tokenizer: a SentencePiece model to use instead of training one.
        byte_fallback: whether a trained tokenizer encodes rare characters as bytes, instead of [UNK].
        normalization: the normalization rule of a trained tokenizer; see `train_tokenizer`.
        cleaning: normalization and filtering of text before tokenization; none by default.
        shard_megabytes: megabytes of text per shard; it does not change the tokens.
        processes: how many worker processes; one per core by default.
        beam: options of Apache Beam, to run on its workers; see `data.prepare.beam`.

    Raises:
        UserError: for text, a tokenizer or a folder that cannot be used; nothing is left behind then.
    """
    if not isinstance(shard_megabytes, int | float) or shard_megabytes <= 0:
        raise UserError(f"shard_megabytes is {shard_megabytes!r}; it must be greater than 0")
    out_dir, cleaning = Path(out_dir), cleaning or Cleaning()
    settings: dict[str, object] = {"vocabulary_size": vocabulary_size, "byte_fallback": byte_fallback}
    if normalization != "nmt_nfkc":
        settings["normalization"] = normalization
    if tokenizer is not None:
        settings = {"tokenizer": Tokenizer(tokenizer).sha256}
    settings |= cleaning.settings()
    shard_bytes = round(shard_megabytes * 1e6)
    source = find_source(text_dir, shard_bytes)
    own = Workers(processes, sum(part.size for part in source.parts))
    workers = own if beam is None else BeamWorkers(beam, out_dir.with_name(f".{out_dir.name}.beam"))
    sources = checksums(source, workers)
    if out_dir.exists() and any(out_dir.iterdir()):
        found = Corpus(out_dir)
        if (found.manifest.get("settings"), found.manifest.get("sources")) == (settings, sources):
            shutil.rmtree(staging_folder(out_dir), ignore_errors=True)  # of a process that was killed after its work
            return found
        raise UserError(f"{out_dir} has a corpus of other text or settings: remove it or choose another folder")
    plan = Plan(source, settings, None if tokenizer is None else Path(tokenizer), cleaning, shard_bytes)
    make(plan, out_dir, sources, workers)
    return Corpus(out_dir)
