"""Bitext retrieval of a pre-trained encoder, without fine-tuning: precision@1 of translations.

A sentence vector is the mean over its tokens, without [CLS] and [SEP], of the middle layers. Vectors are centered per
language, which is the same as moving the queries by the mean difference of the two languages, and the nearest neighbor
by Euclidean distance is the prediction. Source: Chung et al. 2021, appendix A.9.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from rembed_keras.data.text import read_lines, text_files
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import Count, UserError, check_counts
from rembed_keras.tasks.baselines import tfidf_similarity
from rembed_keras.tasks.kinds.encoding import encode, predict


class ParallelText:
    """Sentences of many languages, parallel by line.

    Args:
        folder: folder of `<language>.txt` or `.txt.gz` of equal length; an empty line is a missing translation.
        pivot: the language that the others are paired with.
        most_lines: how many lines to keep, the first; all by default. A language that shares none of them with the
            pivot is left out, with a warning.

    Attributes:
        name: the folder's name.
        lines: sentences by language.

    Raises:
        UserError: for files of different length, no file of the pivot, or a language that shares no line with it.
    """

    def __init__(self, folder: str | Path, pivot: str = "en", most_lines: Count | None = None):
        self.name, self.pivot = Path(folder).absolute().name, pivot  # of "." too
        files = text_files(folder)
        if pivot not in files:
            raise UserError(f"{folder} has no {pivot}.txt: the pivot language must be there")
        self.lines = {language: list(read_lines(path)) for language, path in files.items()}
        size = len(self.lines[pivot])
        for language, lines in self.lines.items():
            if len(lines) != size:
                raise UserError(f"{files[language]} has {len(lines)} lines and {files[pivot]} {size}: they must agree")
            if not len(self.pairs(language)):
                raise UserError(f"{files[language]} has no line that {files[pivot]} has too: remove it")
        if most_lines is not None:
            check_counts({"most_lines": most_lines})
            self.lines = {language: lines[:most_lines] for language, lines in self.lines.items()}
            for language in [each for each in self.languages if not len(self.pairs(each))]:
                what = f"{files[language]} has no line among the first {most_lines} that {files[pivot]} has too"
                warnings.warn(f"{what}: it is left out", stacklevel=2)
                del self.lines[language]

    @property
    def languages(self) -> list[str]:
        """All languages but the pivot."""
        return [language for language in self.lines if language != self.pivot]

    def pairs(self, language: str) -> np.ndarray:
        """Indices of the lines that both the pivot and a language have."""
        both = zip(self.lines[self.pivot], self.lines[language], strict=True)
        return np.array([i for i, (ours, theirs) in enumerate(both) if ours and theirs], np.int64)


def check_translations(texts: Sequence[ParallelText]) -> None:
    """Checks that there are translations to find, and names by which what is found in each can be told apart.

    Raises:
        UserError: for a text in no language but the pivot, or two of one name.
    """
    names = [text.name for text in texts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"there are two parallel texts called {twice}, as their folders are: rename one folder")
    alone = next((text for text in texts if not text.languages), None)
    if alone is not None:
        raise UserError(f"parallel text {alone.name} has no language beside {alone.pivot}: there is nothing to find")


def sentence_encoder(encoder) -> keras.Model:
    """A model of sentence vectors: the mean of the middle layers over a sentence's tokens.

    Args:
        encoder: an `Encoder` of L layers; layer L/2 is the middle, or the two around it.

    Returns:
        A model with the encoder's inputs, for rows `[CLS] ... [SEP]`, and output [B, D].
    """
    inputs = encoder.input
    states = encoder(inputs)["hidden_states"]
    middle = {encoder.num_layers // 2, (encoder.num_layers + 1) // 2}
    mean = sum(states[layer] for layer in middle) / len(middle)  # L + 1 times [B, S, D] -> [B, S, D]
    inside = keras.ops.cast(keras.ops.not_equal(inputs["padding_mask"], 0), "float32")
    # the first token is [CLS]; the last one, which padding or nothing follows, is [SEP]
    has_next = keras.ops.pad(inside[:, 1:], ((0, 0), (0, 1)))
    is_first = keras.ops.cast(keras.ops.equal(keras.ops.cumsum(inside, axis=1), 1.0), "float32") * inside
    weights = inside * has_next * (1.0 - is_first)
    total = keras.ops.sum(mean * weights[:, :, None], axis=1)  # [B, S, D] -> [B, D]
    return keras.Model(inputs, total / keras.ops.maximum(keras.ops.sum(weights, axis=1, keepdims=True), 1.0))


def embed(
    sentences: keras.Model, text: ParallelText, tokenizer: AnyTokenizer, sequence_length: int
) -> dict[str, np.ndarray]:
    """Vectors [lines, D] of every sentence, by language; those of empty lines are undefined.

    Args:
        sentences: a `sentence_encoder`.
        text: the sentences.
        tokenizer: the encoder's.
        sequence_length: S; longer sentences are truncated.
    """
    everything = [line for lines in text.lines.values() for line in lines]
    vectors = predict(sentences, encode(everything, tokenizer, sequence_length))
    return dict(zip(text.lines, np.split(vectors, len(text.lines)), strict=True))


def precision_at_1(queries: np.ndarray, candidates: np.ndarray) -> tuple[float, float]:
    """Precision@1 of centered vectors by Euclidean distance, from queries to candidates and back.

    Args:
        queries: float [N, D], row i a translation of row i of the candidates.
        candidates: float [N, D].
    """
    ours = (queries - queries.mean(axis=0)).astype(np.float64)
    theirs = (candidates - candidates.mean(axis=0)).astype(np.float64)
    distance = np.sum(ours**2, axis=1)[:, None] + np.sum(theirs**2, axis=1)[None] - 2 * ours @ theirs.T
    return hits_at_1(-distance)


def precisions(
    sentences: keras.Model, text: ParallelText, tokenizer: AnyTokenizer, sequence_length: int
) -> dict[str, tuple[float, float]]:
    """Precision@1 from the pivot and into it, by language; arguments as of `embed`."""
    vectors = embed(sentences, text, tokenizer, sequence_length)
    found = {}
    for language in text.languages:
        rows = text.pairs(language)
        found[language] = precision_at_1(vectors[text.pivot][rows], vectors[language][rows])
    return found


def baselines(text: ParallelText, language: str) -> dict[str, tuple[float, float]]:
    """Precision@1 from the pivot and into it without an encoder: by TF-IDF of character n-grams, and by chance."""
    rows = text.pairs(language)
    ours, theirs = ([text.lines[name][i] for i in rows] for name in (text.pivot, language))
    return {"tfidf": hits_at_1(tfidf_similarity(ours, theirs)), "chance": (1 / len(rows), 1 / len(rows))}


def cosines(queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Cosine similarity [N, N] of vectors that are centered per language, as for `precision_at_1`.

    Args:
        queries: float [N, D], row i a translation of row i of the candidates.
        candidates: float [N, D].
    """
    sides = []
    for vectors in (queries, candidates):
        centered = np.asarray(vectors, np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
        lengths = np.linalg.norm(centered, axis=1, keepdims=True)
        sides.append(centered / np.where(lengths == 0, 1, lengths))
    return sides[0] @ sides[1].T


def csls(similarity: np.ndarray, neighbors: int = 10) -> np.ndarray:
    """Cross-domain similarity local scaling: similarities less how near a row and a column are to all others.

    A sentence that is near to everything, a hub, is nobody's translation.

    Args:
        similarity: cosines [N, M].
        neighbors: k, how many nearest neighbors a mean is of; fewer if there are not as many.

    Returns:
        [N, M]: twice the cosine, less the mean cosines of both to their k nearest neighbors.

    Source: Conneau et al. 2018, "Word translation without parallel data", section 2.3.

    >>> csls(np.array([[0.9, 0.86], [0.95, 0.1]]), neighbors=1).argmax(axis=1)
    array([1, 0])
    """
    rows, columns = (_mean_of_largest(side, neighbors) for side in (similarity, similarity.T))
    return 2 * similarity - rows[:, None] - columns[None]


def _mean_of_largest(matrix, count):
    count = min(count, matrix.shape[1])
    return np.partition(matrix, -count, axis=1)[:, -count:].mean(axis=1)


def hits_at_1(similarity: np.ndarray) -> tuple[float, float]:
    """Share of rows, and of columns, of a similarity [N, N] whose diagonal is largest; a tie counts as its expected
    value under random choice."""
    shares = []
    for matrix in (similarity, similarity.T):
        best = matrix == matrix.max(axis=1, keepdims=True)
        shares.append(float(np.mean(np.diagonal(best) / best.sum(axis=1))))
    return shares[0], shares[1]
