"""How far two predictions of classes are apart."""

from keras import ops


def symmetric_divergence(logits, others):
    """The mean of both Kullback-Leibler divergences of two softmaxes, in nats: logits [..., N] twice -> float32 [...].

    >>> rows = np.array([[0.0, 0.0], [0.0, np.log(3)]], "float32")
    >>> bool(np.allclose(symmetric_divergence(rows, rows[::-1].copy()), np.log(3) / 8))
    True
    """
    logits, others = (ops.cast(each, "float32") for each in (logits, others))
    return 0.5 * ops.sum((ops.softmax(logits) - ops.softmax(others)) * (logits - others), axis=-1)
