"""How far a prediction of classes is from its label, and how far two are apart."""

from keras import ops


def cross_entropies(labels, logits):
    """Nats [...] of labels [...] by logits [..., N]; of a label that is none of 0 ... N - 1 they are NaN.

    On JAX it would cost nothing, and a model would learn the other labels without a word. TensorFlow gives NaN where it
    compiles, and ends with an error of its own where it does not.

    >>> labels, logits = np.array([1, 0]), np.log(np.array([[1.0, 3.0], [1.0, 3.0]], "float32"))
    >>> bool(np.allclose(cross_entropies(labels, logits), np.log([4 / 3, 4])))
    True
    """
    losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    labels = ops.reshape(labels, ops.shape(losses))  # [..., 1] too, as Keras takes them
    return ops.where((labels >= 0) & (labels < logits.shape[-1]), losses, float("nan"))


def symmetric_divergence(logits, others):
    """The mean of both Kullback-Leibler divergences of two softmaxes, in nats: logits [..., N] twice -> float32 [...].

    >>> rows = np.array([[0.0, 0.0], [0.0, np.log(3)]], "float32")
    >>> bool(np.allclose(symmetric_divergence(rows, rows[::-1].copy()), np.log(3) / 8))
    True
    """
    logits, others = (ops.cast(each, "float32") for each in (logits, others))
    return 0.5 * ops.sum((ops.softmax(logits) - ops.softmax(others)) * (logits - others), axis=-1)
