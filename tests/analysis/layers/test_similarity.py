"""Linear CKA, against kernels and sums that are written out, and against closed forms."""

import math

import numpy as np
import pytest

from rembed_keras.analysis.layers import linear_cka

RANDOM = np.random.default_rng(7)
FIRST, SECOND = RANDOM.normal(size=(9, 4)) + 3, RANDOM.normal(size=(9, 6)) - 1
BOTH = pytest.mark.parametrize("unbiased", [True, False])


def hsic_by_loops(first, second):
    """Tr(KHLH), element by element."""
    n = len(first)
    kernels = [[[math.fsum(a * b for a, b in zip(x, y, strict=True)) for y in z] for x in z] for z in (first, second)]
    centered = []
    for kernel in kernels:
        rows = [math.fsum(row) / n for row in kernel]
        mean = math.fsum(rows) / n
        centered.append([[kernel[i][j] - rows[i] - rows[j] + mean for j in range(n)] for i in range(n)])
    return math.fsum(centered[0][i][j] * centered[1][i][j] for i in range(n) for j in range(n))


def unbiased_hsic_by_loops(first, second):
    """The U-statistic: the mean over ordered quadruples of different examples (Song et al. 2012)."""
    n = len(first)
    k, ell = first @ first.T, second @ second.T
    terms = [
        k[i, j] * (ell[i, j] + ell[q, r] - 2 * ell[i, q])
        for i in range(n)
        for j in range(n)
        for q in range(n)
        for r in range(n)
        if len({i, j, q, r}) == 4
    ]
    return math.fsum(terms) / len(terms)


@pytest.mark.parametrize(("unbiased", "hsic"), [(False, hsic_by_loops), (True, unbiased_hsic_by_loops)])
def test_it_is_the_ratio_of_hsics_by_loops(unbiased, hsic):
    ratio = hsic(FIRST, SECOND) / math.sqrt(hsic(FIRST, FIRST) * hsic(SECOND, SECOND))
    assert linear_cka(FIRST, SECOND, unbiased) == pytest.approx(ratio, rel=1e-10)


@BOTH
def test_the_same_features_have_similarity_1_whatever_their_rotation_factor_and_shift(unbiased):
    rotation, _ = np.linalg.qr(RANDOM.normal(size=(4, 4)))
    assert linear_cka(FIRST, FIRST, unbiased) == pytest.approx(1, abs=1e-12)
    assert linear_cka(FIRST, -3 * FIRST @ rotation + 5, unbiased) == pytest.approx(1, abs=1e-12)
    others, _ = np.linalg.qr(RANDOM.normal(size=(6, 6)))
    expected = linear_cka(FIRST, SECOND, unbiased)
    assert linear_cka(FIRST @ rotation, SECOND @ others, unbiased) == pytest.approx(expected, rel=1e-10)
    assert linear_cka(SECOND, FIRST, unbiased) == pytest.approx(expected, rel=1e-12)
    scaled = FIRST * [1, 5, 1, 1]  # any other linear map changes it
    assert abs(linear_cka(scaled, SECOND, unbiased) - expected) > 0.01


def test_some_of_the_orthonormal_features_have_the_root_of_their_share():
    orthonormal, _ = np.linalg.qr(np.hstack([np.ones((40, 1)), RANDOM.normal(size=(40, 9))]))
    features = orthonormal[:, 1:]  # orthogonal to 1, so that they are centered
    for kept in (1, 4, 9):
        assert linear_cka(features, features[:, :kept], unbiased=False) == pytest.approx(math.sqrt(kept / 9), rel=1e-12)


def test_independent_features_have_similarity_0_without_bias_and_more_with_it():
    n, width = 60, 120
    pairs = [RANDOM.normal(size=(2, n, width)) for _ in range(20)]
    without, with_bias = (np.array([linear_cka(*pair, unbiased) for pair in pairs]) for unbiased in (True, False))
    assert abs(without.mean()) < 4 * without.std(ddof=1) / math.sqrt(len(pairs))
    # E tr(KL) / E tr(KK) of Wishart matrices with n - 1 degrees of freedom
    assert with_bias.mean() == pytest.approx(width / (width + n), rel=0.02)


def test_features_without_variance_have_none_and_other_shapes_are_refused():
    assert all(math.isnan(linear_cka(FIRST, np.full((9, 2), 0.7), unbiased)) for unbiased in (True, False))
    for first, second in ((FIRST, SECOND[:8]), (FIRST[:3], SECOND[:3]), (FIRST, SECOND[:, 0])):
        with pytest.raises(ValueError, match=r"must be \[N, D\], N >= 4"):
            linear_cka(first, second)
