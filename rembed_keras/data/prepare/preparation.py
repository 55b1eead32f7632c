"""How a corpus is prepared, in stages that keep their results in a staging folder beside the corpus's.

Text is read once to count and filter it, once to train the tokenizer, and once to be tokenized; reading costs little
beside the rest. All of it is done by part, in as many processes as there are cores. A stage skips what is there
already, so a preparation that was killed resumes and ends in the same bytes.
"""

import contextlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rembed_keras.data.prepare import shards, survey
from rembed_keras.data.prepare.cleaning import VERDICTS, Cleaning
from rembed_keras.data.prepare.jobs import WorkerLostError, Workers
from rembed_keras.data.prepare.sources import Source
from rembed_keras.data.text import sha256
from rembed_keras.data.tokenizers.opening import FILE_NAMES, open_tokenizer
from rembed_keras.data.tokenizers.sentence_piece import train_tokenizer
from rembed_keras.data.writing import locked, write_atomically
from rembed_keras.errors import UserError

FORMAT = 2
SAMPLE_BYTES = 24_000_000  # of text that a tokenizer is trained on


@dataclass(frozen=True)
class Plan:
    """What a corpus is made of, and how.

    Attributes:
        source: the text.
        settings: of the tokenizer and the cleaning, as the manifest has them.
        tokenizer: the file of a tokenizer to use; None to train one by the settings.
        cleaning: normalization and filtering before tokenization.
        shard_bytes: bytes of text per shard.
    """

    source: Source
    settings: dict[str, object]
    tokenizer: Path | None
    cleaning: Cleaning
    shard_bytes: int


def checksums(source: Source, workers: Workers) -> dict[str, dict[str, str]]:
    """The manifest's entry of a source: names and checksums of its files, versions of its data sets."""
    jobs = [(path.stat().st_size, (path,)) for path in source.files.values()]
    sums = workers.run("checksums", sha256, jobs)
    files = {
        name: {"file": path.name, "sha256": checksum}
        for (name, path), checksum in zip(source.files.items(), sums, strict=True)
    }
    return files | {name: dict(facts) for name, facts in source.facts.items()}


def staging_folder(out_dir: Path) -> Path:
    """The folder in which a corpus is prepared before it is renamed."""
    return out_dir.with_name(f".{out_dir.name}.writing")


def make(plan: Plan, out_dir: Path, sources: dict[str, dict[str, str]], workers: Workers) -> None:
    """Makes a corpus, or resumes making it.

    Args:
        plan: what of, and how.
        out_dir: the corpus's folder; an empty one may be there.
        sources: the manifest's entry of the source.
        workers: the worker processes.

    Raises:
        UserError: for text or a tokenizer that cannot be used, or a folder that cannot be written or is in use; the
            staging folder is removed then, but for the last case.
    """
    place = staging_folder(out_dir)
    made_of = {"format": FORMAT, "settings": plan.settings, "sources": sources}
    try:
        with _locked(place, made_of | {"shard_bytes": plan.shard_bytes}):
            _Making(plan, place, workers).write(made_of)
            if out_dir.exists():
                out_dir.rmdir()
            os.rename(place / "corpus", out_dir)
            shutil.rmtree(place)
    except BrokenPipeError:  # of progress, which nobody reads any more, as after `| head`
        raise
    except OSError as error:
        shutil.rmtree(place, ignore_errors=True)
        raise UserError(f"{out_dir} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def _locked(place: Path, plan: dict) -> Iterator[None]:
    """Locks the staging folder, and clears it of what was made by another plan."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        if not locked(lock):
            raise UserError(f"another process is writing {place}: wait for it, or choose another folder")
        path, text = place / "plan.json", json.dumps(plan, sort_keys=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            for folder in ("notes", "corpus"):
                shutil.rmtree(place / folder, ignore_errors=True)
            write_atomically(path, text)
        for folder in ("notes", "corpus"):
            (place / folder).mkdir(exist_ok=True)
        try:
            yield
        except WorkerLostError:
            raise
        except UserError:
            shutil.rmtree(place, ignore_errors=True)
            raise


class _Making:
    """The stages, one after another."""

    def __init__(self, plan: Plan, place: Path, workers: Workers):
        self.plan, self.workers = plan, workers
        self.parts = plan.source.parts
        self.notes, self.corpus = place / "notes", place / "corpus"
        self.given = None if plan.tokenizer is None else open_tokenizer(plan.tokenizer)
        self.model = self.corpus / (self.given.file_name if self.given else FILE_NAMES[0])

    def write(self, made_of) -> None:
        """Makes everything up to the manifest."""
        counts = self._survey()
        self._make_tokenizer(counts)
        self._for_all("tokens", shards.write_part, self._shard_arguments())
        languages = self._languages(counts)
        (self.corpus / "manifest.json").unlink(missing_ok=True)  # of a process that was killed here
        made = sorted(self.corpus.iterdir())
        checked = self.workers.run("checksums", sha256, [(1, (path,)) for path in made])
        manifest = made_of | {
            "dtype": shards.token_type(open_tokenizer(self.model)).str,
            "block": shards.BLOCK,
            "languages": languages,
            "files": {path.name: checksum for path, checksum in zip(made, checked, strict=True)},
        }
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        (self.corpus / "manifest.json").write_text(text, encoding="utf-8")

    def _for_all(self, what, function, arguments) -> list:
        """Calls a function for every part."""
        jobs = [(part.size, (part, self.notes, *arguments)) for part in self.parts]
        return self.workers.run(what, function, jobs)

    def _shard_arguments(self):
        threads = self.workers.threads(len(self.parts))
        return self.corpus, self.plan.cleaning, self.model, self.plan.shard_bytes, threads

    def _survey(self) -> list[dict[str, dict[str, int]]]:
        """What cleaning keeps of each part."""
        cleaning = self.plan.cleaning
        self._check_parts()
        self._for_all("reading", survey.survey, (cleaning, self.plan.shard_bytes))
        totals = [survey.totals_of(part, self.notes) for part in self.parts]
        languages = sorted({language for total in totals for language in total})
        self.plan.source.check_found(languages)
        if cleaning.compares:
            self.workers.compare(self.parts, languages, self.notes, cleaning)
        counts = [survey.count(part, self.notes, cleaning) for part in self.parts]
        for language in languages:
            if not sum(count.get(language, {}).get("paragraphs", 0) for count in counts):
                raise UserError(f"cleaning leaves no text of {language}: remove the language, or clean less")
        self._check_names()
        return counts

    def _check_parts(self):
        """Checks that no two have one name, and so one place for their notes."""
        counts = Counter(part.name for part in self.parts)
        twice = next((name for name, count in counts.items() if count > 1), None)
        if twice is not None:
            raise UserError(f"two parts of the text would be named {twice}: rename one of the text files")

    def _check_names(self):
        names: set[str] = set()
        for part in self.parts:
            for name in shards.shard_names(part, self.notes):
                if name in names:
                    raise UserError(f"two token shards would be named {name}: rename one of the text files")
                names.add(name)
        for part in self.parts:
            other = part.name.removesuffix(shards.NOTE)
            if other != part.name and other in names:
                raise UserError(f"files of {part.name} and {other} would have one name: rename one of the text files")

    def _make_tokenizer(self, counts) -> None:
        if self.model.exists():
            return
        writing = self.notes / "tokenizer.writing"
        if self.given is not None:
            writing = self.given.copy_to(self.notes)
        else:
            known = ("vocabulary_size", "byte_fallback", "normalization")
            settings = {name: self.plan.settings[name] for name in known if name in self.plan.settings}
            lines = [*self._sample(counts)]
            if not lines:
                raise UserError("held_out leaves no text to train a tokenizer on: hold out less, or add text")
            what = f"training a tokenizer of {settings['vocabulary_size']:,} pieces"
            self.workers.announce(what, sum(len(line.encode("utf-8")) for line in lines))
            self.workers.run_alone(_train_tokenizer, lines, writing, settings)
        writing.replace(self.model)

    def _sample(self, counts) -> Iterator[str]:
        """Every n-th paragraph of each language, with n such that large languages do not dominate small ones."""
        sizes: dict[str, int] = {}
        for count in counts:
            for language, each in count.items():
                sizes[language] = sizes.get(language, 0) + each["bytes"]
        total = sum(size**0.5 for size in sizes.values())
        nth = {name: max(1, round(size / (SAMPLE_BYTES * size**0.5 / total))) for name, size in sizes.items()}
        jobs = []
        for part, before in zip(self.parts, self._paragraphs_before(counts), strict=True):
            steps = {language: (number, nth[language]) for language, number in before.items()}
            jobs.append((part.size, (part, self.notes, self.plan.cleaning, steps)))
        samples = self.workers.run("sample", survey.every_nth, jobs)
        for language in sorted(sizes):
            for sample in samples:
                yield from sample.get(language, ())

    def _paragraphs_before(self, counts):
        """For each part, how many paragraphs of its languages are kept in the parts before."""
        before: dict[str, int] = {}
        for count in counts:
            yield {language: before.get(language, 0) for language in count}
            for language, each in count.items():
                before[language] = before.get(language, 0) + each["paragraphs"]

    def _languages(self, counts) -> dict[str, dict]:
        """The manifest's entry of each language; also writes the counts of pieces."""
        names = sorted({language for count in counts for language in count})
        size = open_tokenizer(self.model).vocabulary_size
        pieces = {name: np.zeros(size, np.int64) for name in names}
        found: dict[str, dict] = {name: _nothing() for name in names}
        for part in self.parts:
            for shard in shards.shard_names(part, self.notes):
                note = shards.read_note(self.notes, shard)
                if note is None:
                    continue
                shards.add_counts(self.notes, shard, pieces)
                for language, own in note.items():
                    _add(found[language], shard, own)
                    if "held_out" in own:
                        _add(found[language].setdefault("held_out", _nothing()), shard, own["held_out"])
        for language, entry in found.items():
            if not entry["tokens"]:
                raise UserError(f"held_out leaves no text of {language} to train on: hold out less, or add text")
        if self.plan.cleaning.filters:
            for language, entry in found.items():
                each = [count[language] for count in counts if language in count]
                entry["verdicts"] = {verdict: sum(one[verdict] for one in each) for verdict in VERDICTS}
        np.save(self.corpus / "counts.npy", np.stack([pieces[name] for name in names]))
        return found


def _nothing():
    """The manifest's entry of a stream without text."""
    return {"paragraphs": 0, "tokens": 0, "shards": []}


def _add(stream, shard, own):
    """Adds what a shard has of a stream to the stream's entry."""
    if own["tokens"]:
        entry = {"file": f"{shard}.array_record", "first_block": own["first_block"], "tokens": own["tokens"]}
        stream["shards"].append(entry)
        stream["paragraphs"] += own["paragraphs"]
        stream["tokens"] += own["tokens"]


def _train_tokenizer(lines, path, settings):
    train_tokenizer(lines, path, **settings)
