"""The learning rate of a run, which rises and falls with its steps."""

from typing import Protocol

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from rembed_keras.errors import Count, CountOrZero, Rate, UserError


class OptimizerOfRate(Protocol):
    """Makes an optimizer whose learning rate its caller settles, whatever a recipe binds it to."""

    def __call__(self, *, learning_rate: LearningRateSchedule) -> keras.optimizers.Optimizer:
        """An optimizer of a learning rate."""


@keras.saving.register_keras_serializable(package="rembed_keras")
class WarmupLinearDecay(LearningRateSchedule):
    """Rises linearly from 0 to the peak over the warm-up, then falls linearly to 0 at the last step.

    Args:
        peak: the highest learning rate.
        warmup_steps: steps until the peak; a run that is shorter than its warm-up only rises.
        total_steps: steps until 0.

    Raises:
        UserError: for a negative warm-up or a run of no steps.

    >>> schedule = WarmupLinearDecay(peak=1.0, warmup_steps=10, total_steps=110)
    >>> [round(float(schedule(step)), 2) for step in (0, 5, 10, 60, 110)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(self, peak: Rate, warmup_steps: CountOrZero, total_steps: Count):
        for name, value in (("LEARNING_RATE", peak), ("WARMUP_STEPS", warmup_steps), ("STEPS", total_steps)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"{name} is {value!r}; it must be a number")
        if warmup_steps < 0 or total_steps < 1:
            raise UserError(f"a learning rate cannot warm up for {warmup_steps} of {total_steps} steps")
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rise = step / self.warmup_steps if self.warmup_steps else 1.0
        falling = self.total_steps - self.warmup_steps
        fall = (self.total_steps - step) / falling if falling > 0 else 1.0
        return self.peak * ops.maximum(0.0, ops.minimum(rise, fall))

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }
