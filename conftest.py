"""Shared by all tests and doctests: TensorFlow without logs and with two devices, and one strategy over them.

TensorFlow fixes its devices when it first runs something, and a second strategy in one process can collide with the
first; so both are made once, here. It stands at the root of the repository because the examples in the package's
docstrings are tests too.
"""

import functools
import gc
import importlib.util
import inspect
import math
import os
import sys
import types
import typing
import weakref
from importlib import metadata

from rembed_keras.config import backend

SETTINGS = {
    "KERAS_BACKEND": "tensorflow",  # whatever the user's ~/.keras says
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # two devices for JAX; and little optimization by XLA, since tests compile much and compute little: compiling is
    # half of their time on JAX, and two thirds with newer emitters. The flag that leaves those out ends the process
    # with JAX 0.11, and a TensorFlow of before JAX 0.10 may not know it. A program is compiled in one piece
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    " --xla_cpu_parallel_codegen_split_count=1"
    + " --xla_cpu_use_fusion_emitters=false"
    * bool(importlib.util.find_spec("jax") and metadata.version("jaxlib").startswith("0.10.")),
    # there is a worker for each core; threads of NumPy's would spin while they wait for one
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
backend.settle_environment(SETTINGS)

import numpy as np  # noqa: E402 - it reads them
import pytest  # noqa: E402

gc.set_threshold(100_000, 20, 50)  # most of what is imported, collected or traced stays; see the fixture below
ON_TENSORFLOW = os.environ["KERAS_BACKEND"] == "tensorflow"


def split_cpu(devices: int = 2) -> None:
    """Makes logical devices of the CPU, for MirroredStrategy."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, parts)


def use_grappler(is_used: bool) -> None:
    """Has TensorFlow optimize graphs before it first runs them, or not."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not is_used})


def make_graphs_quickly() -> None:
    """Leaves out of TensorFlow's work what few steps do not repay, a third of the time of a test that trains.

    That is Grappler, as most of XLA's optimization above; the Python stack of each operation, which a graph copies
    several times, and which is deep under pytest; what would shorten it in errors; the names of all dtypes that each
    operation might have had; and that all kernels are thrown away whenever a seed is set.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.framework import op_def_library, ops

    check = op_def_library._SatisfiesTypeConstraint

    def check_quickly(dtype, attr_def, param_name):
        if dtype not in attr_def.allowed_values.list.type:
            check(dtype, attr_def, param_name)

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
    makes a layer, to see which attributes all layers have: it looks in its cache by another name than it writes.
    """
    from keras.src.models import model
    from keras.src.models.functional import Functional
    from keras.src.saving import saving_lib
    from keras_hub.src.utils.pipeline_model import PipelineModel

    inject = model.inject_functional_model_class
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
        own = vars(getattr(module, name))
        setattr(module, name, types.SimpleNamespace(**own | {make: kept(own[make]) for make in makes}))


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
    operation.inspect = layer.inspect = types.SimpleNamespace(**vars(inspect) | quick)


def shuffle_quickly() -> None:
    """Keeps where Grain's shuffle puts each index: of a set of ten it walks thousands of numbers, 3 ms, to find it."""
    from grain._src.python.dataset.transformations import shuffle

    places = functools.cache(shuffle.index_shuffle.index_shuffle)
    shuffle.index_shuffle = types.SimpleNamespace(index_shuffle=places)


def work_quickly() -> None:
    """Leaves out of the backend's and Keras's work what tests do not repay; commands as users start them do it."""
    if ON_TENSORFLOW:
        make_graphs_quickly()
        begin_quickly()
    else:
        lower_quickly()
    look_quickly()
    make_models_quickly()
    keep_quickly()
    shuffle_quickly()


def pytest_configure(config):
    """Imports the backend as commands do, with less than Keras would, in workers; a few tests may need none."""
    if hasattr(config, "workerinput"):
        backend.import_framework()


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(items):
    """Marks the tests that need peers, and spreads files with slow tests over the first two thirds of all.

    So no worker is left with one, and seldom do all wait at once, for processes that tests start and kill.
    """
    for item in items:
        if "peers" in getattr(item, "fixturenames", ()):
            item.add_marker("peers")
    slow = dict.fromkeys(item.path for item in items if item.get_closest_marker("slow"))
    others = dict.fromkeys(item.path for item in items if item.path not in slow)
    gap = 2 * len(others) / (3 * max(len(slow), 1))
    places = {path: float(number) for number, path in enumerate(others)}
    places |= {path: gap * number - 0.5 for number, path in enumerate(slow)}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish(session):
    """Prepares the backend before the first test, unless no test has anything to do with it."""
    gc.freeze()
    gc.get_freeze_count = lambda: 1  # or more: to count them takes a tenth of a second, and nobody asks how many
    asked = any("mirrored" in getattr(item, "fixturenames", ()) for item in session.items)
    if asked or os.environ["KERAS_BACKEND"] in sys.modules:
        if ON_TENSORFLOW:
            split_cpu()
        work_quickly()


@pytest.fixture(scope="session")
def mirrored():
    """The one MirroredStrategy of this process: two replicas on two halves of the CPU."""
    if not ON_TENSORFLOW:
        pytest.skip("strategies are TensorFlow's")
    from rembed_keras.training.distributed.replicated import mirrored as strategy

    return strategy()


@pytest.fixture
def as_in_a_process():
    """Optimizes graphs, for runs in this process that end in the bits of runs in others."""
    use_grappler(True)
    yield
    use_grappler(False)


@pytest.fixture(scope="session")
def users_environment():
    """The environment variables of whoever runs a command without tests: not those above, nor what a venv sets."""
    tests = {*SETTINGS, *backend.SETTINGS, *backend.TRAINING, "PYTHONPATH", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in tests}


@pytest.fixture(autouse=True, scope="module")
def _freeze_garbage_of_a_module():
    """Graphs are never freed, gigabytes of them; each full garbage collection over them takes seconds."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _numpy_in_examples(doctest_namespace):
    doctest_namespace["np"] = np
