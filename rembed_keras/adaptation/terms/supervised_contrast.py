"""Supervised contrast: rows of one label shall be near to one another, and far from others."""

from typing import Any

from rembed_keras.adaptation.terms.term import Term, Weight
from rembed_keras.errors import Rate, UserError, shortened


class SupervisedContrast(Term):
    """The supervised contrastive loss of what a classifier's head reads, over the whole batch, on all replicas.

    For row i, with z the normalized features and t the temperature, the mean over the other rows j of its label of

        -log(exp(z_i z_j / t) / sum over all rows k other than i of exp(z_i z_k / t))

    and 0 for a row whose label no other has. Dropout before the head does not fall on what is compared.

    Args:
        weight: the paper mixes (1 - w) of the cross-entropy and w of this, 0.9 at most; here it is added: w / (1 - w).
            A number, or numbers by step.
        temperature: t; 0.3 is the paper's for RoBERTa.
        name: what logs call it.

    Raises:
        UserError: for a temperature of 0; or, when it is used, a model that is no classifier, or takes micro-batches,
            or one-hot labels.

    Source: Gunel et al. 2021, equations 1 to 3 (arXiv:2011.01403).
    """

    def __init__(self, weight: Weight = 1.0, temperature: Rate = 0.3, name: str = "supervised_contrast"):
        super().__init__(weight, name)
        if not temperature > 0:
            raise UserError(f"the temperature of {name} is {shortened(temperature)}; it must be over 0")
        self.temperature = temperature

    def check(self, model) -> None:
        if not hasattr(model, "num_classes"):
            raise UserError(
                f"{self.name} contrasts rows of different labels, and {type(model).__name__} gives them none"
            )
        if getattr(model, "micro_batches", 1) > 1:
            raise UserError(f"{self.name} contrasts all rows of a batch: leave micro_batches out")

    def loss(self, model, batch: tuple, outputs: Any):
        inputs, labels, weights = batch
        if any(size != 1 for size in labels.shape[1:]):
            raise UserError(
                f"{self.name} compares labels that are a number for each row, and these are of shape "
                f"{tuple(labels.shape)}: give their argmax and a loss of such labels"
            )
        features = model.pool(model.reading.note.value[model.reads], inputs)
        return contrast(features, labels, weights, self.temperature)


def contrast(features, labels, weights=None, temperature: float = 0.3):
    """Supervised contrastive losses.

    Args:
        features: [B, D], this replica's; they are normalized here.
        labels: int [B].
        weights: [B]; a row of 0 is no other row's partner. None counts every row.
        temperature: see `SupervisedContrast`.

    Returns:
        float32 [B], against the rows of all replicas.

    >>> losses = contrast(np.eye(3, dtype="float32"), np.array([0, 0, 1]), temperature=1.0)
    >>> bool(np.allclose(losses, [np.log(2), np.log(2), 0.0]))
    True
    """
    from keras import ops

    from rembed_keras.modeling.replicas import gathered

    labels = ops.cast(ops.reshape(labels, (-1,)), "float32")
    counted = ops.ones_like(labels) if weights is None else ops.cast(ops.reshape(weights, (-1,)) > 0, "float32")
    features = ops.normalize(ops.cast(features, "float32"), axis=-1, epsilon=1e-12)
    (keys, first), (their_labels, _), (there, _) = (gathered(each) for each in (features, labels, counted))
    scores = ops.matmul(features, ops.transpose(keys)) / temperature  # [B, D] x [D, G] -> [B, G]
    own = first + ops.arange(ops.shape(features)[0], dtype="int32")
    each = ops.arange(ops.shape(keys)[0], dtype="int32")
    is_other = ops.logical_and(each[None, :] != own[:, None], there[None, :] > 0)
    scores = ops.where(is_other, scores, -1e30)
    is_partner = ops.logical_and(is_other, labels[:, None] == their_labels[None, :])
    log_shares = scores - ops.logsumexp(scores, axis=1, keepdims=True)
    near = ops.sum(ops.where(is_partner, log_shares, 0.0), axis=1)
    return -near / ops.maximum(ops.sum(ops.cast(is_partner, "float32"), axis=1), 1.0)
