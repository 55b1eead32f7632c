"""The stage that makes the corpus of a run from text."""

import time
from typing import Literal

from rembed_keras.data.corpus import prepare as prepare_corpus
from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.tokenizers.sentence_piece import Normalization
from rembed_keras.errors import Count, Rate, Share
from rembed_keras.training.loop.workdir import Workdir


def prepare(
    workdir: Workdir,
    text_dir: str,
    vocabulary_size: Count = 8000,
    tokenizer: str | None = None,
    byte_fallback: bool = False,
    normalization: Normalization = "nmt_nfkc",
    unicode_form: Literal["NFC", "NFKC"] | None = None,
    deduplicate: bool = False,
    near_duplicates: Share | None = None,
    language_threshold: Share | None = None,
    held_out: Share = 0.0,
    shard_megabytes: Rate = 64,
    processes: Count | None = None,
) -> None:
    """Prepares `workdir/corpus`, or finds that it is there.

    Args:
        workdir: the run's folder.
        text_dir: folder of `<language>.txt` or `.txt.gz`, UTF-8, one paragraph a line; or another source of text, see
            `data.sources.find_source`.
        vocabulary_size: V of the tokenizer that is trained.
        tokenizer: a SentencePiece model to use instead of training one.
        byte_fallback: whether a trained tokenizer spells rare characters as bytes, instead of [UNK].
        normalization: what a trained tokenizer does to text first; see `data.tokenizer.train_tokenizer`.
        unicode_form: "NFC" or "NFKC" to bring text into that form first; see `data.cleaning.Cleaning` for this and the
            next four.
        deduplicate: whether of equal paragraphs of a language the first alone stays.
        near_duplicates: how like an earlier paragraph one must be to go, up to 1; None to keep all.
        language_threshold: how likely of another language one must be to go, up to 1; None to keep all.
        held_out: share of the paragraphs that no step trains on, for evaluation.
        shard_megabytes: of text a file of tokens; the tokens are the same whatever it is.
        processes: how many at once; one for each core by default.

    Raises:
        UserError: for text or a tokenizer that cannot be used.
    """
    begun = time.monotonic()
    cleaning = Cleaning(unicode_form, deduplicate, near_duplicates, language_threshold, held_out)
    corpus = prepare_corpus(
        text_dir,
        workdir.corpus,
        vocabulary_size,
        tokenizer,
        byte_fallback,
        normalization,
        cleaning,
        shard_megabytes,
        processes,
    )
    corpus.show("corpus", time.monotonic() - begun)
