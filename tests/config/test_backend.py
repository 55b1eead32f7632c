"""What is set for the backend before it is imported."""

import os
import subprocess
import sys

import pytest

from rembed_keras.config.backend import SETTINGS

PRODUCTS = """
import gc
import threading
from rembed_keras.config.backend import import_framework
import_framework()
assert gc.isenabled() and gc.get_freeze_count() > 100_000  # what was imported, and is never looked through again
import tensorflow as tf
for _ in range(2):
    thread = threading.Thread(target=tf.einsum, args=("bij,bjk->bik", tf.ones((2, 1, 8)), tf.ones((2, 8, 8))))
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("overruled", [False, True])
def test_threads_share_no_products_of_onednn(overruled):
    environment = os.environ | {"ONEDNN_VERBOSE": "all", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024"}
    if not overruled:
        del environment["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]
    said = subprocess.run(
        [sys.executable, "-c", PRODUCTS], env=environment, capture_output=True, text=True, check=True
    ).stdout
    made, shared = said.count("primitive,create:cache_miss"), said.count("primitive,create:cache_hit")
    if not made:
        pytest.skip("this build of TensorFlow has no oneDNN")
    assert (made, shared) == ((1, 1) if overruled else (2, 0))


def test_a_command_settles_the_environment_before_jax_does():
    code = "import os; from rembed_keras.cli import main; main(); import jax; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "3"  # JAX would say 1, with which TensorFlow reports that there is no GPU
