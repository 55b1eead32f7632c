"""Muon for transformers whose attention keeps heads on an axis of their own.

Keras's Muon orthogonalizes kernels of two axes and leaves attention's three-dimensional ones, a third of a block's
matrices, to Adam; and it takes a bias with an axis of heads for a matrix.
"""

import inspect

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from rembed_keras import compat
from rembed_keras.errors import BelowOne, Count, Rate, Share, UserError, check_counts
from rembed_keras.training.optimizers.matrices import matrix_shape, muon_slots


@keras.saving.register_keras_serializable(package="rembed_keras")
class Muon(keras.optimizers.Muon):
    """Momentum that is orthogonalized for matrices, attention's kernels among them; Adam for all else.

    Args:
        learning_rate: a float or a `keras.optimizers.schedules.LearningRateSchedule`; updates are scaled so that it is
            one for Adam too.
        weight_decay: decay per step, times the learning rate.
        momentum: decay of the momentum.
        beta_1: decay of Adam's first moment.
        beta_2: decay of Adam's second moment.
        epsilon: added to the root of Adam's second moment.
        ns_steps: Newton-Schulz iterations.
        name: the optimizer's name.

    Raises:
        UserError: for a Keras whose Muon is another: before 3.13; and for a decay of Adam's of 1.

    Source: Jordan et al. 2024; Liu et al. 2025 (the scale).

    >>> Muon().momentum
    0.95
    """

    ledger_slots = staticmethod(muon_slots)

    def __init__(
        self,
        learning_rate: Rate | LearningRateSchedule = 1e-3,
        weight_decay: Rate = 0.01,
        momentum: Share = 0.95,
        beta_1: BelowOne = 0.9,
        beta_2: BelowOne = 0.999,
        epsilon: Rate = 1e-6,
        ns_steps: Count = 5,
        name: str = "muon",
    ):
        check_counts({"Muon.beta_1": beta_1, "Muon.beta_2": beta_2}, "BelowOne")
        if "adam_weight_decay" not in inspect.signature(keras.optimizers.Muon.__init__).parameters:
            found = keras.__version__
            raise UserError(f"Muon needs Keras 3.13 or later, and this is {found}: upgrade, or take another optimizer")
        super().__init__(
            learning_rate,
            adam_beta_1=beta_1,
            adam_beta_2=beta_2,
            adam_weight_decay=weight_decay,
            epsilon=epsilon,
            weight_decay=weight_decay,
            momentum=momentum,
            ns_steps=ns_steps,
            name=name,
        )

    def build(self, variables):
        """Makes the slots of variables."""
        self._matrices = [matrix_shape(variable) for variable in variables]
        super().build(variables)

    def _should_use_adamw(self, variable):
        return matrix_shape(variable) is None

    def _muon_update_step(self, gradient, variable, learning_rate, m):
        self.assign_add(m, ops.add(gradient, m * (self.momentum - 1)))
        ahead = ops.add(gradient, self.momentum * m)  # Nesterov's
        matrix = ops.reshape(ahead, self._matrices[compat.variable_index(self, variable)])
        update = self.lr_adjust(learning_rate * self.zeropower_via_newtonschulz5(matrix, self.ns_steps))
        self.assign_sub(variable, ops.reshape(update, variable.shape))

    def get_config(self):
        return {
            "learning_rate": super().get_config()["learning_rate"],
            "weight_decay": self.weight_decay,
            "momentum": self.momentum,
            "beta_1": self.adam_beta_1,
            "beta_2": self.adam_beta_2,
            "epsilon": self.epsilon,
            "ns_steps": self.ns_steps,
            "name": self.name,
        }
