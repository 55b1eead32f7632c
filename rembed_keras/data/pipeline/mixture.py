"""Batches as a function of (seed, step): languages are interleaved, rows sliced, tokens masked.

There is no shuffle buffer and no state. The language of row i of the run follows from the weights by arithmetic, and
the row is a slice of that language's stream of tokens; slice boundaries change with every epoch over the language, and
the order of slices is a permutation by seed and epoch. When the weights change at a step, each language continues with
its next row. Rows are packed: a slice has whatever documents fall into it, and `padding_mask` numbers them, so that
tokens attend within their own document only. Batch k does not need those before it, so resuming is a seek. Random
access and prefetching are Grain's; interleaving and shuffling are in `order`, a whole batch at once.
"""

import copy
import math
from collections.abc import Mapping

import grain
import numpy as np

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.pipeline.masking import mask_rows
from rembed_keras.data.pipeline.order import key, shuffled
from rembed_keras.data.pipeline.phases import Phase, courses, until
from rembed_keras.data.pipeline.schedules import by_step, check_schedules, shapes, up_to
from rembed_keras.data.tokenizers.protocol import check_words
from rembed_keras.errors import Count, CountOrZero, Seed, Share, UserError, check_counts


class Mixture:
    """Pre-training batches of a corpus.

    Args:
        corpus: the prepared corpus.
        batch_size: B, rows a batch; or a schedule of sizes by their first step, which begins at step 0.
        sequence_length: S, tokens a row; or a schedule of lengths. {0: 64, 900: 16} and {0: 128, 900: 512} read as many
            tokens a step in rows that grow. A language begins a new epoch where the length changes.
        seed: of the order of rows, their boundaries and the masks.
        alpha: sampling exponent: a language's share of the rows is proportional to its number of tokens to the power
            of alpha, 1 for proportional and 0 for equal shares; or a schedule of exponents by their first step, which
            begins at step 0. A language's rows are counted over the whole run, so a change of alpha repeats and skips
            none within an epoch.
        mask_rate: share of a row's tokens that are predicted; or a schedule of rates by their first step, which begins
            at step 0. There are as many slots as the highest rate needs; a step with a lower one leaves some empty.
        whole_word: whether to mask whole words; see `masking.mask_rows`.

    Attributes:
        batch_size: B of the last phase.
        sequence_length: S of the longest.
        languages: names, in the order of `language_ids`.
        weights: each language's share of the rows in the last phase, float64, in the same order.
        num_predictions: P, predicted positions of the longest row.

    Raises:
        UserError: for a size, rate or exponent out of range, a language shorter than a row, or whole words of a
            tokenizer that does not tell them apart.

    Source: Conneau & Lample 2019, section 3.1, for alpha.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: Count | Mapping[CountOrZero, Count],
        sequence_length: Count | Mapping[CountOrZero, Count],
        seed: Seed = 0,
        alpha: Share | Mapping[CountOrZero, Share] = 0.5,
        mask_rate: Share | Mapping[CountOrZero, Share] = 0.15,
        whole_word: bool = False,
    ):
        check_counts({"SEED": seed}, "Seed")
        _check(corpus, batch_size, sequence_length, alpha, mask_rate)
        if whole_word:
            check_words(corpus.tokenizer)
        self.corpus, self.seed, self.whole_word = corpus, seed, whole_word
        self.languages = corpus.languages
        self.follow(batch_size, sequence_length, alpha, mask_rate)

    def follow(self, batch_size, sequence_length, alpha, mask_rate) -> None:
        """Takes the numbers that may be schedules, as the constructor does; `up_to` takes parts of them."""
        self._schedules = batch_size, sequence_length, alpha, mask_rate
        self._shapes, self._mask_rate = shapes(batch_size, sequence_length), mask_rate
        self.batch_size = self._shapes[-1][1]
        self.sequence_length = max(length for _, _, length in self._shapes)
        self.num_predictions = _slots(self.sequence_length, mask_rate)
        sizes = np.array([self.corpus.num_tokens[language] for language in self.languages], np.int64)
        self._courses = courses(sizes, batch_size, sequence_length, alpha)
        self.weights = self._courses[-1].weights

    def up_to(self, steps: Count) -> "Mixture":
        """The mixture of a run of so many steps: the same batches, and nothing of what schedules say of later ones."""
        bounded = copy.copy(self)
        bounded.follow(*(up_to(each, steps) for each in self._schedules))
        return bounded

    def __getitem__(self, step: int):
        """The batch of a step, from 0.

        Returns:
            `(x, y, sample_weight)`. `x` is a dict of int32 arrays: `token_ids`, `segment_ids` and `padding_mask`
            [B, S], the last numbering the documents of a row from 1; `mask_positions` [B, P]; `language_ids` [B].
            `y` int32 [B, P] are the masked-token labels and `sample_weight` float32 [B, P] is 0 for empty slots.
        """
        languages, tokens = self._rows(step)
        count = [count for first, count in _counts(tokens.shape[1], self._mask_rate) if first <= step][-1]
        return self._batch(languages, tokens, count, np.random.default_rng((self.seed, step)))

    @staticmethod
    def blank(
        batch_size: int | Mapping[int, int],
        sequence_length: int | Mapping[int, int],
        mask_rate: float | Mapping[int, float] = 0.15,
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Zeros of a batch's shapes and dtypes, which take no memory: what a step can be compiled for without a corpus.

        Args:
            batch_size: B; of a schedule the last.
            sequence_length: S; of a schedule the last.
            mask_rate: as of the mixture.

        Returns:
            As `__getitem__`.

        >>> x, y, sample_weight = Mixture.blank(batch_size=2048, sequence_length=512)
        >>> x["token_ids"].shape, y.shape
        ((2048, 512), (2048, 77))
        """
        _, rows, length = shapes(batch_size, sequence_length)[-1]
        slots = rows, _slots(length, mask_rate)
        zero, shape = np.zeros((), np.int32), (rows, length)
        x = {key: np.broadcast_to(zero, shape) for key in ("token_ids", "segment_ids", "padding_mask")}
        x |= {"mask_positions": np.broadcast_to(zero, slots), "language_ids": np.broadcast_to(zero, (rows,))}
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
        return self._batch(languages, tokens, _counts(self.sequence_length, self._mask_rate)[-1][1], rng)

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
        empty = ((0, 0), (0, _slots(tokens.shape[1], self._mask_rate) - masked["mask_positions"].shape[1]))
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
        course = [course for course in self._courses if course.first_step <= step][-1]
        row = (step - course.first_step) * course.batch_size
        languages, nth = course.interleaving(np.arange(course.batch_size) + row)
        nth += course.before[languages]
        slices = course.slices[languages]
        epochs, places = np.divmod(nth, slices)
        length, keys = course.sequence_length, key(self.seed, languages, epochs)
        starts = (keys % np.uint64(length)).astype(np.int64) + shuffled(places, slices, keys) * length
        tokens = np.empty((course.batch_size, length), np.int32)
        for row, (language, start) in enumerate(zip(languages.tolist(), starts.tolist(), strict=True)):
            tokens[row] = self.corpus.tokens(self.languages[language], start, length)
        return languages, tokens

    def rows(self, steps: int) -> np.ndarray:
        """How many rows each language has in the first so many steps, int64, in the order of `languages`."""
        return np.sum([course.rows(end) for course, end in until(self._courses, steps)], axis=0)

    def tokens(self, steps: int) -> np.ndarray:
        """How many tokens each language has in the first so many steps, int64, in the order of `languages`."""
        read = [course.rows(end) * course.sequence_length for course, end in until(self._courses, steps)]
        return np.sum(read, axis=0)

    def phases(self, steps: int) -> list[Phase]:
        """The phases of a run of so many steps: one, unless batches or rows change their size."""
        begin = [shape for shape in self._shapes if shape[0] < steps]
        ends = [*(first for first, _, _ in begin[1:]), steps]
        return [Phase(first, last, *shape) for (first, *shape), last in zip(begin, ends, strict=True)]

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
            shares += weight * counts / max(counts.sum(), 1)
        shares = shares[shares > 0] / max(shares.sum(), np.finfo(float).tiny)  # a language without text has no labels
        return float(np.sum(shares * -np.log(shares)))


def _counts(sequence_length, mask_rate):
    """How many predicted positions a row has from which step on."""
    rates = by_step(mask_rate)
    return [(step, max(1, round(rates[step] * sequence_length))) for step in sorted(rates)]


def _slots(sequence_length, mask_rate):
    """P, slots for predictions that a row of a length has."""
    return max(count for _, count in _counts(sequence_length, mask_rate))


def _check(corpus, batch_size, sequence_length, alpha, mask_rate):
    check_schedules(batch_size, sequence_length, alpha, mask_rate)
    longest = max(by_step(sequence_length).values())
    short = [language for language in corpus.languages if corpus.num_tokens[language] < longest]
    if short:
        raise UserError(
            f"corpus {corpus.path}: {short[0]} has {corpus.num_tokens[short[0]]} tokens, fewer than a row of "
            f"SEQUENCE_LENGTH {longest}: add text or remove the language"
        )
