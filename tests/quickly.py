"""Leaves out of the work of tests what Keras and its backends do for programs that run long or are seen by others.

`work_quickly` does all of it, once the backend is imported and before it computes anything.
"""

import contextlib
import functools
import inspect
import math
import os
import types
import typing
import weakref

import numpy as np

ON_TENSORFLOW = os.environ["KERAS_BACKEND"] == "tensorflow"


def with_quick(module, quick: dict) -> types.SimpleNamespace:
    """What stands for a module where it is used: its names, some of which are quicker functions."""
    return types.SimpleNamespace(**vars(module) | quick)


def use_grappler(is_used: bool) -> None:
    """Has TensorFlow optimize graphs before it first runs them, or not."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not is_used})


def make_graphs_quickly() -> None:
    """Leaves out of TensorFlow's work what few steps do not repay, a third of the time of a test that trains.

    That is Grappler, as most of XLA's optimization in conftest.py; the Python stack of each operation, which a graph
    copies several times, and which is deep under pytest; what would shorten it in errors; the names of all dtypes that
    each operation might have had; which variables each operation changes that is given none; that a graph is put in
    use for each operation, where it is already; and that all kernels are thrown away whenever a seed is set.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.framework import auto_control_deps, func_graph, op_def_library, ops

    check, resources_of = op_def_library._SatisfiesTypeConstraint, auto_control_deps._get_resource_inputs
    use = func_graph.FuncGraph.as_default
    handles = {tf.resource, tf.variant}  # of variables, and of data sets, which may hold some

    def check_quickly(dtype, attr_def, param_name):
        if dtype not in attr_def.allowed_values.list.type:
            check(dtype, attr_def, param_name)

    def look_quickly_for_resources(op):
        return resources_of(op) if any(each.dtype in handles for each in op.inputs) else ()

    def use_quickly(graph):
        is_used = ops.get_default_graph() is graph and not context.executing_eagerly()
        return contextlib.nullcontext(graph) if is_used else use(graph)

    func_graph.FuncGraph.as_default = use_quickly
    auto_control_deps._get_resource_inputs = look_quickly_for_resources
    use_grappler(False)
    tf.debugging.disable_traceback_filtering()
    ops._create_c_op = functools.partial(ops._create_c_op, extract_traceback=False)
    op_def_library._SatisfiesTypeConstraint = check_quickly
    context.pywrap_tfe.TFE_ContextClearCaches = lambda handle: None


def lower_quickly() -> None:
    """Has JAX lower all programs in one context of MLIR; it would load its dialects for each, however small."""
    from jax._src.interpreters import mlir

    mlir.make_ir_context = functools.cache(mlir.make_ir_context)


def make_models_quickly() -> None:
    """Leaves out what Keras and keras-hub do again for each model, without a use for tests.

    keras-hub takes the bases of its class away, for models that are not made of symbolic layers, and Keras sets them
    again: Python looks at all subclasses each time, which are hundreds. For each object that Keras saves or loads it
    makes a layer, to see which attributes all layers have: it looks in its cache by another name than it writes. And it
    asks a file for each list of names in a layer, whether there are weights of it.
    """
    from keras.src.models import model
    from keras.src.models.functional import Functional
    from keras.src.saving import saving_lib
    from keras_hub.src.utils.pipeline_model import PipelineModel

    def has_path(store, path):
        if not hasattr(store, "paths"):
            store.paths = set()
            store.h5_file.visit(store.paths.add)
        return path in store.paths

    inject = model.inject_functional_model_class
    saving_lib.H5IOStore.has_path = has_path
    saving_lib.get_attr_skipset = functools.cache(saving_lib.get_attr_skipset)
    model.inject_functional_model_class = lambda cls: cls if Functional in cls.__mro__ else inject(cls)
    PipelineModel.__init__ = lambda self, *args, **named: super(PipelineModel, self).__init__(*args, **named)


def keep_quickly() -> None:
    """Keeps what a layer is given without a look at it where Keras and TensorFlow would find nothing to track.

    Each attribute, hundreds in an encoder, might be a variable or a layer, or a list of some: they look at every
    number, name and function, and at the lists in which a layer is about to keep track of all.
    """
    from keras import Layer, Metric, Variable, random
    from keras.src.utils import tracking

    tracked = (Layer, Metric, Variable, random.SeedGenerator, list, dict, set, tuple)
    if ON_TENSORFLOW:
        from tensorflow.python.trackable import base, data_structures

        tracked += (base.Trackable, data_structures.NoDependency)
    is_tracked, keep = functools.cache(lambda kind: issubclass(kind, tracked)), Layer.__setattr__

    def keep_quickly(layer, name, value):
        own = vars(layer)
        is_plain = "_tracker" in own and (
            not is_tracked(type(value))
            or (not own.get("_self_setattr_tracking", ON_TENSORFLOW) and not tracking.is_tracking_enabled())
        )
        (object.__setattr__ if is_plain else keep)(layer, name, value)

    Layer.__setattr__ = keep_quickly


def make_variables_quickly() -> None:
    """Has variables of one shape share a kernel of TensorFlow's: each has its own, for its name in errors."""
    from tensorflow.python.ops import resource_variable_ops

    own = resource_variable_ops.gen_resource_variable_ops

    def var_handle_op(*given, debug_name, **named):
        return own.var_handle_op(*given, debug_name="", **named)

    resource_variable_ops.gen_resource_variable_ops = with_quick(own, {"var_handle_op": var_handle_op})


def begin_quickly() -> None:
    """Keeps what weights of models begin with: TensorFlow draws them by many small steps, and tests repeat their seeds.

    A variable has a copy of its own as soon as it changes. JAX is quicker, and gives away what variables hold.
    """
    import tensorflow as tf
    from keras.src.initializers import constant_initializers, random_initializers

    def kept(make):
        quick = functools.lru_cache(2000)(make)

        def ask(shape, **how):
            is_same = tf.executing_eagerly() and isinstance(how.get("seed", 0), int) and math.prod(shape) < 10_000
            return (quick if is_same else make)(tuple(shape), **how)

        return ask

    for module, name, makes in (
        (random_initializers, "random", ["truncated_normal"]),
        (constant_initializers, "ops", ["zeros", "ones"]),
    ):
        own = getattr(module, name)
        setattr(module, name, with_quick(own, {make: kept(getattr(own, make)) for make in makes}))


def begin_without_programs() -> None:
    """Has NumPy draw what weights begin with, and make constants: JAX compiles a program for each shape and dtype."""
    import jax
    from keras.src.backend.jax.random import jax_draw_seed
    from keras.src.initializers import constant_initializers, random_initializers

    own = random_initializers.random

    def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
        key = jax_draw_seed(seed)
        if isinstance(key, jax.core.Tracer) or math.prod(shape) >= 10_000:
            return own.truncated_normal(shape, mean, stddev, dtype, key)
        drawn, size = np.random.default_rng(np.asarray(key)), math.prod(shape)
        # of twice as many nearly all lie within two deviations
        values = drawn.normal(size=2 * size + 50)
        values = values[abs(values) < 2][:size].reshape(shape)
        return jax.numpy.asarray((mean + stddev * values).astype(jax.numpy.dtype(dtype or "float32")))

    def constant(ask, fill):
        def constants(shape, dtype):
            if math.prod(shape) >= 10_000:  # it may be far larger, and never be computed
                return ask(shape, dtype)
            return jax.numpy.asarray(fill(shape, jax.numpy.dtype(dtype)))

        return constants

    ops = constant_initializers.ops
    quick = {"zeros": constant(ops.zeros, np.zeros), "ones": constant(ops.ones, np.ones)}
    constant_initializers.ops = with_quick(ops, quick)
    random_initializers.random = with_quick(own, {"truncated_normal": truncated_normal})


def feed_quickly() -> None:
    """Has arrays cut into batches by two steps of TensorFlow's, where Keras traces three functions for each call.

    What is shuffled comes in another order than Keras gives it.
    """
    import tensorflow as tf
    from keras.src import tree
    from keras.src.trainers.data_adapters import array_data_adapter, array_slicing

    adapter = array_data_adapter.ArrayDataAdapter
    make, options = adapter.get_tf_dataset, tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA

    def batches(arrays):
        columns = array_slicing.convert_to_sliceable(arrays._inputs, target_backend="tensorflow")
        is_dense = all(isinstance(column, np.ndarray | tf.Tensor) for column in tree.flatten(columns))
        if arrays._shuffle == "batch" or not is_dense:
            return make(arrays)
        rows = tf.data.Dataset.from_tensor_slices(tree.lists_to_tuples(columns))
        rows = rows.shuffle(arrays._num_samples) if arrays._shuffle else rows
        return rows.batch(arrays._batch_size, drop_remainder=not arrays._partial_batch_size).with_options(options)

    adapter.get_tf_dataset = batches


def look_quickly() -> None:
    """Keeps what Python finds out about classes and functions, which Keras and TensorFlow ask of each layer and value.

    That is what a protocol asks for, whenever something might be of it, and the arguments with which a layer is made,
    built and called.
    """
    from keras.src.layers import layer
    from keras.src.ops import operation

    def of_functions(ask):
        kept = weakref.WeakKeyDictionary()  # by the function of a method: a method would keep its layer

        def asked_once(asked):
            function = getattr(asked, "__func__", asked)
            if not isinstance(function, types.FunctionType):
                return ask(asked)
            answers = kept.setdefault(function, {})
            if (is_method := function is not asked) not in answers:
                answers[is_method] = ask(asked)
            return answers[is_method]

        return asked_once

    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)
    quick = {"signature": of_functions(inspect.signature), "getfullargspec": of_functions(inspect.getfullargspec)}
    operation.inspect = layer.inspect = with_quick(inspect, quick)


def shuffle_quickly() -> None:
    """Keeps where Grain's shuffle puts each index: of a set of ten it walks thousands of numbers, 3 ms, to find it."""
    from grain._src.python.dataset.transformations import shuffle

    places = functools.cache(shuffle.index_shuffle.index_shuffle)
    shuffle.index_shuffle = types.SimpleNamespace(index_shuffle=places)


def work_quickly() -> None:
    """Leaves out of the backend's and Keras's work what tests do not repay; commands as users start them do it."""
    if ON_TENSORFLOW:
        make_graphs_quickly()
        make_variables_quickly()
        begin_quickly()
        feed_quickly()
    else:
        lower_quickly()
        begin_without_programs()
    look_quickly()
    make_models_quickly()
    keep_quickly()
    shuffle_quickly()
