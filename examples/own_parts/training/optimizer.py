"""An optimizer: any of Keras's, or a class derived from Keras's. One slot a parameter, which the ledger counts."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="own_parts")
class SignMomentum(keras.optimizers.Optimizer):
    """Steps by the sign of a running mean of gradients. Source: Bernstein et al. 2018 (Signum).

    >>> SignMomentum(learning_rate=1e-3).momentum
    0.9
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        momentum: float = 0.9,
        name: str = "sign_momentum",
    ):
        super().__init__(learning_rate=learning_rate, name=name)
        self.momentum = momentum

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.means = self.add_optimizer_variables(variables, "mean")

    def update_step(self, gradient, variable, learning_rate):
        mean = self.means[self._get_variable_index(variable)]
        self.assign(mean, self.momentum * mean + (1 - self.momentum) * ops.cast(gradient, mean.dtype))
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * ops.sign(mean))

    def get_config(self):
        known = super().get_config()  # which has settings that this one does not take
        return {"learning_rate": known["learning_rate"], "momentum": self.momentum, "name": self.name}
