"""AdamW as encoders are trained with it, and its learning rate.

Keras brings the update; four things around it are settled here. Norms and biases are not decayed. The gradient is
clipped by its norm *after* it was summed over replicas: a batch has one gradient, and clipping parts of it by
themselves is another algorithm. The norm is kept, because its curve is the first thing one looks at when a run
goes wrong. And a gradient that is no number changes nothing: without a look from outside, which would cost every step
a wait for the device, weights stay what they were before it until somebody looks. Source: Devlin et al. 2019, appendix
A.2; Chung et al. 2021, table 14.
"""

import math
from collections.abc import Mapping

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from rembed_keras import compat
from rembed_keras.errors import Count, CountOrZero, Rate, Share, UserError
from rembed_keras.modeling.replicas import num_replicas, sum_over_replicas

BLOCK = 2**22  # numbers of a gradient whose squares exist at a time
UNDECAYED = ("bias", "gamma", "beta")


@keras.saving.register_keras_serializable(package="rembed_keras")
class AdamW(compat.DecaysItself, keras.optimizers.AdamW):
    """Adam with decoupled weight decay, none on norms and biases, and clipping by the global norm.

    Args:
        learning_rate: a float or a `keras.optimizers.schedules.LearningRateSchedule`.
        weight_decay: decay per step, times the learning rate.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        clip_norm: the largest global norm of a gradient; None does not clip.
        multipliers: what the learning rates of some variables are multiplied by, their decay too, by the variables'
            paths; see `adaptation.learning_rate_multipliers`.
        skip_nonfinite: how many steps of the run are skipped because their gradient's norm is not finite; training
            diverged at the next such step.
        name: the optimizer's name.

    After a step `gradient_norm` holds the norm before clipping, `skipped_steps` how many steps had none that is finite,
    and `diverged_step` the step at which they became too many, 0 if they have not. A skipped step leaves weights and
    moments to the bit, under several replicas on each of them; `iterations` counts it, so that the learning rate and
    the data keep step. Once training diverged no step changes weights or moments.

    >>> AdamW(learning_rate=1e-3, clip_norm=1.0).clip_norm
    1.0
    """

    loss_scale = None  # see `loss_scale.LossScale`

    def __init__(
        self,
        learning_rate: Rate | LearningRateSchedule = 1e-4,
        weight_decay: Rate = 0.01,
        beta_1: Share = 0.9,
        beta_2: Share = 0.999,
        epsilon: Rate = 1e-6,
        clip_norm: Rate | None = 1.0,
        multipliers: Mapping[str, float] | None = None,
        skip_nonfinite: CountOrZero = 0,
        name: str = "adamw",
    ):
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            name=name,
        )
        if clip_norm is not None and clip_norm <= 0:
            raise UserError(f"clip_norm is {clip_norm!r}; it must be positive, or None for no clipping")
        if isinstance(skip_nonfinite, bool) or not isinstance(skip_nonfinite, int) or skip_nonfinite < 0:
            raise UserError(f"skip_nonfinite is {skip_nonfinite!r}; it must be a number of steps, 0 for none")
        self.clip_norm = clip_norm
        self.skip_nonfinite = skip_nonfinite
        self.multipliers = dict(multipliers or {})
        self.gradient_norm = self.add_variable((), name="gradient_norm", aggregation="only_first_replica")
        self.skipped_steps, self.diverged_step = (
            self.add_variable((), name=name, dtype="int32", aggregation="only_first_replica")
            for name in ("skipped_steps", "diverged_step")
        )
        self.exclude_from_weight_decay(var_names=list(UNDECAYED))

    def build(self, variables):
        """Makes the slots of variables.

        Raises:
            UserError: for a multiplier of none of them.
        """
        paths = [variable.path for variable in variables]
        unknown = self.multipliers.keys() - {*paths}
        if unknown:
            raise UserError(f"there is a multiplier of {min(unknown)}, which is not trained")
        self._shares = [self.multipliers.get(path, 1.0) for path in paths]
        super().build(variables)

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable at its own learning rate, its decay included."""
        rate = ops.cast(learning_rate, variable.dtype) * self._shares[compat.variable_index(self, variable)]
        if compat.is_decayed(self, variable):
            self.assign_sub(variable, variable * ops.cast(self.weight_decay, variable.dtype) * rate)
        super().update_step(gradient, variable, rate)

    def assign_add(self, variable, value):
        """Adds to a variable unless the step is skipped; -0.0 changes no number, not even a zero's sign."""
        super().assign_add(variable, ops.where(self._is_taken(), value, -0.0))

    def assign_sub(self, variable, value):
        """Subtracts from a variable unless the step is skipped."""
        super().assign_sub(variable, ops.where(self._is_taken(), value, 0.0))

    def _is_taken(self):
        return ops.logical_and(ops.isfinite(self.gradient_norm), ops.equal(self.diverged_step, 0))

    def apply(self, grads, trainable_variables=None, is_counted=True):
        """Updates the variables by gradients that are summed over replicas, then clipped by their global norm.

        `is_counted` says whether a gradient that is not finite counts in `skipped_steps`; it does not where the loss
        was scaled by more than 1, which may be all that is wrong.
        """
        present = iter(sum_over_replicas([grad for grad in grads if grad is not None]))
        grads = [None if grad is None else next(present) for grad in grads]
        norm = ops.sqrt(sum(_sum_of_squares(grad) for grad in grads if grad is not None))
        self.gradient_norm.assign(norm)
        counts = ops.logical_and(is_counted, ops.logical_not(ops.isfinite(norm)))
        skipped = self.skipped_steps + ops.cast(counts, "int32")
        diverged = ops.convert_to_tensor(self.diverged_step)
        diverges = ops.logical_and(ops.equal(diverged, 0), skipped > self.skip_nonfinite)
        self.skipped_steps.assign(skipped)
        self.diverged_step.assign(ops.where(diverges, ops.cast(self.iterations + 1, "int32"), diverged))
        # Keras sums over replicas once more, and every replica holds the sum already
        scale = 1.0 / num_replicas()
        if self.clip_norm is not None:
            scale = scale * ops.minimum(1.0, self.clip_norm / (norm + 1e-6))
        grads = [None if grad is None else grad * ops.cast(scale, grad.dtype) for grad in grads]
        super().apply(grads, trainable_variables)

    def get_config(self):
        own = {"clip_norm": self.clip_norm, "multipliers": dict(self.multipliers)}
        config = super().get_config() | own | {"skip_nonfinite": self.skip_nonfinite}
        known = (
            "learning_rate",
            "weight_decay",
            "beta_1",
            "beta_2",
            "epsilon",
            "clip_norm",
            "multipliers",
            "skip_nonfinite",
            "name",
        )
        return {key: config[key] for key in known}


def _sum_of_squares(gradient):
    """Sum of the squares of a gradient, in float32.

    XLA on CPU writes the squares down before it sums them; of a large table that is as much memory again, so they are
    taken a few rows at a time. On JAX a table may be spread over devices, and its rows stay where they are.
    """
    is_known = len(gradient.shape) > 0 and None not in tuple(gradient.shape)  # as that of every table is
    rows = max(1, BLOCK // math.prod(gradient.shape[1:])) if is_known else 1
    blocks = gradient.shape[0] // rows if is_known else 0
    if blocks < 2 or keras.config.backend() != "tensorflow":
        return ops.sum(ops.square(ops.cast(gradient, "float32")))
    rest = [0] * (len(gradient.shape) - 1)

    def add(block, total):
        part = ops.slice(gradient, [block * rows, *rest], (rows, *gradient.shape[1:]))
        return total + ops.sum(ops.square(ops.cast(part, "float32")))

    total = ops.fori_loop(0, blocks, add, ops.zeros((), "float32"))
    return total + ops.sum(ops.square(ops.cast(gradient[blocks * rows :], "float32")))


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
