"""Finding sentences' translations by their vectors, as XTREME's two retrieval tasks do: BUCC and Tatoeba.

In Tatoeba every sentence has its translation among the others, and the nearest by cosine is the answer. In BUCC few
have one: pairs of neighbors are scored, and a threshold, chosen on the development set, says which to believe. A
cosine is not comparable from one sentence to the next, so that a pair's is divided by the mean cosine of the
neighbors of both (Artetxe and Schwenk 2019, "Margin-based parallel corpus mining"). Source: google-research/xtreme.
"""

from collections.abc import Hashable, Mapping, Set
from typing import TypeVar

import numpy as np

from rembed_keras.tasks.retrieval.parallel_text import hits_at_1

Pair = TypeVar("Pair", bound=Hashable)

ROWS = 256  # sentences whose cosines to all others are held in memory at a time


def tatoeba_accuracy(english: np.ndarray, others: np.ndarray) -> float:
    """How often an English sentence's nearest vector by cosine is that of its translation.

    XTREME's script asks in this direction; the arguments in the other order ask from the other language. Vectors are
    taken as they are, no mean is moved. A tie counts for what chance would make of it.

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

    Of all sentences' best pairs, of both languages, the highest is taken first, and a pair is left out if one of its
    sentences is already taken, or if its score is not positive. Equal sentences should be given once.

    Args:
        sources: float [N, D], a vector a sentence.
        targets: float [M, D].
        neighbors: how many neighbors of a sentence are considered, and make up its mean; fewer if there are not as
            many.
        margin: whether a pair's score is its cosine divided by the mean of both sentences' mean cosines to their
            neighbors, and 0 where that is not positive; else it is the cosine.

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

    It lies halfway between the lowest score that is believed and the next, and is the lowest score of all if all are
    believed. Of several that are as good the highest is taken. Equal scores stand or fall together: XTREME's pass over
    the sorted list may count a part of them, and then names a threshold that does not have that F1.

    Args:
        scores: scores by pair.
        gold: the right pairs.

    Returns:
        A threshold for `mining_f1`; 0 if no pair is right.

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
        gold: the right pairs.
        threshold: the lowest score that is believed.

    Returns:
        Between 0 and 1; 0 where no pair that is believed is right.

    >>> mining_f1({("a", "x"): 0.9, ("b", "y"): 0.7, ("c", "z"): 0.4}, gold={("a", "x"), ("d", "u")}, threshold=0.5)
    0.5
    """
    believed = {pair for pair, score in scores.items() if score >= threshold}
    right = len(believed & gold)
    return 2 * right / (len(believed) + len(gold)) if right else 0.0


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
    """Of each query's neighbors, rows of the others [N, K], that of the highest score, and the scores [N]."""
    scores = cosines
    if margin:
        mean = (cosines.mean(axis=1, keepdims=True) + means[near]) / 2  # [N, K]
        scores = np.divide(cosines, mean, out=np.zeros_like(cosines), where=mean > 0)
    place = scores.argmax(axis=1)[:, None]
    return np.take_along_axis(near, place, axis=1)[:, 0].tolist(), np.take_along_axis(scores, place, axis=1)[:, 0]


def _between(low, high):
    """A number that high reaches and low does not."""
    middle = low + (high - low) / 2
    return middle if middle > low else high
