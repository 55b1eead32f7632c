"""Schedule-free AdamW as its authors have it, where Keras's update is another on TensorFlow.

Of a weight Keras keeps z, which steps are taken from, and works out x, the average, from z and the weight before a
step. On TensorFlow its `momentum.value` is the variable and not what it was, so that x is worked out from z after the
step, and falls behind it by a tenth of every step. Seen in Keras 3.15; JAX's arrays do not change.
Source: Defazio et al. 2024, algorithm 1.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
from keras import ops

from rembed_keras import compat

KERAS_S: Any = getattr(keras.optimizers, "ScheduleFreeAdamW", keras.optimizers.Optimizer)  # which Keras 3.10 has not


def update_of(optimizer: keras.optimizers.Optimizer) -> Callable:
    """How an optimizer updates a variable: `update_step`, or what Keras's schedule-free AdamW means by its own.

    Args:
        optimizer: any of Keras's.

    >>> update_of(keras.optimizers.Lion()).__name__
    'update_step'
    """
    is_keras_s = isinstance(optimizer, KERAS_S) and type(optimizer).update_step is KERAS_S.update_step
    return partial(_ScheduleFree.update_step, optimizer) if is_keras_s else optimizer.update_step


class _ScheduleFree(KERAS_S):
    """Keras's, whose average is worked out from what was there before a step."""

    def update_step(self, gradient, variable, learning_rate):
        dtype = variable.dtype
        momentum, velocity = compat.moments_of(self, variable)
        step, gradient = ops.cast(self.iterations + 1, dtype), ops.cast(gradient, dtype)
        beta_1, beta_2 = ops.cast(self.beta_1, dtype), ops.cast(self.beta_2, dtype)
        rate = ops.cast(learning_rate, dtype)
        if self.warmup_steps > 0:
            rate = rate * ops.minimum(step / ops.cast(self.warmup_steps, dtype), 1.0)
        average = (variable - (1 - beta_1) * ops.convert_to_tensor(momentum)) / beta_1  # before z steps
        self.assign_add(velocity, (ops.square(gradient) - velocity) * (1 - beta_2))
        root = ops.sqrt(velocity / (1 - ops.power(beta_2, step))) + ops.cast(self.epsilon, dtype)
        self.assign_sub(momentum, rate * gradient / root)
        average = (1 - 1.0 / step) * average + 1.0 / step * momentum
        self.assign(variable, (1 - beta_1) * momentum + beta_1 * average)
