"""The only file that leans on private parts of Keras, keras-hub, TensorFlow, JAX and gin.

An upgrade may change any of them without a word, so each is a small function that says where it was seen, and
tests/test_compat.py has a canary for each, which fails when the private thing is no longer what it was. Nothing is
imported here before a function needs it.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def gin_evaluates_by(evaluate: Callable[[list[str], str, Callable[[], Any]], Any]) -> contextlib.AbstractContextManager:
    """While open, gin asks `evaluate(scopes, selector, call)` for what it takes `@scopes/selector()` to be.

    gin evaluates a reference when it copies the arguments that hold it. Seen in gin-config 0.5.0:
    `gin.config.ConfigurableReference.__deepcopy__`.
    """
    import gin

    reference = gin.config.ConfigurableReference
    usual = reference.__deepcopy__

    def through(self, memo):
        return evaluate(self.scopes, self.selector, lambda: usual(self, memo)) if self.evaluate else usual(self, memo)

    return _replaced(reference, {"__deepcopy__": through})


def unbound_arguments(error: TypeError) -> tuple[str, str] | None:
    """The configurable that gin could not call and the arguments that it lacks; None if that is not what is wrong.

    gin says it in the text of the error alone. Seen in gin-config 0.5.0: `gin.config._make_gin_wrapper`.
    """
    said = r"No values supplied by Gin or caller for arguments: \[(?P<arguments>.*?)\].*?configurable '(?P<name>.*?)'"
    found = re.search(said, str(error), re.DOTALL)
    return (found["name"], found["arguments"]) if found else None


def layers_of(layer, recursive: bool = True, include_self: bool = True) -> Iterator:
    """Yields what a layer is made of, each once, before its own parts. Seen in Keras 3.15: `Layer._flatten_layers`."""
    return layer._flatten_layers(recursive=recursive, include_self=include_self)


def numbering_names(made: Counter) -> contextlib.AbstractContextManager:
    """While open, Keras counts the names that it makes in `made` alone. Seen in Keras 3.15: `naming.uniquify`."""
    from keras.src.backend.common import global_state

    return _replaced(global_state.GLOBAL_STATE_TRACKER, {"object_name_uids": made})


@contextlib.contextmanager
def unlocked(layer) -> Iterator[None]:
    """While open, a layer that is built takes others, as `enable_lora` has it. Seen in Keras 3.15: `Layer._tracker`."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


def saved_in_pieces(pieces: Callable[[Any], Iterable]) -> contextlib.AbstractContextManager:
    """While open, Keras writes the rows that `pieces` gives of a variable, if any. Seen in Keras 3.15: `H5IOStore`."""
    from keras.src.saving.saving_lib import H5IOStore

    write = H5IOStore.__setitem__

    def write_pieces(self, key, value):
        start = 0
        for piece in pieces(value):
            if not start:
                write(self, key, piece[:0])
                del self._h5_entry_group[key]
                there = self._h5_entry_group.create_dataset(key, value.shape, piece.dtype)
            there[start : start + len(piece)] = piece
            start += len(piece)
        if not start:
            write(self, key, value)

    return _replaced(H5IOStore, {"__setitem__": write_pieces})


def set_dtype_policy(layer, policy) -> None:
    """Gives a built layer another policy, where the setter asks a map. Seen in Keras 3.15: `Layer._dtype_policy`."""
    layer._dtype_policy = policy


def attend(layer, heads: Iterable, attention_mask, training):
    """What attention makes of heads, [B, S, H, K] each. Seen in Keras 3.15: `MultiHeadAttention._compute_attention`."""
    return layer._compute_attention(*heads, attention_mask=attention_mask, training=training)[0]


def attention_dropout(layer):
    """The layer that drops attention probabilities. Seen in Keras 3.15: `MultiHeadAttention._dropout_layer`."""
    return layer._dropout_layer


def update_metrics(model, metrics_variables, loss, x, y, outputs, sample_weight):
    """Logs and next values of metrics, on JAX. Seen in Keras 3.15: `JAXTrainer._update_metrics_variables`."""
    return model._update_metrics_variables(metrics_variables, loss, x, y, outputs, sample_weight)


def taking_losses(layer, function):
    """What a function of a layer's sublayers gives, and the losses that they added, which are taken from them.

    Seen in Keras 3.15: `Layer._losses` and `Layer._loss_ids`.
    """
    scope = stateless_scope()
    lists = [each._losses for each in layers_of(layer)] if scope is None else [scope.losses]
    counts = [len(losses) for losses in lists]
    outcome = function()
    added = [loss for losses, count in zip(lists, counts, strict=True) for loss in losses[count:]]
    for losses, count in zip(lists, counts, strict=True):
        del losses[count:]
    for each in layers_of(layer):
        each._loss_ids.difference_update(map(id, added))
    return outcome, added


def stateless_scope():
    """The `keras.StatelessScope` that is open, or None. Seen in Keras 3.15: `keras.src.backend.get_stateless_scope`."""
    from keras.src import backend

    return backend.get_stateless_scope()


def strategy_of(model):
    """The strategy a model was made under, or None. Seen in Keras 3.15: `TensorFlowTrainer._distribute_strategy`."""
    return model._distribute_strategy


class BuildsFromItsReplica:
    """A mixin before a model's class: Keras builds it of the batch of one replica, not of what a strategy hands out.

    Seen in Keras 3.10 and 3.15: `Trainer._maybe_symbolic_build`, which knows the parts of a batch of this process only.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        import keras

        strategy = strategy_of(self) if iterator is not None else None
        if strategy is not None:
            *_, batches = next(iter(iterator))
            own = strategy.experimental_local_results
            data_batch = keras.tree.map_structure(lambda column: own(column)[0], next(batches))
        return super()._maybe_symbolic_build(data_batch=data_batch)  # type: ignore[misc] # the model's


def build_metrics(model, y, y_pred) -> None:
    """Makes compiled metrics for labels and outputs of such shapes. Seen in Keras 3.15: `Trainer._compile_metrics`."""
    metrics = model._compile_metrics
    if metrics is not None and not metrics.built:
        metrics.build(y, y_pred)


def decays_itself(optimizer) -> None:
    """Leaves decay to an optimizer's `update_step`. Seen in Keras 3.15: `BaseOptimizer._apply_weight_decay`."""
    optimizer._apply_weight_decay = lambda variables: None


def forget_variables(optimizer) -> None:
    """Takes a wrapper's clock and rate. Seen in Keras 3.15: `BaseOptimizer._variables` and `_untrack_variable`."""
    for unused in optimizer._variables[:]:
        optimizer._untrack_variable(unused)


def is_decayed(optimizer, variable) -> bool:
    """Whether an optimizer decays a variable. Seen in Keras 3.15: `BaseOptimizer._use_weight_decay`."""
    return optimizer._use_weight_decay(variable)


def variable_index(optimizer, variable) -> int:
    """The number of a variable in its optimizer. Seen in Keras 3.15: `BaseOptimizer._get_variable_index`."""
    return optimizer._get_variable_index(variable)


def moments_of(optimizer, variable) -> list:
    """Momentum and velocity of a variable. Seen in Keras 3.15: `_momentums` and `_velocities` of AdamW's kinds."""
    index = variable_index(optimizer, variable)
    return [optimizer._momentums[index], optimizer._velocities[index]]


def layout_of(variable):
    """The layout that a variable was given when it was made, or None. Seen in Keras 3.15: `Variable._layout`."""
    return getattr(variable, "_layout", None)


@contextlib.contextmanager
def abstract_variables(sharding: Any) -> Iterator[None]:
    """While open, variables on JAX have shapes, dtypes and shardings, and no values: none of their memory is taken.

    Those that no distribution gives a layout have the `sharding`; a copy is what is copied. In a traced function they
    are zeros unless they are mapped to a value, as variables that are not initialized are. Seen in Keras 3.15, on JAX:
    `numpy.copy`; `Variable._initialize`, `_initialize_with_initializer`, `_direct_assign`, `_value`, `value`, others.
    """
    import jax
    from keras.src import backend

    def take_shape(variable, shape):
        variable._shape = variable._validate_shape(shape)
        variable._initialize_layout()
        layout = variable._layout
        own = sharding if layout is None else getattr(layout, "backend_layout", layout)
        variable._value = jax.ShapeDtypeStruct(variable._shape, variable._dtype, sharding=own)

    def value(variable):
        if (scope := stateless_scope()) is None:
            return variable._value
        mapped = scope.get_current_value(variable)
        return variable._maybe_autocast(jax.numpy.zeros(variable._shape, variable._dtype) if mapped is None else mapped)

    replaced = {
        "_initialize": lambda variable, value: take_shape(variable, value.shape),
        "_initialize_with_initializer": lambda variable, initializer: take_shape(variable, variable._shape),
        "_direct_assign": lambda variable, value: None,
        "value": property(value),
    }
    with _replaced(backend.Variable, replaced), _replaced(backend.numpy, {"copy": lambda value: value}):
        yield


@contextlib.contextmanager
def _replaced(kind: Any, replaced: dict[str, Any]) -> Iterator[None]:
    """While open, a class, or what else holds attributes, has others."""
    own = {name: vars(kind)[name] for name in replaced if name in vars(kind)}
    for name, by in replaced.items():
        setattr(kind, name, by)
    try:
        yield
    finally:
        for name in replaced:
            delattr(kind, name)
        for name, before in own.items():
            setattr(kind, name, before)


def compiled_train_step(model):
    """The function of a state and a batch that `fit` hands to JAX's compiler, and the model's present state.

    Seen in Keras 3.15, on JAX: `JAXTrainer._make_function`, which puts the reading of batches around it, and
    `_get_jax_state`.
    """
    own = model._make_function
    model._make_function = lambda step, **_: step
    try:
        model.make_train_function(force=True)
    finally:
        model._make_function = own
    step, model.train_function = model.train_function, None
    kinds = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
    return step, model._get_jax_state(**dict.fromkeys(kinds, True))


def end_of_loop(model, variables) -> set[int]:
    """Gives a model back what a loop on JAX had when it failed; which variables then have no value, by `id`.

    Seen in Keras 3.15: `JAXTrainer._jax_state`, which would be given back later too, and `Variable._value`.
    """
    with contextlib.suppress(RuntimeError):  # deleted: a step had taken it, and gave nothing back
        model.jax_state_sync()
    model._jax_state = None
    return {id(variable) for variable in variables if variable._value is None}


def jax_processes():
    """JAX's `process_id`, `num_processes` and `client` of a store. Seen in jax 0.10.2: `jax._src.distributed`."""
    from jax._src import distributed

    return distributed.global_state


def tensorflow_processes():
    """TensorFlow's store that processes share. Seen in TensorFlow 2.21: `tensorflow.python.eager.context.context`."""
    from tensorflow.python.eager import context

    return context.context()


def hub_presets():
    """keras-hub's module that finds, downloads, writes and lists presets, whose "kaggle_handle" may be a folder.

    Seen in keras-hub 0.21 and 0.32: `keras_hub.src.utils.preset_utils`, with `check_file_exists`, `load_json`,
    `get_preset_saver`, and `register_presets`, which is for models that are shipped with the library.
    """
    from keras_hub.src.utils import preset_utils

    return preset_utils


def save_task(task, preset_dir: str, max_shard_size: float) -> None:
    """Writes a task's preset, where keras-hub 0.21 would save a preprocessor that is None too, and fail.

    Seen in keras-hub 0.21 and 0.32: `save_preprocessor` of what `get_preset_saver` gives.
    """
    saver = hub_presets().get_preset_saver(preset_dir)
    if task.preprocessor is None:
        saver.save_preprocessor = lambda preprocessor: None
    saver.save_task(task, max_shard_size=max_shard_size)
