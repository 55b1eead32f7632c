"""GaLore: all weights learn, and Adam remembers a low-rank projection of each matrix's gradient only.

The gradient of a matrix is nearly of low rank, and its leading singular vectors change slowly. Adam's two moments live
in the space that they span, so that of a matrix [m, n] with m >= n there are (2m + n)r numbers of state instead of 2mn.
"""

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from rembed_keras import compat
from rembed_keras.errors import BelowOne, Count, Rate, check_counts
from rembed_keras.training.optimizers.matrices import matrix_shape


@keras.saving.register_keras_serializable(package="rembed_keras")
class GaLore(keras.optimizers.Optimizer):
    """Adam on gradients of matrices that are projected to a low rank, and plain Adam for all else.

    Args:
        learning_rate: a float or a `keras.optimizers.schedules.LearningRateSchedule`.
        rank: r, of the projection; matrices whose smaller side is no larger than it are not projected.
        update_proj_gap: steps until the singular vectors are recomputed.
        scale: what a projected update is multiplied by.
        weight_decay: decay per step, times the learning rate.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        name: the optimizer's name.

    Source: Zhao et al. 2024, algorithm 2. Singular vectors are defined up to their signs; here the entry of each that
    is largest in magnitude is positive, so that moments mean the same after the vectors were recomputed.

    >>> GaLore(rank=64).scale
    0.25
    """

    def __init__(
        self,
        learning_rate: Rate | LearningRateSchedule = 1e-3,
        rank: Count = 128,
        update_proj_gap: Count = 200,
        scale: Rate = 0.25,
        weight_decay: Rate = 0.01,
        beta_1: BelowOne = 0.9,
        beta_2: BelowOne = 0.999,
        epsilon: Rate = 1e-6,
        name: str = "galore",
    ):
        check_counts({"GaLore.rank": rank, "GaLore.update_proj_gap": update_proj_gap})
        check_counts({"GaLore.beta_1": beta_1, "GaLore.beta_2": beta_2}, "BelowOne")
        super().__init__(learning_rate, weight_decay=weight_decay, name=name)
        self.rank, self.update_proj_gap, self.scale = rank, update_proj_gap, scale
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables):
        """Makes the slots of variables."""
        if self.built:
            return
        super().build(variables)
        self._matrices, self._bases, self._moments = [], [], []
        for variable in variables:
            matrix, prefix = matrix_shape(variable), variable.path.replace("/", "_")
            shape, basis = tuple(variable.shape), None
            if matrix is not None and min(matrix) > self.rank:
                shape = (max(matrix), self.rank)
                basis = self.add_variable((min(matrix), self.rank), dtype=variable.dtype, name=f"{prefix}_basis")
            self._matrices.append(matrix)
            self._bases.append(basis)
            self._moments.append(
                [
                    self.add_variable(shape, dtype=variable.dtype, name=f"{prefix}_{name}")
                    if basis is not None
                    else self.add_variable_from_reference(variable, name)
                    for name in ("momentum", "velocity")
                ]
            )

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable."""
        index = compat.variable_index(self, variable)
        gradient = ops.cast(gradient, variable.dtype)
        basis = self._bases[index]
        matrix = self._matrices[index]
        if basis is None or matrix is None:
            update = self._adam(gradient, *self._moments[index])
        else:
            rows, columns = matrix
            tall = ops.reshape(gradient, (rows, columns))
            tall = ops.transpose(tall) if rows < columns else tall  # [max(m, n), min(m, n)]
            self._recompute_basis(tall, basis)
            low = self._adam(ops.matmul(tall, basis), *self._moments[index])  # [max(m, n), r]
            update = self.scale * ops.matmul(low, ops.transpose(basis))
            update = ops.reshape(ops.transpose(update) if rows < columns else update, variable.shape)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * update)

    def _recompute_basis(self, tall, basis):
        """Sets the basis to the leading right singular vectors of a gradient, if it is time to or there is none."""
        is_due = ops.equal(self.iterations % self.update_proj_gap, 0)
        is_due = ops.logical_or(is_due, ops.logical_not(ops.any(ops.not_equal(basis, 0.0))))  # a first step skipped
        present = ops.convert_to_tensor(basis)
        self.assign(basis, ops.cond(is_due, lambda: _leading(tall, self.rank), lambda: present))

    def _adam(self, gradient, momentum, velocity):
        """Adam's update of a gradient, without the learning rate."""
        step = ops.cast(self.iterations + 1, gradient.dtype)
        corrections = [1.0 - ops.power(ops.cast(beta, gradient.dtype), step) for beta in (self.beta_1, self.beta_2)]
        self.assign_add(momentum, (gradient - momentum) * (1.0 - self.beta_1))
        self.assign_add(velocity, (ops.square(gradient) - velocity) * (1.0 - self.beta_2))
        return ops.sqrt(corrections[1]) / corrections[0] * momentum / (ops.sqrt(velocity) + self.epsilon)

    def get_config(self):
        known = ("learning_rate", "weight_decay", "name")
        own = ("rank", "update_proj_gap", "scale", "beta_1", "beta_2", "epsilon")
        config = super().get_config()
        return {key: config[key] for key in known} | {key: getattr(self, key) for key in own}


def _leading(matrix, rank):
    """The leading right singular vectors of a matrix [m, n], as columns [n, r]."""
    finite = ops.where(ops.isfinite(matrix), matrix, 0.0)  # of what is not, decompositions fail or do not end
    _, _, vectors = ops.svd(finite, full_matrices=False)
    vectors = vectors[:rank]  # [r, n]
    largest = ops.argmax(ops.abs(vectors), axis=-1, keepdims=True)
    signs = ops.where(ops.take_along_axis(vectors, largest, axis=-1) < 0.0, -1.0, 1.0)
    return ops.transpose(vectors * ops.cast(signs, vectors.dtype))
