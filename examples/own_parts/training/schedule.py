"""A learning rate: it rises over the warm-up and falls with the root of the step, so that no run's end is built in."""

import keras
from keras import ops

from rembed_keras.errors import check_counts


@keras.saving.register_keras_serializable(package="own_parts")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """The peak at the end of the warm-up. Source: Vaswani et al. 2017, section 5.3.

    >>> [round(float(InverseSquareRoot(1.0, warmup_steps=4)(step)), 2) for step in (0, 2, 4, 16)]
    [0.0, 0.5, 1.0, 0.5]
    """

    def __init__(self, peak: float, warmup_steps: int = 50):
        check_counts({"warmup_steps": warmup_steps})
        self.peak, self.warmup_steps = peak, warmup_steps

    def __call__(self, step):
        share = ops.cast(step, "float32") / self.warmup_steps
        return self.peak * ops.minimum(share, ops.rsqrt(ops.maximum(share, 1e-6)))

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}
