"""Held-out loss per byte of text, which compares models of different vocabularies; nats per masked token do not."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rembed_keras.errors import Count, UserError, check_counts

if TYPE_CHECKING:  # a recipe is checked without a framework
    from rembed_keras.training.evaluators.evaluator import EvaluationData

BITS = 1 / np.log(2)  # in a nat


class BitsPerByte:
    """Bits per byte of held-out text: `bits_per_byte`, `bits_per_byte/<language>`, and the same of a unigram model.

    Every token of the rows is predicted once. A word is masked as a whole, and its pieces are predicted from left to
    right, those before seen and those after masked; words that are masked together are far apart, and with them no more
    tokens than in training. The sum of the tokens' nats, divided by ln 2, is divided by the UTF-8 bytes of normalized
    text that they stand for, the space before a word among them. So a vocabulary that cuts words finer predicts more
    tokens, and is not given the rest of a word to predict its beginning from.

    `unigram_bits_per_byte` is that of the same tokens by their share in the language's training text, each piece
    counted once more than it is there: a model that knows the language, and no context.

    What it is not: a probability of the text, since each word sees those after it. Two vocabularies are compared fairly
    where words are separated by spaces; elsewhere each piece is a word, and shorter pieces are easier to predict. The
    number and length of a word's pieces is given away by its masks. [UNK] is left out with its unknown bytes, so a
    vocabulary that lacks a script should have byte fallback. Rows of equal length in tokens are not the same text under
    another vocabulary, but the first tokens of the same held-out text.

    Args:
        rows: about how many rows in all are evaluated; see `Mixture.held_out_rows`. Each is read some 25 times.

    Raises:
        UserError: for no rows; and when it evaluates, for held-out text of which the vocabulary has nothing.

    Source: Kauf and Ivanova 2023, "A better way to do masked language model scoring".

    >>> BitsPerByte(rows=64).needs_held_out
    True
    """

    needs_held_out = True

    def __init__(self, rows: Count = 128):
        check_counts({"rows": rows})
        self.rows = rows

    def check(self, model) -> None:
        """Refuses an objective that predicts no masked tokens.

        Raises:
            UserError: in one line.
        """
        _nats(model, {name: 0.0 for name in model.names_of_logs if name.rpartition("/")[2] == "loss"})

    def evaluate(self, model, data: "EvaluationData") -> dict[str, float]:
        """Bits per byte, of all languages together and of each.

        Raises:
            UserError: for an objective that predicts no masked tokens, or text of which every token is [UNK].
        """
        counted = data.once(self, lambda: count_rows(data.batches, self.rows))
        logs = data.metrics(model, counted.batch)
        bits = {}
        for language, tokens in counted.tokens.items():
            suffix = f"/{language}"
            own = {name.removesuffix(suffix): value for name, value in logs.items() if name.endswith(suffix)}
            bits[language] = BITS * _nats(model, own) * tokens
        return _per_byte("bits_per_byte", bits, counted.bytes) | _per_byte(
            "unigram_bits_per_byte", counted.unigram_bits, counted.bytes
        )


class Counted(NamedTuple):
    """Held-out rows in which every token is predicted once, and what their tokens come to by language.

    Attributes:
        batch: (x, y, sample_weight), as of `Mixture`.
        tokens: predicted tokens.
        bytes: that they stand for.
        unigram_bits: of a unigram model of the language.
    """

    batch: tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]
    tokens: dict[str, int]
    bytes: dict[str, int]
    unigram_bits: dict[str, float]


def count_rows(mixture, rows: int) -> Counted:
    """Rows of a `Mixture`'s held-out text; of languages that have one with text."""
    from rembed_keras.data.pipeline.masking import mask_every_word

    languages, tokens = mixture.held_out_rows(rows)
    tokenizer = mixture.corpus.tokenizer
    passes = mask_every_word(tokens, mixture.num_predictions, tokenizer)
    batch = mixture.batch_of(languages[passes.rows], tokens[passes.rows], passes.masked)
    counted = Counted(batch, {}, {}, {})
    for number, language in enumerate(mixture.languages):
        own = tokens[languages == number]
        labels = own[~tokenizer.is_special[own] & (own != tokenizer.unk_id)]
        if not len(labels):
            continue
        counts = (mixture.corpus.unigram_counts(language) + 1) * ~tokenizer.is_special
        counted.tokens[language] = len(labels)
        counted.bytes[language] = int(tokenizer.num_bytes[labels].sum())
        counted.unigram_bits[language] = float(-BITS * np.log(counts[labels] / counts.sum()).sum())
    if not counted.tokens:
        raise UserError("BitsPerByte has no token to predict: the vocabulary knows none of the held-out text")
    return counted


def _nats(model, logs):
    try:
        nats = model.nats_of(logs)
    except KeyError:  # replaced-token detection has no loss of its masked tokens by language
        nats = None
    if nats is None:
        raise UserError("BitsPerByte needs the loss of masked tokens by language: an objective such as MaskedLM")
    return nats


def _per_byte(name, bits, size):
    """Of all languages, which have as many tokens as their weights give them, and of each."""
    each = {f"{name}/{language}": value / size[language] for language, value in bits.items()}
    return {name: sum(bits.values()) / sum(size.values())} | each
