"""A prepared corpus, which is what pre-training reads; `prepare.corpora` makes it of text.

A corpus is a folder: the tokenizer, ArrayRecord files of tokens, the counts of every piece, and `manifest.json` with
checksums of the sources and of the files made from them. Every paragraph is a document, `[CLS] ... [SEP]`, and a
language is one long stream of documents over one file or several, cut into blocks of equal length for random access.
A corpus is written to a temporary folder and renamed, so it is there whole or not at all; a preparation that was killed
is resumed by the next.
"""

import threading
from bisect import bisect_right
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path

import numpy as np

from rembed_keras.data.json_files import read_json
from rembed_keras.data.manifest import check_manifest, checksum, shards_of
from rembed_keras.data.moved import located
from rembed_keras.data.prepare.shards import BLOCK
from rembed_keras.data.text import sha256
from rembed_keras.data.tokenizers.opening import FILE_NAMES, open_tokenizer
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError

_begin = attrgetter("begin")
CACHED_BLOCKS = 2**15  # records that stay in memory once they were read: 256 MB, or 512 with many pieces
OPEN_FILES = 256
ELSEWHERE = "corpus.json"  # in a run's folder: where the corpus is that it read, and its checksum, if not in `corpus`


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
    def sha256(self) -> str:
        """Checksum of what the manifest says of the tokens."""
        return checksum(self.manifest)

    @cached_property
    def tokenizer(self) -> AnyTokenizer:
        """The tokenizer that made the tokens; it is compared with its checksum first."""
        name = next((name for name in FILE_NAMES if name in self.manifest["files"]), FILE_NAMES[0])
        return open_tokenizer(self._whole(name))

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


def place_of_corpus(run: Path) -> Path:
    """Where the corpus is that a run's pre-training read, which may be gone.

    Raises:
        UserError: if the run's note of it is damaged.
    """
    place, _ = _noted(run) or (run / "corpus", None)
    return place


def corpus_of_run(run: Path) -> Corpus:
    """The corpus that a run's pre-training read.

    Raises:
        UserError: if it is gone, or another is in its place.
    """
    noted = _noted(run)
    if noted is None:
        return Corpus(run / "corpus")
    place, of_tokens = noted
    if not place.is_dir():
        raise UserError(f"the corpus {place} that {run} was trained on is gone: bring it back")
    corpus = Corpus(place)
    if corpus.sha256 != of_tokens:
        raise UserError(f"the corpus {place} is another than {run} was trained on: bring that one back")
    return corpus


def _noted(run):
    """The place and the checksum of a corpus that is not a run's own; None if the run has no note of one."""
    note = run / ELSEWHERE
    if not note.exists():
        return None
    said = read_json(note)
    place = said.get("place")
    if not isinstance(place, str) or not place or "\0" in place:
        raise UserError(f"{note} names no corpus: remove it, and name the corpus in the recipe again")
    return located(said, [run]), said.get("sha256")


def _damaged(path):
    return UserError(f"{path} is damaged or missing: remove the corpus and prepare it again")
