"""How similar two layers are: centered kernel alignment.

The plain estimate is biased: features of few examples and many dimensions look alike even if they are independent. The
estimate here is the unbiased one by default, whose expectation for independent features is 0 at any width.
"""

import numpy as np

FEWEST = 4  # examples that the unbiased estimate needs


def linear_cka(first: np.ndarray, second: np.ndarray, unbiased: bool = True) -> float:
    """Linear centered kernel alignment (CKA) of two sets of features of the same examples.

    1 for features that are equal up to a rotation, a reflection, a factor and a shift; around 0 for independent ones.

    Args:
        first: float [N, D], row i of example i.
        second: float [N, E], row i of example i.
        unbiased: whether HSIC is estimated without bias, as by Song et al. 2012, so that the ratio may be a bit below
            0; if not, with bias, as by Kornblith et al. 2019, between 0 and 1.

    Returns:
        The similarity; NaN if the features of either are the same for every example.

    Raises:
        ValueError: for other shapes, or fewer than 4 examples.

    >>> features = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(linear_cka(features, 2 * features[:, ::-1] + 1), 6)
    1.0

    Source: Kornblith et al. 2019, "Similarity of Neural Network Representations Revisited".
    """
    shapes = [np.shape(features) for features in (first, second)]
    if any(len(shape) != 2 or shape[0] != shapes[0][0] or shape[0] < FEWEST for shape in shapes):
        raise ValueError(f"features are {shapes[0]} and {shapes[1]}; they must be [N, D], N >= {FEWEST}")
    ours, theirs = (_centered(np.asarray(features, np.float64)) for features in (first, second))
    estimate = _unbiased if unbiased else _biased
    scale = estimate(ours, ours) * estimate(theirs, theirs)
    return float(estimate(ours, theirs) / np.sqrt(scale)) if scale > 0 else float("nan")


def _centered(features):
    """Features less their mean; exactly 0 if all rows are equal."""
    features = features - features[0]
    return features - features.mean(axis=0)


def _biased(first, second):
    """HSIC, up to a factor that cancels: the squared Frobenius norm of the cross-covariance."""
    return np.sum((first.T @ second) ** 2)


def _unbiased(first, second):
    """HSIC without bias, up to a factor that cancels, from features, without the [N, N] kernels K and L.

    Both kernels have zeros on their diagonals: tr(KL) + 1'K1 1'L1 / ((N - 1)(N - 2)) - 2 / (N - 2) 1'KL1.
    """
    size = len(first)
    diagonals = [np.sum(features**2, axis=1) for features in (first, second)]
    sums = [  # K1 and L1
        features @ features.sum(axis=0) - diagonal
        for features, diagonal in zip((first, second), diagonals, strict=True)
    ]
    trace = _biased(first, second) - diagonals[0] @ diagonals[1]
    both = sums[0].sum() * sums[1].sum() / ((size - 1) * (size - 2))
    return trace + both - 2 / (size - 2) * (sums[0] @ sums[1])
