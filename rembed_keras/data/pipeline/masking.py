"""Which tokens are masked: a function of the random generator that is passed in, and of nothing else.

Every row gets the same number of predicted positions, so that shapes never change. Of the selected tokens 80 % become
[MASK], 10 % a random piece and 10 % stay, so that the encoder cannot rely on seeing [MASK]. Source: Devlin et al. 2019,
section 3.1; whole-word masking as in BERT's later release.
"""

import numpy as np

from rembed_keras.data.tokenizers.sentence_piece import Tokenizer

MASKED, RANDOM = 0.8, 0.1  # shares of the selected tokens; the rest are unchanged


def mask_rows(
    tokens: np.ndarray,
    num_predictions: int,
    rng: np.random.Generator,
    tokenizer: Tokenizer,
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


def _words(tokens, is_text, num_predictions, rng, tokenizer):
    """Selects words in random order, of at most `num_predictions` tokens per row together, bool [B, S]."""
    size = tokens.shape[1]
    follows_special = np.pad(~is_text, ((0, 0), (1, 0)), constant_values=True)[:, :-1]
    begins = ~is_text | tokenizer.starts_word[tokens] | follows_special
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
