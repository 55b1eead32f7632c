"""The vectors of the most frequent pieces, and whose they are: what an embedding projector shows."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # a study is planned without what reads its data
    from rembed_keras.data.pipeline.mixture import Mixture

MOST = 3000  # pieces that are shown


class Pieces(NamedTuple):
    """Rows of an input table.

    Attributes:
        names: N pieces as their tokenizer writes them.
        languages: of each the language in whose text its share is the highest.
        counts: how often each is in the text of all languages, int64 [N].
        vectors: float32 [N, E_in].
    """

    names: list[str]
    languages: list[str]
    counts: np.ndarray
    vectors: np.ndarray


def frequent_ids(mixture: "Mixture", most: int = MOST) -> tuple[np.ndarray, np.ndarray]:
    """Ids of pieces, an equal number of each language: its most frequent ones that no other has taken.

    Returns:
        The ids, int64 [N], and the number of each one's language, int64 [N].
    """
    shares = _shares(mixture)  # [L, V]
    taken: dict[int, int] = {}
    for language, own in enumerate(shares * (shares == shares.max(axis=0))):
        for each in np.argsort(-own, kind="stable")[: most // len(shares)].tolist():
            if own[each] > 0:
                taken.setdefault(each, language)
    return np.array([*taken], np.int64), np.array([*taken.values()], np.int64)


def pieces_of(mixture: "Mixture", ids: np.ndarray, languages: np.ndarray, vectors: np.ndarray) -> Pieces:
    """What is known of pieces.

    Args:
        mixture: knows the corpus.
        ids: of the pieces, int [N].
        languages: of each, the number of its language, int [N].
        vectors: float [N, E_in].
    """
    tokenizer = mixture.corpus.tokenizer
    counts = sum(mixture.corpus.unigram_counts(name)[ids] for name in mixture.languages)
    return Pieces(
        [tokenizer.piece(int(each)) for each in ids],
        [mixture.languages[each] for each in languages],
        np.asarray(counts, np.int64),
        np.asarray(vectors, np.float32),
    )


def _shares(mixture):
    """Each piece's share of each language's text, special ones left out, float64 [L, V]."""
    is_text = ~mixture.corpus.tokenizer.is_special
    counts = np.array([mixture.corpus.unigram_counts(name) * is_text for name in mixture.languages], np.float64)
    return counts / counts.sum(axis=1, keepdims=True)
