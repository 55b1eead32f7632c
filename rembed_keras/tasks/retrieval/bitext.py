"""Bitext mining (BUCC) and bitext retrieval (Tatoeba): sentences, gold pairs and scores.

Nothing is trained. The sentences of both languages are embedded by an encoder, and the vectors compared as in
`rembed_keras.tasks.retrieval.mining`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rembed_keras.errors import UserError
from rembed_keras.tasks.retrieval.mining import best_threshold, mine, mining_f1, tatoeba_accuracy

# of the English sentences [N, D] and of the others [M, D]
Vectors = Mapping[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Bitext:
    """English sentences and sentences of another language, some of which are translations of each other.

    Attributes:
        english: N sentences by id, in the order of their file.
        others: M sentences of the other language by id, in the order of theirs.
        gold: the gold pairs, each as (id of the other sentence, id of the English one); None if they are not public.
    """

    english: Mapping[str, str]
    others: Mapping[str, str]
    gold: frozenset[tuple[str, str]] | None = None


@dataclass(frozen=True)
class BitextSplits:
    """The bitexts of a task, by language.

    Attributes:
        dev: to choose a threshold on; none for Tatoeba, which needs none.
        test: to be scored, or predicted for a submission where there are no gold pairs.

    Raises:
        UserError: for a language of the test that has no development set, where others have one.
    """

    dev: Mapping[str, Bitext] = field(default_factory=dict)
    test: Mapping[str, Bitext] = field(default_factory=dict)

    def __post_init__(self):
        missing = next((language for language in self.test if self.dev and language not in self.dev), None)
        if missing is not None:
            raise UserError(f"the bitext of {missing} has no development set to choose a threshold on")


def bucc_candidates(
    bitext: Bitext, english: np.ndarray, others: np.ndarray, neighbors: int = 4, margin: bool = True
) -> dict[tuple[str, str], float]:
    """Candidate pairs of translations, with their scores.

    Of equal sentences one is compared, and its pair is then dropped, since it is ambiguous which of them is meant. So
    does XTREME.

    Args:
        bitext: the sentences.
        english: float [N, D], vectors of its English sentences.
        others: float [M, D], vectors of the others.
        neighbors: see `mine`.
        margin: see `mine`.

    Returns:
        Scores by (id of the other sentence, id of the English one), highest first.

    Raises:
        ValueError: for another number of vectors than of sentences.

    >>> bitext = Bitext({"en-01": "Yes.", "en-02": "No."}, {"de-01": "Nein.", "de-02": "Ja."})
    >>> bucc_candidates(bitext, np.eye(2), np.eye(2)[::-1])
    {('de-01', 'en-02'): 2.0, ('de-02', 'en-01'): 2.0}
    """
    _check_sizes(bitext, english, others)
    rows, ids = zip(*(_distinct(side) for side in (bitext.others, bitext.english)), strict=True)
    mined = mine(np.asarray(others)[rows[0]], np.asarray(english)[rows[1]], neighbors, margin)
    named = ((ids[0][source], ids[1][target], score) for (source, target), score in mined.items())
    return {(other, ours): score for other, ours, score in named if other is not None and ours is not None}


def bucc_thresholds(dev: Mapping[str, Bitext], vectors: Vectors) -> dict[str, float]:
    """The threshold of each language with the highest F1 on its development set.

    Args:
        dev: bitexts by language.
        vectors: of the English sentences and of the others, by language.

    Raises:
        UserError: for a bitext without gold pairs.
    """
    return {
        language: best_threshold(bucc_candidates(bitext, *vectors[language]), _gold(bitext, language))
        for language, bitext in dev.items()
    }


def bucc_pairs(
    bitexts: Mapping[str, Bitext], vectors: Vectors, thresholds: Mapping[str, float]
) -> dict[str, list[tuple[str, str]]]:
    """The mined pairs of each language, for a submission.

    Args:
        bitexts: bitexts by language.
        vectors: of the English sentences and of the others, by language.
        thresholds: the lowest score of a mined pair, by language.

    Returns:
        Pairs (id of the other sentence, id of the English one), highest score first.
    """
    return {
        language: [
            pair for pair, score in bucc_candidates(bitext, *vectors[language]).items() if score >= thresholds[language]
        ]
        for language, bitext in bitexts.items()
    }


def bucc_scores(
    bitexts: Mapping[str, Bitext], vectors: Vectors, thresholds: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """F1 of the mined pairs: BUCC.

    Args:
        bitexts: bitexts by language.
        vectors: of the English sentences and of the others, by language.
        thresholds: the lowest score of a mined pair, by language, chosen on the development sets.

    Returns:
        `{language: {"f1": ...}}`, between 0 and 1.

    Raises:
        UserError: for a bitext without gold pairs.
    """
    return {
        language: {
            "f1": mining_f1(bucc_candidates(bitext, *vectors[language]), _gold(bitext, language), thresholds[language])
        }
        for language, bitext in bitexts.items()
    }


def tatoeba_rows(bitexts: Mapping[str, Bitext], vectors: Vectors) -> dict[str, list[int]]:
    """Rows of the nearest sentences by cosine similarity, by language, for a submission.

    Args:
        bitexts: bitexts by language.
        vectors: of the English sentences and of the others, by language.

    Returns:
        For each English sentence a row of the other language's file, from 0; ties go to the first.

    >>> bitext = Bitext({"0": "No.", "1": "Yes."}, {"0": "Ja.", "1": "Nein."})
    >>> tatoeba_rows({"de": bitext}, {"de": (np.eye(2), np.array([[0, 3], [2, 1]]))})
    {'de': [1, 0]}
    """
    rows = {}
    for language, bitext in bitexts.items():
        english, others = (np.asarray(side) for side in vectors[language])
        _check_sizes(bitext, english, others)
        lengths = np.linalg.norm(others, axis=1)
        # an English vector's own norm does not change its nearest neighbor
        cosines = english @ (others / np.where(lengths == 0, 1, lengths)[:, None]).T
        rows[language] = cosines.argmax(axis=1).tolist()
    return rows


def tatoeba_scores(bitexts: Mapping[str, Bitext], vectors: Vectors) -> dict[str, dict[str, float]]:
    """Bitext retrieval accuracy (precision@1), from English to the other language: Tatoeba.

    Args:
        bitexts: bitexts by language, in which every sentence has one translation.
        vectors: of the English sentences and of the others, by language.

    Returns:
        `{language: {"accuracy": ...}}`, between 0 and 1.

    Raises:
        UserError: for a bitext without gold pairs.

    >>> bitext = Bitext({"0": "No.", "1": "Yes."}, {"0": "Ja.", "1": "Nein."}, frozenset({("0", "1"), ("1", "0")}))
    >>> tatoeba_scores({"de": bitext}, {"de": (np.eye(2), np.eye(2)[::-1])})
    {'de': {'accuracy': 1.0}}
    """
    scores = {}
    for language, bitext in bitexts.items():
        english, others = vectors[language]
        _check_sizes(bitext, english, others)
        place = {name: row for row, name in enumerate(bitext.others)}
        translation = {ours: place[other] for other, ours in _gold(bitext, language)}
        rows = [translation[name] for name in bitext.english]
        scores[language] = {"accuracy": tatoeba_accuracy(english, np.asarray(others)[rows])}
    return scores


def _gold(bitext, language):
    if bitext.gold is None:
        raise UserError(f"the gold pairs of {language} are not public: predict a submission instead of scoring here")
    return bitext.gold


def _distinct(sentences: Mapping[str, str]) -> tuple[list[int], list[str | None]]:
    """Rows of the first of equal sentences, and their ids, None where a sentence is not unique."""
    first: dict[str, int] = {}
    for row, sentence in enumerate(sentences.values()):
        first.setdefault(sentence, row)
    ids, counts = list(sentences), Counter(sentences.values())
    return list(first.values()), [ids[row] if counts[sentence] == 1 else None for sentence, row in first.items()]


def _check_sizes(bitext, english, others):
    if (len(english), len(others)) != (len(bitext.english), len(bitext.others)):
        raise ValueError(
            f"there are {len(english)} and {len(others)} vectors for {len(bitext.english)} English sentences and "
            f"{len(bitext.others)} others"
        )
