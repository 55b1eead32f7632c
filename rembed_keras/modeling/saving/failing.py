"""A model keeps its weights when one of Keras's loops over data fails, on JAX too."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from rembed_keras import compat


@contextlib.contextmanager
def weights_kept(model, is_trained: bool = False) -> Iterator[None]:
    """While open, a loop that fails or is interrupted leaves a model its weights, those after its last step.

    On JAX, Keras takes them out of the model while it loops, and only `fit` of later versions gives them back, once a
    step is finished: a notebook whose cell is stopped, or a step that no memory is left for, would cost the training.
    A step takes no variables that share an array there, and takes that of one from another: they get one each, as
    weights and their means do after `fit` of an optimizer with `use_ema`, whatever calls the model next.

    Args:
        model: whose `fit`, `evaluate` or `predict` is called.
        is_trained: whether it is `fit`, which makes the optimizer's slots if there are none.
    """
    if keras.config.backend() != "jax":
        yield
        return
    optimizer: Any = getattr(model, "optimizer", None)  # which a model that was not compiled has not
    if is_trained and not optimizer.built:
        optimizer.build(model.trainable_variables)
    others = model.non_trainable_variables  # those of teachers too, which are none of its variables
    owned = [*model.variables, *others, *(() if optimizer is None else optimizer.variables)]
    values = _of_their_own(owned)
    try:
        yield
        _of_their_own(owned)
    except BaseException:
        emptied = compat.end_of_loop(model, [*owned, *model.metrics_variables])
        for variable, value in zip(owned, values, strict=True):
            if id(variable) in emptied and not value.is_deleted():
                variable.assign(value)
        _of_their_own([variable for variable in owned if id(variable) not in emptied])
        made = emptied - {*map(id, owned)}  # in the loop, of metrics: Keras 3.10 asks for them before it begins another
        for metric in model.metrics:
            if not made.isdisjoint(map(id, metric.variables)):
                metric.reset_state()
        raise


def _of_their_own(variables: Sequence) -> list:
    """The arrays of variables, of which those that share one get a copy."""
    owners: dict[int, Any] = {}
    for variable in variables:
        if owners.setdefault(id(variable.value), variable) is not variable:
            variable.assign(ops.copy(variable.value))
    return [variable.value for variable in variables]
