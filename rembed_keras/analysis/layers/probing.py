"""Frozen linear probes: what can be read off features by a linear classifier, while the encoder stays as it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rembed_keras.errors import Rate, UserError

INVERSE_STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)
MOST_ITERATIONS = 5000


@dataclass(frozen=True)
class LinearProbe:
    """A logistic regression over standardized features, fitted by `fit_probe`.

    Attributes:
        inverse_strength: the C that was chosen, of scikit-learn's `LogisticRegression`.
        validation_accuracy: its accuracy on the validation examples, the mean over labels if they weigh the same; None
            without validation examples.
        pipeline: the scikit-learn pipeline.
    """

    inverse_strength: float
    validation_accuracy: float | None
    pipeline: Any

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Logits [N, K] of features [N, D], up to a number that a row has in common."""
        values = self.pipeline.decision_function(np.asarray(features, np.float64))
        return np.stack([-values / 2, values / 2], axis=1) if values.ndim == 1 else values

    def accuracy(self, features: np.ndarray, labels: np.ndarray, balanced: bool = False) -> float:
        """The share of rows [N, D] whose label, int [N], has the highest logit; or the mean of each label's share."""
        hits = self.logits(features).argmax(axis=1) == labels
        if balanced:
            return float(np.mean([hits[labels == label].mean() for label in np.unique(labels)]))
        return float(np.mean(hits))


def fit_probe(
    features: np.ndarray,
    labels: np.ndarray,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    inverse_strengths: Sequence[Rate] = INVERSE_STRENGTHS,
    balanced: bool = False,
) -> LinearProbe:
    """Fits a linear probe; of several strengths of L2 regularization the best on validation examples, or the strongest
    of equals.

    Args:
        features: float [N, D]; each dimension is standardized by its mean and deviation here.
        labels: int [N], each of 0 to K - 1 at least once.
        validation: features [M, D] and labels [M] of the same language; needed to choose among several strengths.
        inverse_strengths: values of C to try.
        balanced: whether all labels weigh the same, however many rows have them.

    Raises:
        UserError: for several strengths and no validation examples, or a strength that is not positive.
        ValueError: if a label is missing.

    >>> features = np.array([[0.0], [0.1], [1.0], [1.1]])
    >>> fit_probe(features, np.array([0, 0, 1, 1]), inverse_strengths=(1.0,)).accuracy(np.array([[0.2]]), [0])
    1.0

    Source: Alain and Bengio 2016, "Understanding intermediate layers using linear classifier probes".
    """
    check_strengths(inverse_strengths, validation is not None)
    known = np.unique(labels)
    if len(known) < 2 or not np.array_equal(known, np.arange(len(known))):
        raise ValueError(f"labels of a probe must be 0 to K - 1, each at least once; they are {known.tolist()}")
    probes = []
    for strength in sorted(inverse_strengths):
        fitted = LinearProbe(strength, None, _fitted(features, labels, strength, balanced))
        accuracy = None if validation is None else fitted.accuracy(*validation, balanced)
        probes.append(replace(fitted, validation_accuracy=accuracy))
    return max(probes, key=lambda probe: probe.validation_accuracy or 0.0)  # the first of equals


def check_strengths(inverse_strengths: Sequence[Rate], has_validation: bool) -> None:
    """Checks that a probe can be fitted with one of these strengths.

    Raises:
        UserError: as `fit_probe` does.
    """
    if not inverse_strengths or min(inverse_strengths) <= 0:
        raise UserError(f"inverse_strengths of a probe are {list(inverse_strengths)}; each must be above 0")
    if len(inverse_strengths) > 1 and not has_validation:
        raise UserError("a probe has several inverse_strengths and no validation examples to choose by: name one")


def _fitted(features, labels, strength, balanced):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    regression = LogisticRegression(C=strength, max_iter=MOST_ITERATIONS, class_weight="balanced" if balanced else None)
    with threadpool_limits(1):  # products this small are many times slower on several threads that wait for a core
        return make_pipeline(StandardScaler(), regression).fit(np.asarray(features, np.float64), labels)
