"""The stage that makes the corpus of a run from a folder of text."""

import time

from rembed_keras.data.corpus import prepare as prepare_corpus
from rembed_keras.training.workdir import Workdir


def prepare(
    workdir: Workdir,
    text_dir: str,
    vocabulary_size: int = 8000,
    tokenizer: str | None = None,
    byte_fallback: bool = False,
) -> None:
    """Prepares `workdir/corpus`, or finds that it is there.

    Args:
        workdir: the run's folder.
        text_dir: folder of `<language>.txt` or `.txt.gz`, UTF-8, one paragraph a line.
        vocabulary_size: V of the tokenizer that is trained.
        tokenizer: a SentencePiece model to use instead of training one.
        byte_fallback: whether a trained tokenizer spells rare characters as bytes, instead of [UNK].

    Raises:
        UserError: for text or a tokenizer that cannot be used.
    """
    begun = time.monotonic()
    corpus = prepare_corpus(text_dir, workdir.corpus, vocabulary_size, tokenizer, byte_fallback)
    tokens = sum(corpus.num_tokens.values())
    print(
        f"corpus: {tokens:,} tokens of {len(corpus.languages)} languages, vocabulary of "
        f"{corpus.tokenizer.vocabulary_size:,}, in {time.monotonic() - begun:.0f} s",
        flush=True,
    )
