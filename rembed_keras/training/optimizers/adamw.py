"""AdamW with the settings of BERT."""

import keras
from keras.optimizers.schedules import LearningRateSchedule

from rembed_keras.errors import BelowOne, Rate, check_counts
from rembed_keras.modeling.cost import adam_slots


@keras.saving.register_keras_serializable(package="rembed_keras")
class AdamW(keras.optimizers.AdamW):
    """Adam with decoupled weight decay; `TrainingOptimizer` keeps it from norms and biases.

    Args:
        learning_rate: a float or a `keras.optimizers.schedules.LearningRateSchedule`.
        weight_decay: decay per step, times the learning rate.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        name: the optimizer's name.

    Raises:
        UserError: for a decay of 1, with which a moment never begins.

    >>> AdamW().epsilon
    1e-06
    """

    ledger_slots = staticmethod(adam_slots)

    def __init__(
        self,
        learning_rate: Rate | LearningRateSchedule = 1e-4,
        weight_decay: Rate = 0.01,
        beta_1: BelowOne = 0.9,
        beta_2: BelowOne = 0.999,
        epsilon: Rate = 1e-6,
        name: str = "adamw",
    ):
        check_counts({"AdamW.beta_1": beta_1, "AdamW.beta_2": beta_2}, "BelowOne")
        super().__init__(learning_rate, weight_decay, beta_1, beta_2, epsilon, name=name)

    def get_config(self):
        known = ("learning_rate", "weight_decay", "beta_1", "beta_2", "epsilon", "name")
        config = super().get_config()
        return {key: config[key] for key in known}
