"""Means and cosines of a sentence's tokens, against loops over tokens."""

import math

import numpy as np
import pytest

from rembed_keras.analysis.layers import mean_of_tokens, token_cosines

RANDOM = np.random.default_rng(3)
STATES = RANDOM.normal(size=(4, 7, 5)).astype(np.float32)
MASK = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0], [1] + [0] * 6, [1, 1, 2, 2, 2, 0, 0]])


def cosine(a, b):
    a, b = np.float64(a), np.float64(b)
    return a @ b / math.sqrt((a @ a) * (b @ b))


def test_both_are_what_loops_over_tokens_give():
    means, cosines = mean_of_tokens(STATES, MASK), token_cosines(STATES, MASK)
    for row, mask in enumerate(MASK):
        tokens = [STATES[row, i] for i in range(7) if mask[i]]
        assert means[row] == pytest.approx(sum(np.float64(token) for token in tokens) / len(tokens))
        found = [cosine(a, b) for i, a in enumerate(tokens) for b in tokens[i + 1 :]]
        assert cosines[row] == pytest.approx(np.mean(found)) if found else math.isnan(cosines[row])


def test_padding_counts_for_nothing():
    longer = np.concatenate([STATES, np.full((4, 3, 5), 1e6)], axis=1)
    mask = np.concatenate([MASK, np.zeros((4, 3))], axis=1)
    for function in (mean_of_tokens, token_cosines):
        np.testing.assert_allclose(function(longer, mask), function(STATES, MASK), rtol=1e-9)


def test_tokens_of_one_direction_have_cosine_1_and_orthogonal_ones_0():
    same = STATES[:1, :1] * np.arange(1, 8)[None, :, None]
    assert token_cosines(same, MASK[:1]) == pytest.approx(1)
    assert token_cosines(np.eye(7)[None], MASK[:1]) == pytest.approx(0, abs=1e-12)
    assert token_cosines(np.zeros((1, 7, 5)), MASK[:1]) == pytest.approx(0)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"must be \[N, S, D\] and \[N, S\]"):
        mean_of_tokens(STATES, MASK[:, :3])
