"""Batches as a function of (seed, step): languages are interleaved, rows sliced, tokens masked.

There is no shuffle buffer and no state. The language of row i of the run follows from the weights by arithmetic, and
the row is a slice of that language's stream of tokens; slice boundaries change with every epoch over the language, and
the order of slices is a permutation by seed and epoch. When the weights change at a step, each language continues with
its next row. Rows are packed: a slice has whatever documents fall into it, and `padding_mask` numbers them, so that
tokens attend within their own document only. Batch k does not need those before it, so resuming is a seek. Random
access and prefetching are Grain's; interleaving and shuffling are in `order`, a whole batch at once.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import grain
import numpy as np

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.pipeline.masking import mask_rows
from rembed_keras.data.pipeline.order import Interleaving, key, shuffled
from rembed_keras.errors import Count, CountOrZero, Seed, Share, UserError, check_counts


class Phase(NamedTuple):
    """Steps with the same weights: the first, how languages interleave, and how many rows each language had before."""

    first_step: int
    interleaving: Interleaving
    before: np.ndarray


class Mixture:
    """Pre-training batches of a corpus.

    Args:
        corpus: the prepared corpus.
        batch_size: B, rows a batch.
        sequence_length: S, tokens a row.
        seed: of the order of rows, their boundaries and the masks.
        alpha: sampling exponent: a language's share of the rows is proportional to its number of tokens to the power
            of alpha, 1 for proportional and 0 for equal shares; or a schedule of exponents by their first step, which
            begins at step 0. A language's rows are counted over the whole run, so a change of alpha repeats and skips
            none within an epoch.
        mask_rate: share of a row's tokens that are predicted; or a schedule of rates by their first step, which begins
            at step 0. There are as many slots as the highest rate needs; a step with a lower one leaves some empty.
        whole_word: whether to mask whole words; see `masking.mask_rows`.

    Attributes:
        languages: names, in the order of `language_ids`.
        weights: each language's share of the rows in the last phase, float64, in the same order.
        num_predictions: P, predicted positions a row.

    Raises:
        UserError: for a size, rate or exponent out of range, or a language shorter than a row.

    Source: Conneau & Lample 2019, section 3.1, for alpha.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: Count,
        sequence_length: Count,
        seed: Seed = 0,
        alpha: Share | Mapping[CountOrZero, Share] = 0.5,
        mask_rate: Share | Mapping[CountOrZero, Share] = 0.15,
        whole_word: bool = False,
    ):
        check_counts({"SEED": seed}, "Seed")
        _check(corpus, batch_size, sequence_length, alpha, mask_rate)
        self.corpus, self.batch_size, self.sequence_length = corpus, batch_size, sequence_length
        self.seed, self.whole_word = seed, whole_word
        self.languages = corpus.languages
        self._counts = _counts(sequence_length, mask_rate)
        self.num_predictions = max(count for _, count in self._counts)
        sizes = np.array([corpus.num_tokens[language] for language in self.languages], np.int64)
        self._slices = sizes // sequence_length
        self._phases: list[Phase] = []
        for step, exponent in sorted(_by_step(alpha).items()):
            self.weights = sizes**exponent / np.sum(sizes**exponent)
            before = self.rows(step) if self._phases else np.zeros(len(sizes), np.int64)
            self._phases.append(Phase(step, Interleaving(self.weights), before))

    def __getitem__(self, step: int):
        """The batch of a step, from 0.

        Returns:
            `(x, y, sample_weight)`. `x` is a dict of int32 arrays: `token_ids`, `segment_ids` and `padding_mask`
            [B, S], the last numbering the documents of a row from 1; `mask_positions` [B, P]; `language_ids` [B].
            `y` int32 [B, P] are the masked-token labels and `sample_weight` float32 [B, P] is 0 for empty slots.
        """
        languages, tokens = self._rows(step)
        count = [count for first, count in self._counts if first <= step][-1]
        return self._batch(languages, tokens, count, np.random.default_rng((self.seed, step)))

    @staticmethod
    def blank(
        batch_size: int, sequence_length: int, mask_rate: float | Mapping[int, float] = 0.15
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Zeros of a batch's shapes and dtypes, which take no memory: what a step can be compiled for without a corpus.

        Args:
            batch_size: B.
            sequence_length: S.
            mask_rate: as of the mixture.

        Returns:
            As `__getitem__`.

        >>> x, y, sample_weight = Mixture.blank(batch_size=2048, sequence_length=512)
        >>> x["token_ids"].shape, y.shape
        ((2048, 512), (2048, 77))
        """
        slots = batch_size, max(count for _, count in _counts(sequence_length, mask_rate))
        zero, shape = np.zeros((), np.int32), (batch_size, sequence_length)
        x = {key: np.broadcast_to(zero, shape) for key in ("token_ids", "segment_ids", "padding_mask")}
        x |= {"mask_positions": np.broadcast_to(zero, slots), "language_ids": np.broadcast_to(zero, (batch_size,))}
        return x, np.broadcast_to(zero, slots), np.broadcast_to(np.zeros((), np.float32), slots)

    def held_out(self, rows: Count) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Rows of text that no step trains on, and their masks, by the seed: the same whenever they are asked for.

        Args:
            rows: how many in all; see `held_out_rows`.

        Returns:
            As `__getitem__`, with as many rows as there are, masked at the last rate of a schedule.
        """
        languages, tokens = self.held_out_rows(rows)
        rng = np.random.default_rng((self.seed, *b"held out"))
        return self._batch(languages, tokens, self._counts[-1][1], rng)

    def held_out_rows(self, rows: Count) -> tuple[np.ndarray, np.ndarray]:
        """Rows of text that no step trains on, before any masking.

        Args:
            rows: how many in all, which languages share by their weights. Each has one at least, rounded up, and no
                more than whole rows are held out of it, so there may be more or fewer.

        Returns:
            Language ids int64 [N] and tokens int32 [N, S], language by language; none of a language of which no whole
            row is held out.
        """
        languages, tokens = [], []
        for i, (language, weight) in enumerate(zip(self.languages, self.weights, strict=True)):
            there = self.corpus.num_held_out.get(language, 0) // self.sequence_length
            for row in range(min(math.ceil(weight * rows), there)):
                languages.append(i)
                tokens.append(self.corpus.held_out(language, row * self.sequence_length, self.sequence_length))
        return np.array(languages, np.int64), np.reshape(np.array(tokens, np.int32), (-1, self.sequence_length))

    def _batch(self, languages, tokens, count, rng):
        """Rows [B, S] of languages [B] as a batch, with so many masked tokens a row."""
        return self.batch_of(languages, tokens, mask_rows(tokens, count, rng, self.corpus.tokenizer, self.whole_word))

    def batch_of(
        self, languages: np.ndarray, tokens: np.ndarray, masked: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """A batch, as `__getitem__` gives it, of rows that are masked already.

        Args:
            languages: ids, int [B].
            tokens: int [B, S], before masking.
            masked: as `masking.mask_rows` gives it, with P slots or fewer.
        """
        empty = ((0, 0), (0, self.num_predictions - masked["mask_positions"].shape[1]))
        slots = (masked[name] for name in ("mask_positions", "mask_ids", "mask_weights"))
        positions, ids, weights = (np.pad(slot, empty) for slot in slots) if empty[1][1] else slots
        begins = tokens == self.corpus.tokenizer.cls_id
        begins[:, 0] = True  # a row may begin in the middle of a document
        x = {
            "token_ids": masked["token_ids"],
            "segment_ids": np.zeros_like(masked["token_ids"]),
            "padding_mask": np.cumsum(begins, axis=1, dtype=np.int32),
            "mask_positions": positions,
            "language_ids": languages.astype(np.int32),
        }
        return x, ids, weights

    def _rows(self, step):
        """Languages [B] and tokens [B, S]: slices in random order, with new order and boundaries in every epoch."""
        phase = self._phase(step)
        languages, nth = phase.interleaving(np.arange(self.batch_size) + (step - phase.first_step) * self.batch_size)
        nth += phase.before[languages]
        slices = self._slices[languages]
        epochs, places = np.divmod(nth, slices)
        length, keys = self.sequence_length, key(self.seed, languages, epochs)
        starts = (keys % np.uint64(length)).astype(np.int64) + shuffled(places, slices, keys) * length
        tokens = np.empty((self.batch_size, length), np.int32)
        for row, (language, start) in enumerate(zip(languages.tolist(), starts.tolist(), strict=True)):
            tokens[row] = self.corpus.tokens(self.languages[language], start, length)
        return languages, tokens

    def rows(self, steps: int) -> np.ndarray:
        """How many rows each language has in the first so many steps, int64, in the order of `languages`."""
        phase = self._phase(steps)
        return phase.before + phase.interleaving.totals((steps - phase.first_step) * self.batch_size)

    def _phase(self, step):
        """The phase that a step is in."""
        return [phase for phase in self._phases if phase.first_step <= step][-1]

    def batches(self, first_step: int, last_step: int) -> grain.IterDataset:
        """The batches of steps `first_step` up to `last_step`, prefetched by a thread, as `model.fit` takes them."""
        steps = grain.MapDataset.range(first_step, last_step).map(self.__getitem__)
        return steps.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=8))

    @property
    def unigram_entropy(self) -> float:
        """Entropy of the unigram distribution of the labels, in nats: the loss of a model without context."""
        is_text = ~self.corpus.tokenizer.is_special
        shares = np.zeros(len(is_text))
        for language, weight in zip(self.languages, self.weights, strict=True):
            counts = self.corpus.unigram_counts(language) * is_text
            shares += weight * counts / counts.sum()
        shares = shares[shares > 0]
        return float(-np.sum(shares * np.log(shares)))


def _counts(sequence_length, mask_rate):
    """How many predicted positions a row has from which step on."""
    rates = _by_step(mask_rate)
    return [(step, max(1, round(rates[step] * sequence_length))) for step in sorted(rates)]


def _by_step(value):
    """A schedule: rates or exponents by their first step."""
    return value if isinstance(value, Mapping) else {0: value}


def _check(corpus, batch_size, sequence_length, alpha, mask_rate):
    for knob, value, least in (("BATCH_SIZE", batch_size, 1), ("SEQUENCE_LENGTH", sequence_length, 8)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"{knob} is {value!r}; it must be a whole number of at least {least}")
    for name, given, noun in (("alpha", alpha, "an exponent"), ("mask_rate", mask_rate, "a share")):
        steps = _by_step(given)
        if 0 not in steps or not all(isinstance(step, int) and step >= 0 for step in steps):
            raise UserError(f"{name} is {given!r}; it must give {noun} from step 0 on, as in {{0: 0.3, 1000: 0.15}}")
    for exponent in _by_step(alpha).values():
        if not isinstance(exponent, int | float) or not 0 <= exponent <= 1:
            raise UserError(f"alpha is {exponent!r}; it must be from 0 (equal shares) to 1 (proportional to size)")
    for rate in _by_step(mask_rate).values():
        if not isinstance(rate, int | float) or not 0 < rate < 1:
            raise UserError(f"mask_rate is {rate!r}; it must be greater than 0 and less than 1")
    short = [language for language in corpus.languages if corpus.num_tokens[language] < sequence_length]
    if short:
        raise UserError(
            f"corpus {corpus.path}: {short[0]} has {corpus.num_tokens[short[0]]} tokens, fewer than a row of "
            f"SEQUENCE_LENGTH {sequence_length}: add text or remove the language"
        )
