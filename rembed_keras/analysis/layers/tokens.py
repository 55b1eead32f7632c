"""The tokens of a sentence at one layer: their mean, some of them, and how alike they are.

As depth grows the states of a sentence's tokens tend to the same vector; that is over-smoothing, and the mean cosine
of its tokens shows it. All tokens that are not padding count, [CLS] and [SEP] too, but where it says otherwise.
"""

import numpy as np


def mean_of_tokens(states: np.ndarray, padding_mask: np.ndarray) -> np.ndarray:
    """The mean hidden state of each sentence's tokens.

    Args:
        states: float [N, S, D].
        padding_mask: int or bool [N, S], 0 for padding.

    Returns:
        float64 [N, D]; 0 for a row of padding alone.

    >>> mean_of_tokens(np.array([[[1.0], [3.0], [9.0]]]), np.array([[1, 1, 0]]))
    array([[2.]])
    """
    inside, size = _inside(states, padding_mask)
    # [N, S, D] -> [N, D]
    return np.einsum("nsd,ns->nd", np.asarray(states, np.float64), inside) / np.maximum(size, 1)[:, None]


def mean_of_inner_tokens(states: np.ndarray, padding_mask: np.ndarray) -> np.ndarray:
    """The mean hidden state of each sentence's tokens without the first and the last, which are [CLS] and [SEP].

    Args:
        states: as in `mean_of_tokens`.
        padding_mask: as in `mean_of_tokens`, with all padding at the end.

    Returns:
        float64 [N, D]; 0 for a row without a token between.

    >>> mean_of_inner_tokens(np.array([[[1.0], [3.0], [9.0], [7.0]]]), np.array([[1, 1, 1, 0]]))
    array([[3.]])
    """
    inside, _ = _inside(states, padding_mask)
    inner = np.zeros_like(inside)
    inner[:, 1:-1] = inside[:, 2:]  # a token that another follows, and that is not the first
    return mean_of_tokens(states, inner)


def states_of(states: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The hidden states of some tokens of all sentences, one after another.

    Args:
        states: float [N, S, D].
        chosen: int or bool [N, S], not 0 for T tokens.

    Returns:
        [T, D].
    """
    return np.asarray(states)[np.asarray(chosen) != 0]


def token_cosines(states: np.ndarray, padding_mask: np.ndarray) -> np.ndarray:
    """The mean cosine of all pairs of different tokens of a sentence.

    Args:
        states: float [N, S, D].
        padding_mask: int or bool [N, S], 0 for padding.

    Returns:
        float64 [N], 1 where all tokens have the same direction; NaN for fewer than two tokens.

    >>> token_cosines(np.array([[[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]]), np.array([[1, 1, 1]])).round(6)
    array([0.333333])

    Source: Shi et al. 2022, "Revisiting Over-smoothing in BERT from the Perspective of Graph", section 3.
    """
    inside, size = _inside(states, padding_mask)
    states = np.asarray(states, np.float64)
    lengths = np.linalg.norm(states, axis=-1, keepdims=True)
    unit = states / np.where(lengths == 0, 1, lengths) * inside[..., None]
    # the squared length of a sum of vectors is the sum of all their products, those with themselves among them
    everything = np.sum(unit.sum(axis=1) ** 2, axis=-1)  # [N, S, D] -> [N]
    pairs = everything - np.sum(unit**2, axis=(1, 2))
    return np.where(size > 1, pairs / np.maximum(size * (size - 1), 1), np.nan)


def _inside(states, padding_mask):
    """Which tokens are not padding, float64 [N, S], and how many, [N]."""
    inside = (np.asarray(padding_mask) != 0).astype(np.float64)
    if np.ndim(states) != 3 or np.shape(states)[:2] != inside.shape:
        raise ValueError(f"states {np.shape(states)} and mask {inside.shape} must be [N, S, D] and [N, S]")
    return inside, inside.sum(axis=1)
