"""The stage that makes the corpus of a run from text."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rembed_keras.analysis.prepared import show_prepared
from rembed_keras.data.corpus import Corpus
from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.corpora import prepare as prepare_corpus
from rembed_keras.data.prepare.excerpts import write_excerpt
from rembed_keras.data.tokenizers.sentence_piece import Normalization
from rembed_keras.errors import Count, Rate, Share, UserError
from rembed_keras.interop import opened_tokenizer
from rembed_keras.training.initial.pretraining_start import place_of
from rembed_keras.training.initial.weights import InitialWeights
from rembed_keras.training.loop.workdir import Workdir


def prepare(
    workdir: Workdir,
    text_dir: str,
    languages: Sequence[str] | None = None,
    vocabulary_size: Count = 8000,
    tokenizer: str | None = None,
    initial: str | InitialWeights | None = None,
    byte_fallback: bool = False,
    normalization: Normalization = "nmt_nfkc",
    unicode_form: Literal["NFC", "NFKC"] | None = None,
    deduplicate: bool = False,
    near_duplicates: Share | None = None,
    language_threshold: Share | None = None,
    held_out: Share = 0.0,
    excerpt_megabytes: Rate | None = None,
    shard_megabytes: Rate = 64,
    processes: Count | None = None,
) -> None:
    """Prepares `workdir/corpus`, or finds that it is there.

    Args:
        workdir: the run's folder.
        text_dir: folder of `<language>.txt` or `.txt.gz`, UTF-8, one paragraph a line; or another source of text, see
            `data.sources.find_source`.
        languages: that are read, of a folder; all by default.
        vocabulary_size: V of the tokenizer that is trained.
        tokenizer: a SentencePiece model, `tokenizer.json` or `vocab.txt` to use instead of training one.
        initial: what pre-training starts from, as in `pretrain`: its tokenizer is taken if `tokenizer` names none.
        byte_fallback: whether a trained tokenizer spells rare characters as bytes, instead of [UNK].
        normalization: what a trained tokenizer does to text first; see `data.tokenizer.train_tokenizer`.
        unicode_form: "NFC" or "NFKC" to bring text into that form first; see `data.cleaning.Cleaning` for this and the
            next four.
        deduplicate: whether of equal paragraphs of a language the first alone stays.
        near_duplicates: how like an earlier paragraph one must be to go, up to 1; None to keep all.
        language_threshold: how likely of another language one must be to go, up to 1; None to keep all.
        held_out: share of the paragraphs that no step trains on, for evaluation.
        excerpt_megabytes: of text to take, the first of every language in equal shares; all of it by default.
        shard_megabytes: of text a file of tokens; the tokens are the same whatever it is.
        processes: how many at once; one for each core by default.

    Raises:
        UserError: for text or a tokenizer that cannot be used, or initial weights that are not there or have another,
            and where a run that has begun has a link to a corpus that is gone.
    """
    _refuse_lost_corpus(workdir)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = _tokenizer(workdir, tokenizer, initial, Path(folder))
        read = text_dir
        if excerpt_megabytes is not None:
            read = str(write_excerpt(text_dir, workdir.path / "excerpt", excerpt_megabytes, languages))
        cleaning = Cleaning(unicode_form, deduplicate, near_duplicates, language_threshold, held_out)
        corpus = prepare_corpus(
            read,
            workdir.corpus,
            vocabulary_size,
            file,
            byte_fallback,
            normalization,
            cleaning,
            shard_megabytes,
            processes,
            languages=languages,
        )
    show_prepared(corpus, "corpus", time.monotonic() - begun, text_dir)


def _refuse_lost_corpus(workdir):
    """Refuses to prepare, wherever a link leads, what a run was trained on before its folder was moved."""
    link = workdir.corpus
    if link.is_symlink() and not link.exists() and workdir.checkpoints.exists():
        raise UserError(
            f"{link} is a link to {link.readlink()}, where nothing is: bring the corpus of the run there, or remove "
            "the link to prepare it here"
        )


def _tokenizer(workdir, given, initial, folder):
    """The tokenizer to use: of initial weights theirs, which a corpus that is there has already, or a folder gets."""
    if initial is None:
        return given
    is_there = (workdir.corpus / "manifest.json").exists()
    if given is None and is_there:
        corpus = Corpus(workdir.corpus)
        return corpus.tokenizer.path if "tokenizer" in corpus.manifest.get("settings", {}) else None
    found = place_of(initial).tokenizer if given is None else opened_tokenizer(Path(given))
    if given is not None and not is_there:
        place_of(initial).check_tokenizer(found)
    return found.copy_to(folder)  # numbered as the model has its pieces: in XLM-R's own file they are not
