"""Translation pairs by their vectors, as in XTREME's two retrieval tasks: BUCC and Tatoeba.

In Tatoeba every sentence has a translation among the others, and the nearest neighbor by cosine is predicted. In BUCC
few have one: pairs of neighbors are scored, and a threshold, chosen on the development set, decides. Cosines are not
comparable between sentences, so a pair's is divided by the mean cosine of the neighbors of both (Artetxe and Schwenk
2019, "Margin-based parallel corpus mining"). Source: google-research/xtreme.
"""

from collections.abc import Hashable, Mapping, Set
from typing import TypeVar

import numpy as np

from rembed_keras.tasks.retrieval.parallel_text import hits_at_1

Pair = TypeVar("Pair", bound=Hashable)

ROWS = 256  # sentences whose cosines to all others are in memory at a time


def tatoeba_accuracy(english: np.ndarray, others: np.ndarray) -> float:
    """Share of English sentences whose nearest neighbor by cosine is their translation: precision@1.

    This is the direction of XTREME's script; swap the arguments for the other one. Vectors are not centered. A tie
    counts as its expected value under random choice.

    Args:
        english: float [N, D], row i a translation of row i of the others.
        others: float [N, D].

    >>> english, others = np.array([[5, 1], [3, 1]]), np.eye(2)
    >>> tatoeba_accuracy(english, others), tatoeba_accuracy(others, english)
    (0.5, 1.0)
    """
    return hits_at_1(_unit(english) @ _unit(others).T)[0]


def mine(
    sources: np.ndarray, targets: np.ndarray, neighbors: int = 4, margin: bool = True
) -> dict[tuple[int, int], float]:
    """Candidate translations: a sentence of one language with its best neighbor in the other, each used once.

    The best pairs of all sentences, of both languages, are accepted greedily by score; a pair is dropped if one of its
    sentences is already in a pair, or if its score is not positive. Equal sentences should be passed once.

    Args:
        sources: float [N, D], one vector per sentence.
        targets: float [M, D].
        neighbors: k, how many nearest neighbors of a sentence are candidates and enter its mean; fewer if there are
            not as many.
        margin: whether a pair's score is its cosine divided by the mean of both sentences' mean cosines to their
            neighbors (ratio margin), and 0 where that is not positive; else it is the cosine.

    Returns:
        Scores by (row of a source, row of a target), highest first.

    >>> mine(np.eye(3)[:2], np.eye(3), neighbors=2)
    {(0, 0): 2.0, (1, 1): 2.0}
    """
    sources, targets = _unit(sources), _unit(targets)
    forward, ours = _nearest(sources, targets, neighbors)
    backward, theirs = _nearest(targets, sources, neighbors)
    found, forward_scores = _best(forward, ours, theirs.mean(axis=1), margin)
    found_back, backward_scores = _best(backward, theirs, ours.mean(axis=1), margin)
    pairs = [*enumerate(found), *((source, target) for target, source in enumerate(found_back))]
    scores = np.concatenate([forward_scores, backward_scores]).tolist()
    mined: dict[tuple[int, int], float] = {}
    used_sources: set[int] = set()
    used_targets: set[int] = set()
    for (source, target), score in sorted(zip(pairs, scores, strict=True), key=lambda item: -item[1]):
        if score > 0 and source not in used_sources and target not in used_targets:
            mined[source, target] = score
            used_sources.add(source)
            used_targets.add(target)
    return mined


def best_threshold(scores: Mapping[Pair, float], gold: Set[Pair]) -> float:
    """The threshold with the highest F1, to be chosen on a development set: BUCC.

    It lies halfway between the lowest accepted score and the next, and is the lowest score if all are accepted. Of
    several optima the highest is returned. Equal scores are accepted together: XTREME's pass over the sorted list may
    count a part of them, and then returns a threshold that does not have that F1.

    Args:
        scores: scores by pair.
        gold: the gold pairs.

    Returns:
        A threshold for `mining_f1`; 0 if no pair is a gold pair.

    >>> best_threshold({("a", "x"): 0.9, ("b", "y"): 0.7, ("c", "z"): 0.4}, gold={("a", "x"), ("b", "y")})
    0.55
    """
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    best, threshold, right = 0.0, 0.0, 0
    for count, (pair, score) in enumerate(ranked, start=1):
        right += pair in gold
        below = ranked[count][1] if count < len(ranked) else None
        f1 = 2 * right / (count + len(gold))
        if below != score and f1 > best:
            best, threshold = f1, score if below is None else _between(below, score)
    return threshold


def mining_f1(scores: Mapping[Pair, float], gold: Set[Pair], threshold: float) -> float:
    """F1 of the pairs whose score reaches a threshold: BUCC.

    Args:
        scores: scores by pair.
        gold: the gold pairs.
        threshold: the lowest score that is accepted.

    Returns:
        Between 0 and 1; 0 if no accepted pair is a gold pair.

    >>> mining_f1({("a", "x"): 0.9, ("b", "y"): 0.7, ("c", "z"): 0.4}, gold={("a", "x"), ("d", "u")}, threshold=0.5)
    0.5
    """
    accepted = {pair for pair, score in scores.items() if score >= threshold}
    right = len(accepted & gold)
    return 2 * right / (len(accepted) + len(gold)) if right else 0.0


def _unit(vectors):
    vectors = np.asarray(vectors, np.result_type(vectors, np.float32))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1.0, lengths)


def _nearest(queries, candidates, neighbors):
    """Rows [N, K] of the nearest candidates of each query, in any order, and their cosines [N, K]."""
    neighbors = min(neighbors, len(candidates))
    rows, cosines = [], []
    for start in range(0, len(queries), ROWS):
        similarity = queries[start : start + ROWS] @ candidates.T  # [ROWS, M]
        near = np.argpartition(similarity, -neighbors, axis=1)[:, -neighbors:]
        rows.append(near)
        cosines.append(np.take_along_axis(similarity, near, axis=1))
    return np.concatenate(rows), np.concatenate(cosines)


def _best(near, cosines, means, margin):
    """The best scoring neighbor of each query [N], and its score [N]; `near` are the rows of its neighbors [N, K]."""
    scores = cosines
    if margin:
        mean = (cosines.mean(axis=1, keepdims=True) + means[near]) / 2  # [N, K]
        scores = np.divide(cosines, mean, out=np.zeros_like(cosines), where=mean > 0)
    place = scores.argmax(axis=1)[:, None]
    return np.take_along_axis(near, place, axis=1)[:, 0].tolist(), np.take_along_axis(scores, place, axis=1)[:, 0]


def _between(low, high):
    """A threshold that `high` reaches and `low` does not."""
    middle = low + (high - low) / 2
    return middle if middle > low else high
