"""A corpus is made of text, or found made of the same text already."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.prepare.beam import BeamWorkers
from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.jobs import Workers
from rembed_keras.data.prepare.preparation import Plan, checksums, make, staging_folder
from rembed_keras.data.prepare.sources import find_source
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.errors import UserError

USUAL = "nmt_nfkc"  # normalization, unless another is asked for
LEAST = 1e-6  # megabytes of text in a shard: a byte


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
    languages: Sequence[str] | None = None,
) -> Corpus:
    """Prepares a corpus from text, or returns the one that was prepared from it already.

    Args:
        text_dir: folder of `<language>.txt` or `.txt.gz`, UTF-8, one paragraph a line; or another source of text, see
            `sources.find_source`.
        out_dir: the corpus's folder.
        vocabulary_size: V of the tokenizer that is trained.
        tokenizer: a SentencePiece model, `tokenizer.json` or `vocab.txt` to use instead of training one.
        byte_fallback: whether a trained tokenizer encodes rare characters as bytes, instead of [UNK].
        normalization: the normalization rule of a trained tokenizer; see `train_tokenizer`.
        cleaning: normalization and filtering of text before tokenization; none by default.
        shard_megabytes: megabytes of text per shard; it does not change the tokens.
        processes: how many worker processes; one per core by default.
        beam: options of Apache Beam, to run on its workers; see `data.prepare.beam`.
        languages: that are read, of a folder; all by default.

    Raises:
        UserError: for text, a tokenizer or a folder that cannot be used; nothing is left behind then.
    """
    if not isinstance(shard_megabytes, int | float) or not LEAST <= shard_megabytes < math.inf:
        raise UserError(f"shard_megabytes is {shard_megabytes!r}; it must be a number from {LEAST:f}")
    out_dir, cleaning = Path(out_dir), cleaning or Cleaning()
    if out_dir.name in ("", ".."):  # what is written first stands beside it, and is named by it
        out_dir = out_dir.resolve()
    if out_dir.exists() and not out_dir.is_dir():
        raise UserError(f"{out_dir} is a file: name another folder")
    place = out_dir.resolve() if out_dir.is_symlink() else out_dir  # a folder takes the place of one, and of no link
    settings: dict[str, object] = {"vocabulary_size": vocabulary_size, "byte_fallback": byte_fallback}
    if normalization != USUAL:
        settings["normalization"] = normalization
    given = None
    if tokenizer is not None:
        check_given_tokenizer(byte_fallback, normalization)
        given = open_tokenizer(tokenizer)
        settings = {"tokenizer": given.sha256}
    if languages is not None:
        settings["languages"] = sorted({*languages})
    settings |= cleaning.settings()
    shard_bytes = round(shard_megabytes * 1e6)
    source = find_source(text_dir, shard_bytes, languages)
    own = Workers(processes, sum(part.size for part in source.parts))
    workers = own if beam is None else BeamWorkers(beam, out_dir.with_name(f".{out_dir.name}.beam"))
    sources = checksums(source, workers)
    if (found := _in(out_dir)) is not None:
        if (_settings_of(found, given), found.manifest.get("sources")) == (settings, sources):
            shutil.rmtree(staging_folder(place), ignore_errors=True)  # of a process that was killed after its work
            return found
        raise UserError(f"{out_dir} has a corpus of other text or settings: remove it or choose another folder")
    if out_dir.resolve() == Path.cwd():
        raise UserError(f"{out_dir} is the working directory: name another folder")
    plan = Plan(source, settings, None if tokenizer is None else Path(tokenizer), cleaning, shard_bytes)
    make(plan, place, sources, workers)
    return Corpus(out_dir)


def _in(folder):
    """The corpus in a folder; None if it is not there, or empty."""
    if not folder.exists() or not any(folder.iterdir()):
        return None
    if not (folder / "manifest.json").exists():
        raise UserError(f"{folder} has files, and no corpus among them: remove them or choose another folder")
    return Corpus(folder)


def _settings_of(corpus, given):
    """The settings that a corpus was made by; if its tokenizer segments as the one that is given, with that."""
    said = corpus.manifest.get("settings")
    is_other = given is not None and isinstance(said, dict) and said.get("tokenizer") not in (None, given.sha256)
    return (
        said | {"tokenizer": given.sha256} if is_other and corpus.tokenizer.segmentation == given.segmentation else said
    )


def check_given_tokenizer(byte_fallback: bool, normalization: str) -> None:
    """Checks that nothing is asked of a tokenizer that is given, which only one that is trained could do.

    Raises:
        UserError: naming what is.
    """
    asked = {"byte_fallback": byte_fallback, "normalization": normalization != USUAL}
    for name in asked:
        if asked[name]:
            raise UserError(f"{name} is of a tokenizer to train, and one is given: leave it out")
