"""Training in float16: the loss is multiplied before gradients are taken, and gradients are divided after.

The smallest number of float16 is 6e-8, and much of the gradient of a mean over thousands of predictions is below it.
How much the loss can be multiplied by changes while a model trains, so it is tried: doubled after many steps that went
well, halved at one whose gradient is not finite. Keras's own optimizer for this leaves such a step out of the clock, so
that learning rate and data fall apart, and halves for ever where training has diverged. Here a step that overflowed is
skipped as `AdamW` skips any, and once there is nothing left to halve it counts as one that diverged.
Source: Micikevicius et al. 2018, section 3.2.
"""

import keras
from keras import ops

from rembed_keras.errors import Count, Rate, UserError
from rembed_keras.training.optimizers.adamw import AdamW


@keras.saving.register_keras_serializable(package="rembed_keras")
class LossScale(keras.optimizers.LossScaleOptimizer):
    """An optimizer around `AdamW` that scales the loss.

    Args:
        inner_optimizer: the `AdamW` that takes the steps.
        initial_scale: what the loss is multiplied by at first, a power of 2.
        dynamic_growth_steps: steps without an overflow after which that is doubled.
        name: the optimizer's name.

    A step whose gradient is not finite changes neither weights nor moments, and halves the scale, down to 1; at 1 it is
    among the inner optimizer's `skipped_steps`. After a step `gradient_norm` holds the norm as it is without the scale.

    >>> LossScale(AdamW(1e-3), initial_scale=2.0**10).initial_scale
    1024.0
    """

    def __init__(
        self,
        inner_optimizer: AdamW,
        initial_scale: Rate = 2.0**15,
        dynamic_growth_steps: Count = 2000,
        name: str = "loss_scale",
    ):
        super().__init__(inner_optimizer, initial_scale, dynamic_growth_steps, name=name)

    def build(self, variables):
        """Makes the slots of variables."""
        # not Keras's, whose variables cannot be assigned on replicas
        self.dynamic_scale = self.add_variable(
            (),
            initializer=keras.initializers.Constant(self.initial_scale),
            dtype="float32",
            aggregation="only_first_replica",
            name="dynamic_scale",
        )
        self.step_counter = self.add_variable((), dtype="int32", aggregation="only_first_replica", name="step_counter")
        self.inner_optimizer.build(variables)
        keras.optimizers.Optimizer.build(self, variables)

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        """`apply` on values instead of variables, as JAX has it."""
        return keras.optimizers.Optimizer.stateless_apply(self, optimizer_variables, grads, trainable_variables)

    def apply(self, grads, trainable_variables=None):
        """Updates the variables by gradients of the scaled loss."""
        if not self.built:
            self.build(list(trainable_variables))
        scale, steps = (ops.convert_to_tensor(each) for each in (self.dynamic_scale, self.step_counter))
        grads = [None if grad is None else ops.cast(grad, "float32") / scale for grad in grads]
        self.inner_optimizer.apply(grads, trainable_variables, is_counted=scale <= 1.0)
        is_taken = ops.isfinite(self.gradient_norm)
        grows = steps + 1 >= self.dynamic_growth_steps
        grown = ops.where(grows, 2.0 * scale, scale)
        self.dynamic_scale.assign(ops.where(is_taken, grown, ops.maximum(1.0, 0.5 * scale)))
        self.step_counter.assign(ops.where(ops.logical_and(is_taken, ops.logical_not(grows)), steps + 1, 0))

    @property
    def loss_scale(self):
        """What the loss is multiplied by."""
        return self.dynamic_scale

    @property
    def gradient_norm(self):
        """The norm of the last step's gradient."""
        return self.inner_optimizer.gradient_norm

    @property
    def skip_nonfinite(self) -> int:
        """How many steps of the run may be skipped at a scale of 1."""
        return self.inner_optimizer.skip_nonfinite

    @property
    def skipped_steps(self):
        """How many were."""
        return self.inner_optimizer.skipped_steps

    @property
    def diverged_step(self):
        """The step at which they became too many, 0 if they have not."""
        return self.inner_optimizer.diverged_step


def scaled_for(model: keras.Model, optimizer: AdamW) -> AdamW | LossScale:
    """An optimizer as a model's dtype needs it: one that scales the loss where layers compute in float16.

    Args:
        model: a model of ours, with an `encoder`.
        optimizer: the optimizer.

    Raises:
        UserError: for float16 on JAX without an accelerator, where attention cannot be computed in it.
    """
    if model.encoder.compute_dtype != "float16":
        return optimizer
    if keras.config.backend() == "jax":
        import jax

        if jax.default_backend() == "cpu":
            raise UserError("JAX has no attention in float16 on a CPU: let the encoder's dtype be mixed_bfloat16")
    return LossScale(optimizer)
