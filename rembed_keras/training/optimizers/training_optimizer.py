"""What encoders are trained with, whatever the update is: one wrapper around any Keras optimizer.

Keras brings the update; what surrounds it is settled here, once. The gradient is clipped by its norm *after* it was
summed over replicas: a batch has one gradient, and clipping parts of it by themselves is another algorithm. The norm is
kept, because its curve is the first thing one looks at when a run goes wrong. A non-finite gradient changes nothing:
without a look from outside, which would cost every step a wait for the device, weights and slots stay what they were
before it until somebody looks. Norms and biases are not decayed, and layers may have learning rates of their own.

In float16 the loss is multiplied before gradients are taken, and gradients are divided after: the smallest number of
float16 is 6e-8, and much of the gradient of a mean over thousands of predictions is below it. The scale is doubled
after many steps that went well and halved at one whose gradient overflowed. Keras's own optimizer for this leaves such
a step out of the clock, so that learning rate and data fall apart, and halves for ever where training has diverged.
Source: Devlin et al. 2019, appendix A.2; Chung et al. 2021, table 14; Micikevicius et al. 2018, section 3.2.
"""

from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from rembed_keras import compat
from rembed_keras.errors import Count, CountOrZero, Rate, UserError, check_counts
from rembed_keras.modeling.attention.platforms import platform_traced_for
from rembed_keras.modeling.losses.measured import without_measured
from rembed_keras.modeling.replicas import largest_of_replicas, num_replicas, sum_over_replicas
from rembed_keras.training.optimizers.inner import check_inner, held_by, unnumbered
from rembed_keras.training.optimizers.masters import MASTER, Master, Masters, following
from rembed_keras.training.optimizers.norms import global_norm, scaled, whole
from rembed_keras.training.optimizers.schedule_free import update_of

UNDECAYED = ("bias", "gamma", "beta", "scale")
SCALE = 2.0**15  # of a loss in float16, at first


@keras.saving.register_keras_serializable(package="rembed_keras")
class TrainingOptimizer(keras.optimizers.LossScaleOptimizer):
    """Any Keras optimizer, with clipping by the global norm, steps that may be skipped, and rates by layer.

    Args:
        inner_optimizer: a `keras.optimizers.Optimizer`. It changes variables by `assign`, `assign_add` and `assign_sub`
            of its own in `update_step`, as Keras asks of optimizers, or those of one that it holds as an attribute, and
            has its slots from `add_variable`.
        clip_norm: the largest global norm of a gradient; None does not clip.
        skip_nonfinite: how many steps of the run are skipped because their gradient's norm is not finite; training
            diverged at the next such step.
        multipliers: what the learning rates of some variables are multiplied by, their decay too, by the variables'
            paths; see `adaptation.tuning.learning_rate_multipliers`.
        initial_scale: what the loss is multiplied by at first, a power of 2; None does not scale.
        dynamic_growth_steps: steps without an overflow after which that is doubled.
        name: the optimizer's name; the inner optimizer's by default.

    After a step `gradient_norm` holds the norm before clipping and without the scale, `skipped_steps` how many steps
    had none that is finite, and `diverged_step` the step at which they became too many, 0 if they have not. A skipped
    step leaves weights and slots to the bit, under several replicas on each of them; `iterations` counts it, so that
    the learning rate and the data keep step. Where the loss is scaled it halves the scale, down to 1, and is among
    `skipped_steps` only at 1. Once training diverged no step changes weights or slots.

    Raises:
        UserError: for an optimizer with settings that belong here, or one that is none.

    >>> TrainingOptimizer(keras.optimizers.Lion(1e-4), clip_norm=1.0).clip_norm
    1.0
    """

    _masters = Masters(())  # until variables are known

    def __init__(
        self,
        inner_optimizer: keras.optimizers.Optimizer,
        clip_norm: Rate | None = 1.0,
        skip_nonfinite: CountOrZero = 0,
        multipliers: Mapping[str, float] | None = None,
        initial_scale: Rate | None = None,
        dynamic_growth_steps: Count = 2000,
        name: str | None = None,
    ):
        check_inner(inner_optimizer)
        if clip_norm is not None and clip_norm <= 0:
            raise UserError(f"clip_norm is {clip_norm!r}; it must be positive, or None for no clipping")
        check_counts({"skip_nonfinite": skip_nonfinite}, "CountOrZero")
        inner_optimizer.name = unnumbered(inner_optimizer)
        super().__init__(inner_optimizer, initial_scale, dynamic_growth_steps, name=name or inner_optimizer.name)
        compat.forget_variables(self)
        self.clip_norm = clip_norm
        self.skip_nonfinite = skip_nonfinite
        self.multipliers = dict(multipliers or {})
        self.gradient_norm = self._scalar("gradient_norm")
        self.skipped_steps = self._scalar("skipped_steps", "int32")
        self.diverged_step = self._scalar("diverged_step", "int32")
        if initial_scale is not None:
            self.dynamic_scale = self._scalar("dynamic_scale", initializer=keras.initializers.Constant(initial_scale))
            self.step_counter = self._scalar("step_counter", "int32")
        self._taken: Any = None  # a bool tensor while variables are updated
        self._update = update_of(inner_optimizer)
        inner_optimizer.update_step = self._update_step
        compat.decays_itself(inner_optimizer)  # by `_update_step`
        # what changes not even a zero's sign; arrays, since TensorFlow keeps one tensor for the numbers 0.0 and -0.0
        changes = (("assign_add", np.array(-0.0, "float32")), ("assign_sub", np.array(0.0, "float32")))
        for each in (inner_optimizer, *held_by(inner_optimizer)):
            for method, neutral in changes:
                setattr(each, method, partial(self._change, getattr(each, method), neutral))
            each.assign = partial(self._assign, each.assign)

    @property
    def variables(self) -> list[keras.Variable]:
        """Its own, the inner optimizer's, and masters of weights in 16 bits."""
        return [*super().variables, *self._masters.own()]

    def _scalar(self, name, dtype="float32", initializer="zeros"):
        # Keras's own have no aggregation, and cannot be assigned on replicas
        return self.add_variable((), initializer, dtype, aggregation="only_first_replica", name=name)

    def build(self, variables):
        """Makes the slots of variables.

        Raises:
            UserError: for a multiplier of none of them.
        """
        if self.built:
            return
        paths = [variable.path for variable in variables]
        unknown = self.multipliers.keys() - {*paths}
        if unknown:
            raise UserError(f"there is a multiplier of {min(unknown)}, which is not trained")
        self._masters = Masters(variables)
        self.inner_optimizer.build(self._masters.changed)
        self._rates = [
            (self.multipliers.get(path, 1.0), self._decay_of(variable))
            for path, variable in zip(paths, variables, strict=True)
        ]
        keras.optimizers.Optimizer.build(self, variables)

    def _decay_of(self, variable):
        inner = self.inner_optimizer
        is_decayed = compat.is_decayed(inner, variable) and not any(word in variable.name for word in UNDECAYED)
        return inner.weight_decay if is_decayed else None

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        """`apply` on values instead of variables, as JAX has it."""
        return keras.optimizers.Optimizer.stateless_apply(self, optimizer_variables, grads, trainable_variables)

    def apply(self, grads, trainable_variables=None):
        """Updates the variables by gradients that are summed over replicas, then clipped by their global norm."""
        if not self.built:
            self.build(list(trainable_variables))
        changed = self._masters.changed
        if trainable_variables is not None:
            changed = [changed[compat.variable_index(self, variable)] for variable in trainable_variables]
        grads, changed, measured = without_measured(whole(grads), changed)
        if self.initial_scale is not None:
            before = ops.convert_to_tensor(self.dynamic_scale)
            grads = [None if grad is None else ops.cast(grad, "float32") / before for grad in grads]
        present = iter(sum_over_replicas([grad for grad in grads if grad is not None]))
        grads = [None if grad is None else next(present) for grad in grads]
        norm = global_norm(grads)
        self._note(norm)
        # Keras sums over replicas once more, and every replica holds the sum already
        scale = 1.0 / num_replicas()
        if self.clip_norm is not None:
            scale = scale * ops.minimum(1.0, self.clip_norm / (norm + 1e-6))
        with self._asked_once() if num_replicas() == 1 else nullcontext():  # each of several has a variable of its own
            self.inner_optimizer.apply(scaled(grads, scale), changed)
            largest = largest_of_replicas([value for _, value in measured])
            for (variable, _), value in zip(measured, largest, strict=True):
                self._assign(keras.Variable.assign, variable, value)

    def _note(self, norm):
        """Keeps a step's norm, counts the step if it is not finite, and sets the scale of the next step's loss."""
        is_finite = ops.isfinite(norm)
        counts = ops.logical_not(is_finite)
        if self.initial_scale is not None:  # where it is more than 1 it may be all that is wrong
            scale, steps = (ops.convert_to_tensor(each) for each in (self.dynamic_scale, self.step_counter))
            counts = ops.logical_and(counts, scale <= 1.0)
            grows = steps + 1 >= self.dynamic_growth_steps
            grown = ops.where(grows, 2.0 * scale, scale)
            self.dynamic_scale.assign(ops.where(is_finite, grown, ops.maximum(1.0, 0.5 * scale)))
            self.step_counter.assign(ops.where(ops.logical_and(is_finite, ops.logical_not(grows)), steps + 1, 0))
        self.gradient_norm.assign(norm)
        skipped = self.skipped_steps + ops.cast(counts, "int32")
        diverged = ops.convert_to_tensor(self.diverged_step)
        # of a finite step none, though fewer may be skipped than were before
        is_one_too_many = ops.logical_and(counts, skipped > self.skip_nonfinite)
        diverges = ops.logical_and(ops.equal(diverged, 0), is_one_too_many)
        self.skipped_steps.assign(skipped)
        self.diverged_step.assign(ops.where(diverges, ops.cast(self.iterations + 1, "int32"), diverged))

    def _update_step(self, gradient, variable, learning_rate):
        """The inner optimizer's update of a variable at the variable's own learning rate, its decay included."""
        index = compat.variable_index(self.inner_optimizer, variable)
        multiplier, decay = self._rates[index]
        rounded = self._masters.rounded(index)
        rate = ops.cast(learning_rate, variable.dtype)
        rate = rate if multiplier == 1.0 else rate * multiplier
        with self._asked_once():
            if rounded is not None:
                self.inner_optimizer.assign(variable, following(variable, rounded))
            if decay is not None:
                self.inner_optimizer.assign_sub(variable, variable * decay * rate)
            self._update(gradient, variable, rate)
            if rounded is not None:
                if rounded.constraint is not None:
                    self.inner_optimizer.assign(variable, rounded.constraint(ops.convert_to_tensor(variable)))
                self.inner_optimizer.assign(rounded, ops.cast(variable, rounded.dtype))

    @contextmanager
    def _asked_once(self):
        """Whether the step is taken is computed once for all that changes meanwhile."""
        outer, self._taken = self._taken, self._is_taken()
        try:
            yield
        finally:
            self._taken = outer

    def _is_taken(self):
        if self._taken is not None:
            return self._taken
        return ops.logical_and(ops.isfinite(self.gradient_norm), ops.equal(self.diverged_step, 0))

    def _change(self, change, neutral, variable, value):
        """Adds to a variable, or subtracts, unless the step is skipped."""
        value = ops.convert_to_tensor(value, variable.dtype)
        neutral = neutral if variable.dtype == "float32" else ops.cast(neutral, variable.dtype)
        change(variable, ops.where(self._is_taken(), value, neutral))

    def _assign(self, assign, variable, value):
        """Assigns to a variable unless the step is skipped; where slots are made there is no step."""
        if self.built:
            value = ops.convert_to_tensor(value, variable.dtype)
            value = ops.where(self._is_taken(), value, ops.convert_to_tensor(variable))
        assign(variable, value)

    def scale_loss(self, loss):
        """What gradients are taken of."""
        return loss if self.initial_scale is None else ops.multiply(loss, self.dynamic_scale)

    @property
    def loss_scale(self):
        """What the loss is multiplied by; None if it is not scaled."""
        return None if self.initial_scale is None else self.dynamic_scale

    def named_variables(self) -> dict[str, keras.Variable]:
        """The optimizer's variables by names that are the same in every process.

        Their paths are not: Keras numbers optimizers and variables without a name as a process makes them, and
        Adafactor calls slots of several variables alike.
        """
        inner = self.inner_optimizer
        named: dict[str, keras.Variable] = {}
        for variable in self.variables:
            if isinstance(variable, Master):
                named[f"{MASTER}{variable.path}"] = variable
                continue
            _, is_scoped, own = variable.path.rpartition("/")
            name = f"{type(inner).__name__.lower()}/{own if is_scoped else 'variable'}"
            again = sum(other == name or other.startswith(f"{name}#") for other in named)
            named[f"{name}#{again}" if again else name] = variable
        return named

    def get_config(self):
        own = {name: getattr(self, name) for name in ("clip_norm", "skip_nonfinite")}
        config = super().get_config()  # in which Keras 3.10 has settings that its constructor does not take
        kept = {key: config[key] for key in ("name", "inner_optimizer", "initial_scale", "dynamic_growth_steps")}
        return kept | own | {"multipliers": dict(self.multipliers)}


def wrapped(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    clip_norm: Rate | None = 1.0,
    skip_nonfinite: CountOrZero = 0,
    multipliers: Mapping[str, float] | None = None,
) -> TrainingOptimizer:
    """An optimizer as a stage trains a model with it: it scales the loss where layers compute in float16.

    Args:
        model: a model of ours, with an `encoder`.
        optimizer: the optimizer.
        clip_norm: as of `TrainingOptimizer`.
        skip_nonfinite: as of `TrainingOptimizer`.
        multipliers: as of `TrainingOptimizer`.

    Raises:
        UserError: for float16 on JAX for a CPU, where attention cannot be computed in it.
    """
    dtypes = {layer.compute_dtype for layer in compat.layers_of(model.encoder) if layer.weights}
    scale = SCALE if "float16" in dtypes else None
    if scale and keras.config.backend() == "jax" and platform_traced_for() == "cpu":
        raise UserError("JAX has no attention in float16 on a CPU: let the encoder's dtype be mixed_bfloat16")
    return TrainingOptimizer(optimizer, clip_norm, skip_nonfinite, multipliers, scale)
