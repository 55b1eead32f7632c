"""Word similarity: counts and PPMI against loops, correlation against scipy, and vectors whose agreement is known."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from rembed_keras.analysis.layers import context_counts, ppmi, similarity_correlation

RANDOM = np.random.default_rng(3)


def test_counts_are_those_of_a_loop():
    rows = RANDOM.integers(0, 7, (5, 6))
    words = [4, 2]
    expected = np.zeros((2, 7), int)
    for row in rows:
        for i, word in enumerate(row):
            for j, near in enumerate(row):
                if i != j and abs(i - j) <= 3 and word in words:
                    expected[words.index(word), near] += 1
    np.testing.assert_array_equal(context_counts(rows, words, 7, window=3), expected)
    assert expected.sum() > 10
    assert context_counts(rows[:, :1], words, 7).sum() == 0


def test_ppmi_is_that_of_a_loop_and_0_for_independent_words():
    counts = RANDOM.integers(0, 5, (4, 6))
    counts[2] = 0
    total = counts.sum()
    for i in range(4):
        for j in range(6):
            expected = 0.0
            if counts[i, j]:
                expected = max(0.0, math.log(counts[i, j] * total / (counts[i].sum() * counts[:, j].sum())))
            assert ppmi(counts)[i, j] == pytest.approx(expected, abs=1e-12)
    assert not ppmi(np.outer([1, 2, 3], [2, 5])).round(12).any()


def test_the_correlation_is_spearmans_of_the_cosines_of_pairs():
    first, second = RANDOM.normal(size=(12, 3)), RANDOM.normal(size=(12, 5))
    pairs = [(i, j) for i in range(12) for j in range(i)]

    def by_pair(vectors):
        return [vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j]) for i, j in pairs]

    assert similarity_correlation(first, second) == pytest.approx(spearmanr(by_pair(first), by_pair(second))[0])
    assert similarity_correlation(first, 2 * first) == pytest.approx(1)
    assert math.isnan(similarity_correlation(first, np.ones((12, 2))))


def test_unrelated_vectors_do_not_agree():
    found = [similarity_correlation(RANDOM.normal(size=(60, 20)), RANDOM.normal(size=(60, 20))) for _ in range(20)]
    assert abs(np.mean(found)) < 4 * np.std(found) / math.sqrt(20)
