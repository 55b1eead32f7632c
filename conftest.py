"""Shared by all tests and doctests: TensorFlow without logs and with two devices, and one strategy over them.

TensorFlow fixes its devices when it first runs something, and a second strategy in one process can collide with the
first; so both are made once, here. It stands at the root of the repository because the examples in the package's
docstrings are tests too.
"""

import gc
import importlib.util
import os
import sys
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

from tests.quickly import ON_TENSORFLOW, use_grappler, work_quickly  # noqa: E402

gc.set_threshold(100_000, 20, 50)  # most of what is imported, collected or traced stays; see the fixture below


def split_cpu(devices: int = 2) -> None:
    """Makes logical devices of the CPU, for MirroredStrategy."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, parts)


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
