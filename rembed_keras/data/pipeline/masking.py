"""Which tokens are masked: a function of the random generator that is passed in, and of nothing else.

Every row gets the same number of predicted positions, so that shapes never change. Of the selected tokens 80 % become
[MASK], 10 % a random piece and 10 % stay, so that the encoder cannot rely on seeing [MASK]. Source: Devlin et al. 2019,
section 3.1; whole-word masking as in BERT's later release.
"""

from typing import NamedTuple

import numpy as np

from rembed_keras.data.tokenizers.protocol import AnyTokenizer, word_begins

MASKED, RANDOM = 0.8, 0.1  # shares of the selected tokens; the rest are unchanged


def mask_rows(
    tokens: np.ndarray,
    num_predictions: int,
    rng: np.random.Generator,
    tokenizer: AnyTokenizer,
    whole_word: bool = False,
) -> dict[str, np.ndarray]:
    """Masks tokens of every row.

    Args:
        tokens: int [B, S].
        num_predictions: P, how many positions of a row are predicted; a row with fewer tokens of text has empty slots.
        rng: the source of randomness.
        tokenizer: says which pieces are text and which begin a word.
        whole_word: whether to select whole words; a word that does not fit in the remaining slots is skipped, so slots
            may stay empty, and a word of more than P tokens is never selected.

    Returns:
        `token_ids` int32 [B, S], the masked input; `mask_positions` int32 [B, P], ascending, empty slots last and 0;
        `mask_ids` int32 [B, P], the original ids, which are the labels; `mask_weights` float32 [B, P], 1 for a
        prediction, 0 for an empty slot.
    """
    is_text = ~tokenizer.is_special[tokens]
    chosen = _words(tokens, is_text, num_predictions, rng, tokenizer) if whole_word else is_text
    order = np.where(chosen, rng.random(tokens.shape), 2.0)  # text in random order, then the rest
    positions = np.argpartition(order, num_predictions - 1, axis=1)[:, :num_predictions]
    real = np.take_along_axis(chosen, positions, axis=1)
    positions = np.sort(np.where(real, positions, tokens.shape[1]), axis=1)
    real = positions < tokens.shape[1]
    positions = np.where(real, positions, 0)
    labels = np.take_along_axis(tokens, positions, axis=1)
    draws = rng.random(positions.shape)
    pieces = np.flatnonzero(~tokenizer.is_special)
    inputs = np.where(draws < MASKED + RANDOM, pieces[rng.integers(len(pieces), size=positions.shape)], labels)
    inputs = np.where(draws < MASKED, tokenizer.mask_id, inputs)
    rows, slots = np.nonzero(real)
    masked = tokens.astype(np.int32)
    masked[rows, positions[rows, slots]] = inputs[rows, slots]
    return {
        "token_ids": masked,
        "mask_positions": positions.astype(np.int32),
        "mask_ids": np.where(real, labels, 0).astype(np.int32),
        "mask_weights": real.astype(np.float32),
    }


class WordPasses(NamedTuple):
    """Rows in which words are masked, so that over all of them every token of text is predicted once.

    Attributes:
        rows: int64 [M], the row of the text that each is of.
        masked: as `mask_rows` gives it, of M rows. Slots of tokens that are masked and not predicted have weight 0.
    """

    rows: np.ndarray
    masked: dict[str, np.ndarray]


def mask_every_word(tokens: np.ndarray, num_predictions: int, tokenizer: AnyTokenizer) -> WordPasses:
    """Masks whole words, and predicts their pieces from left to right.

    A row is read several times. Each time other words are masked, together at most P tokens and far apart; of a word of
    several pieces each is predicted in a pass of its own, with the pieces before it seen and those after it masked, so
    that the losses of its pieces add up to that of the word. A word of more than P pieces is cut. Nothing is random.

    Args:
        tokens: int [B, S].
        num_predictions: P.
        tokenizer: says which pieces are text and which begin a word; [UNK] is neither masked nor predicted.

    Source: Kauf and Ivanova 2023, "A better way to do masked language model scoring", PLL-word-l2r.
    """
    rows, spans = [], []  # of each pass, the positions that are masked, and which are predicted
    for row, own in enumerate(tokens):
        for words in _folds(_word_spans(own, tokenizer), num_predictions):
            for nth in range(max(map(len, words))):
                rest = [word[nth:] for word in words if len(word) > nth]
                rows.append(row)
                spans.append((sorted(place for word in rest for place in word), {word[0] for word in rest}))
    number = np.array(rows, np.int64)
    inputs = tokens[number].astype(np.int32)
    shape = (len(rows), num_predictions)
    positions, ids, weights = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    for each, (row, (places, predicted)) in enumerate(zip(rows, spans, strict=True)):
        inputs[each, places] = tokenizer.mask_id
        positions[each, : len(places)] = places
        ids[each, : len(places)] = tokens[row, places]
        weights[each, : len(places)] = [place in predicted for place in places]
    masked = {"token_ids": inputs, "mask_positions": positions, "mask_ids": ids, "mask_weights": weights}
    return WordPasses(number, masked)


def _word_spans(tokens, tokenizer):
    """The positions of each word of a row [S]."""
    words: list[list[int]] = []
    is_inside = False
    for place, (token, begins) in enumerate(zip(tokens.tolist(), word_begins(tokens, tokenizer), strict=True)):
        is_text = not tokenizer.is_special[token] and token != tokenizer.unk_id
        if is_text and (begins or not is_inside):
            words.append([])
        if is_text:
            words[-1].append(place)
        is_inside = is_text
    return words


def _folds(words, size):
    """Words in groups of at most so many tokens, neighbors in different groups."""
    parts = [word[begin : begin + size] for word in words for begin in range(0, len(word), size)]
    folds: list[list[list[int]]] = [[] for _ in range(-(-sum(map(len, parts)) // size))]
    for number, part in enumerate(parts):
        order = [*range(number % len(folds), len(folds)), *range(number % len(folds))]
        room = [fold for fold in order if sum(map(len, folds[fold])) + len(part) <= size]
        if not room:
            folds.append([])
        folds[room[0] if room else -1].append(part)
    return [fold for fold in folds if fold]


def _words(tokens, is_text, num_predictions, rng, tokenizer):
    """Selects words in random order, of at most `num_predictions` tokens per row together, bool [B, S]."""
    size = tokens.shape[1]
    follows_special = np.pad(~is_text, ((0, 0), (1, 0)), constant_values=True)[:, :-1]
    begins = ~is_text | word_begins(tokens, tokenizer) | follows_special
    word = np.cumsum(begins, axis=1) - 1  # [B, S], each token's word
    lengths = np.zeros(tokens.shape, np.int64)  # [B, words]
    rows = np.arange(len(tokens))
    np.add.at(lengths, (rows[:, None], word), is_text)
    taken = np.zeros(tokens.shape, bool)  # [B, words]
    free = np.full(len(tokens), num_predictions)
    for drawn in np.argsort(rng.random((len(tokens), size)), axis=1).T:
        length = lengths[rows, drawn]
        fits = (length > 0) & (length <= free)
        taken[rows, drawn] = fits
        free = free - np.where(fits, length, 0)
    return np.take_along_axis(taken, word, axis=1) & is_text
