"""A step that takes its batch a part at a time: as much memory as a part needs, the numbers of the whole.

Gradients of the parts are summed before the optimizer sees them, inside the step, so that clipping, the optimizer's
clock, dropout and what replicas exchange are those of one batch. Losses must be shares of the whole batch's loss
already. Keras's own gradient accumulation divides by steps instead of predictions, and fails under a strategy.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.errors import UserError
from rembed_keras.modeling.losses.measured import added
from rembed_keras.modeling.losses.row_weights import counted, of_each, of_rows
from rembed_keras.modeling.replicas import shares
from rembed_keras.modeling.sizes import NARROW

NO_LABELS = "there are no labels: give the ids of the masked tokens as y"


class StepsInParts:
    """Steps of a pre-training model, whose loss needs some numbers of the whole batch; a mixin before its class."""

    needs_labels = True
    no_labels = NO_LABELS

    def train_step(self, *args):
        """Keras's, of a batch that has what the loss needs of all of it; JAX hands over its state first."""
        model: Any = self
        *state, batch = args
        with optimizer_at(model.optimizer, *state):
            args = (*state, self._completed(batch, self.step_numbers(training=True), model.micro_batches))
            model.weigh_terms()
        if model.micro_batches > 1 or model.compiles_gradients:
            return model.reported(step_in_parts(model, model.micro_batches, *args))
        return super().train_step(*args)  # type: ignore[misc] # the model's

    def test_step(self, *args):
        """As `train_step`."""
        *state, batch = args
        completed = self._completed(batch, self.step_numbers(training=False))
        return super().test_step(*state, completed)  # type: ignore[misc] # the model's

    def check_labels(self, x, y, sample_weight) -> None:
        """See `TakesTexts`; labels that are not one for each masked position are refused too."""
        super().check_labels(x, y, sample_weight)  # type: ignore[misc] # the model's
        positions = x.get("mask_positions") if isinstance(x, Mapping) else None
        wanted, given = (getattr(each, "shape", None) for each in (positions, y))
        if wanted is not None and given is not None and tuple(wanted) != tuple(given):
            raise UserError(f"labels are of shape {tuple(given)}; they are the ids of mask_positions, {tuple(wanted)}")

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Keras's, of metrics that a user compiled; in those without weights too, rows that fill a batch count nothing.

        In weighted metrics labels that weigh nothing may be none, as -100.
        `unweighted_metrics` says how many of the compiled metrics, the first ones, are without weights.
        """
        model: Any = self
        if model.micro_batches == 1 and not model.has_replicas and sample_weight is None:
            return super().compute_metrics(x, y, y_pred, sample_weight)  # type: ignore[misc] # the model's
        compat.build_metrics(model, y, y_pred)
        (compiled,) = (metric for metric in model.metrics if hasattr(metric, "metrics"))
        weights = of_each(row_weights(x["padding_mask"], None), ops.cast(y, "float32"))
        for number, metric in enumerate(compiled.metrics):
            is_weighted = number >= model.unweighted_metrics
            own = sample_weight if is_weighted else weights
            metric.update_state(counted(y, sample_weight) if is_weighted else y, y_pred, sample_weight=own)
        return model.get_metrics_result()

    def step_numbers(self, training: bool) -> dict:
        """Numbers that the loss needs of a step.

        Here what the optimizer multiplies the loss by, and the share that a micro-batch has in the batch.
        """
        model: Any = self
        one = ops.ones((), "float32")
        if not training:
            return {"loss_scales": one, "micro_batch_shares": one}
        return {"loss_scales": model.optimizer.scale_loss(one), "micro_batch_shares": one / model.micro_batches}

    def _completed(self, batch, step_numbers, parts=1):
        """A batch whose inputs hold the shares of its rows and predictions, and the step's numbers for each row."""
        model: Any = self
        given = keras.utils.unpack_x_y_sample_weight(batch)
        if given[1] is None:
            raise UserError(NO_LABELS)
        tensors = [part if part is None else keras.tree.map_structure(ops.convert_to_tensor, part) for part in given]
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tuple(tensors))
        if parts > 1 or model.has_replicas:  # which may have no row of a batch that is left over
            x, y, sample_weight = filled(x, y, sample_weight, parts)
        weights = row_weights(x["padding_mask"], sample_weight)
        x = x | {"row_weights": weights, "row_shares": shares(weights)}
        each_row = ops.ones(ops.shape(y)[:1], "float32")  # [B]
        rows = {name: number * each_row for name, number in step_numbers.items()}
        return x | model.shares_of(x, y, sample_weight) | rows, y, sample_weight

    def _with_shares(self, x, y, sample_weight):
        """The inputs of a step; of a batch that is in none, such as one that Keras builds metrics with, completed."""
        return x if "loss_scales" in x else self._completed((x, y, sample_weight), self.step_numbers(training=False))[0]


def row_weights(padding_mask, sample_weight):
    """What rows weigh, float32 [B]: 0 if they are nothing but padding, which fills a batch up.

    Args:
        padding_mask: [B, S].
        sample_weight: of rows, [B] or [B, 1]; of predictions, [B, P], of which the greatest is the row's, so that a
            text of weight 0 counts in no loss; or None.

    >>> mask = np.array([[1, 1], [1, 0], [0, 0]])
    >>> ops.convert_to_numpy(row_weights(mask, np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]))).tolist()
    [1.0, 0.5, 0.0]
    """
    weights = ops.cast(ops.any(ops.cast(padding_mask, "bool"), axis=1), "float32")
    if sample_weight is None:
        return weights
    return weights * of_rows(ops.cast(sample_weight, "float32"))


def filled(x, y, sample_weight, parts: int):
    """A batch that can be cut into some parts, of a row at least, by rows of padding and of weight 0 after its own."""
    if sample_weight is None:
        sample_weight = ops.ones(ops.shape(y), "float32")
    rows = ops.shape(y)[0]
    least = ops.maximum if not isinstance(rows, int) else max
    more = least((rows + parts - 1) // parts, 1) * parts - rows
    if isinstance(more, int) and not more:
        return x, y, sample_weight

    def fill(column):
        return ops.concatenate([column, ops.zeros((more, *ops.shape(column)[1:]), column.dtype)])

    return keras.tree.map_structure(fill, (x, y, sample_weight))


def step_in_parts(model: keras.Model, count: int, *args):
    """Keras's `train_step` of a model, a part of the batch at a time.

    Args:
        model: whose `compute_loss` gives a part's share of the loss of the whole batch, and whose metrics are running
            means.
        count: M, number of parts; rows of the batch must be a multiple.
        args: what Keras calls `train_step` with: the batch, and on JAX the state before it.

    Returns:
        What Keras's `train_step` returns.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(args[-1])
    parts = keras.tree.map_structure(lambda tensor: _split(tensor, count), (x, y, sample_weight))
    if keras.config.backend() == "jax":
        return _jax_step(model, count, parts, *args[:-1])
    return _tensorflow_step(model, count, parts)


def optimizer_at(optimizer: keras.optimizers.Optimizer, *state):
    """A context in which an optimizer's variables are those of the state that JAX hands to a step, if there is one."""
    if not state:
        return contextlib.nullcontext()
    ((_, _, values, _),) = state
    return keras.StatelessScope(state_mapping=list(zip(optimizer.variables, values, strict=True)))


def _split(tensor, count):
    """Parts [M, B/M, ...] of [B, ...]: every M-th row, so that no row of a sharded batch leaves its device."""
    shape = ops.shape(tensor)
    tensor = ops.reshape(tensor, (-1, count, *shape[1:]))  # [B, ...] -> [B/M, M, ...]
    return ops.moveaxis(tensor, 1, 0)


def _summed_in(variable):
    """The dtype that gradients of parts are summed in: float32 where they have 16 bits."""
    dtype = keras.backend.standardize_dtype(variable.dtype)
    return "float32" if dtype in NARROW else dtype


def _tensorflow_step(model, count, parts):
    import tensorflow as tf  # only here: modeling works where TensorFlow is not installed

    variables = model.trainable_variables
    reached = [True] * len(variables)  # a loss of hidden states reaches no layer above them

    def gradients_of(part):
        x, y, sample_weight = part
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, sample_weight)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        reached[:] = [gradient is not None for gradient in gradients]
        model.compute_metrics(x, y, outputs, sample_weight)
        pairs = zip(gradients, variables, strict=True)
        return [tf.zeros(of.shape, of.dtype) if each is None else tf.convert_to_tensor(each) for each, of in pairs]

    def add(index, sums):
        gradients = gradients_of(keras.tree.map_structure(lambda tensor: tensor[index], parts))
        return index + 1, [added(*each) for each in zip(sums, gradients, variables, strict=True)]

    def sums_of_all():
        if count == 1:
            return gradients_of(keras.tree.map_structure(lambda tensor: tensor[0], parts))
        sums = [tf.zeros(variable.shape, _summed_in(variable)) for variable in variables]
        _, sums = tf.while_loop(
            lambda index, _: index < count, add, (0, sums), parallel_iterations=1, maximum_iterations=count
        )
        return sums

    if model.compiles_gradients:
        sums_of_all = tf.function(sums_of_all, autograph=False, jit_compile=True)
    sums = [total if is_reached else None for total, is_reached in zip(sums_of_all(), reached, strict=True)]
    model.optimizer.apply_gradients(zip(sums, variables, strict=True))
    return model.get_metrics_result()


def _jax_step(model, count, parts, state):
    import jax

    trainable, non_trainable, optimizer, metrics = state
    gradients_of = jax.value_and_grad(model.compute_loss_and_updates, has_aux=True)

    def add(carry, part):
        sums, non_trainable, metrics = carry
        x, y, sample_weight = part
        (_, (loss, outputs, non_trainable, metrics)), gradients = gradients_of(
            trainable, non_trainable, metrics, x, y, sample_weight, training=True, optimizer_variables=optimizer
        )
        logs, metrics = compat.update_metrics(model, metrics, loss, x, y, outputs, sample_weight)
        sums = [added(*each) for each in zip(sums, gradients, model.trainable_variables, strict=True)]
        return (sums, non_trainable, metrics), logs

    zeros = [ops.zeros_like(variable, dtype=_summed_in(variable)) for variable in trainable]
    (sums, non_trainable, metrics), logs = jax.lax.scan(add, (zeros, non_trainable, metrics), parts, length=count)
    trainable, optimizer = model.optimizer.stateless_apply(optimizer, sums, trainable)
    last = {name: values[-1] for name, values in logs.items()}
    return last, (trainable, non_trainable, optimizer, metrics)
