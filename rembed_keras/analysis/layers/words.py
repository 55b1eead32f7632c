"""Word similarity without human ratings: whether vectors find those words similar that occur in the same contexts.

Ratings such as SimLex's come in few languages and may not be redistributed. What stands in for them is made of the text
itself: the cosine of two words' rows of positive pointwise mutual information (PPMI) with the words around them.
"""

from collections.abc import Sequence

import numpy as np


def context_counts(rows: np.ndarray, words: Sequence[int], vocabulary_size: int, window: int = 4) -> np.ndarray:
    """How often each piece is near each word.

    Args:
        rows: ids of text, int [N, S].
        words: W ids.
        vocabulary_size: V.
        window: places to either side that are near.

    Returns:
        int64 [W, V].

    >>> context_counts(np.array([[3, 1, 2]]), words=[1], vocabulary_size=4, window=1)
    array([[0, 0, 1, 1]])
    """
    index = np.full(vocabulary_size, -1)
    index[list(words)] = np.arange(len(words))
    counts = np.zeros((len(words), vocabulary_size), np.int64)
    for distance in range(1, min(window, rows.shape[1] - 1) + 1):
        for word, near in ((rows[:, :-distance], rows[:, distance:]), (rows[:, distance:], rows[:, :-distance])):
            known = index[word] >= 0
            np.add.at(counts, (index[word][known], near[known]), 1)
    return counts


def ppmi(counts: np.ndarray) -> np.ndarray:
    """Positive pointwise mutual information of words and contexts, in nats.

    Args:
        counts: int [W, C].

    Returns:
        float64 [W, C], max(0, log p(w, c) / (p(w) p(c))).

    Source: Bullinaria and Levy 2007, "Extracting semantic representations from word co-occurrence statistics".
    """
    counts = np.asarray(counts, np.float64)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True) / max(counts.sum(), 1)
    ratio = np.divide(counts, expected, out=np.zeros_like(counts), where=expected > 0)
    return np.log(np.maximum(ratio, 1))


def similarity_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's correlation of the cosines of all pairs of words by two sets of vectors.

    Args:
        first: float [W, D], row i of word i.
        second: float [W, E], row i of word i.

    Returns:
        From -1 to 1, around 0 for unrelated vectors; NaN if all pairs are equally similar.

    >>> vectors = np.random.default_rng(0).normal(size=(5, 3))
    >>> round(similarity_correlation(vectors, 3 * vectors), 6)
    1.0
    """
    from scipy.stats import rankdata

    pairs = np.triu_indices(len(first), 1)
    ranks = [rankdata(_cosines(vectors)[pairs]) for vectors in (first, second)]
    ours, theirs = (each - each.mean() for each in ranks)
    scale = np.sqrt(ours @ ours * (theirs @ theirs))
    return float(ours @ theirs / scale) if scale > 0 else float("nan")


def _cosines(vectors):
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths == 0, 1, lengths)
    return (unit @ unit.T).round(12)  # equal cosines tie
