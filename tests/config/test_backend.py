"""What is set for the backend before it is imported."""

import importlib
import json
import os
import subprocess
import sys

import pytest

from rembed_keras import config
from rembed_keras.config import backend, execution
from rembed_keras.config.backend import SETTINGS, TRAINING
from rembed_keras.errors import UserError

PRODUCTS = """
import gc
import os
import sys
import threading
from rembed_keras.config.backend import import_framework
import_framework()
assert gc.isenabled() and gc.get_freeze_count() > 100_000  # what was imported, and is never looked through again
from rembed_keras.training import evaluate, run
assert not {"matplotlib", "sklearn", "scipy", "jax"} & {*sys.modules}  # nobody asked for them
import scipy, jax  # they can be imported all the same
import tensorflow as tf
for is_overruled in (True, False):
    print("next", flush=True)
    if os.fork():
        os.wait()
        continue
    if not is_overruled:
        del os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]
        import_framework()
    for _ in range(2):
        thread = threading.Thread(target=tf.einsum, args=("bij,bjk->bik", tf.ones((2, 1, 8)), tf.ones((2, 8, 8))))
        thread.start()
        thread.join()
    sys.exit()
"""

PAGES = """
import os
import resource
from rembed_keras.config.backend import TRAINING, import_framework, settle_environment
import_framework()
import tensorflow as tf

def pages(steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        tf.ones([2**24])
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

for is_settled in (False, True):
    if not os.fork():
        settle_environment(TRAINING if is_settled else {})
        pages(1)
        print(pages(4), flush=True)
        os._exit(0)
    os.wait()
"""


def test_threads_share_no_products_of_onednn_unless_the_environment_overrules_it():
    """In forks of one process, which has computed nothing: oneDNN reads the environment when it first computes."""
    environment = os.environ | {"ONEDNN_VERBOSE": "all", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024"}
    done = subprocess.run([sys.executable, "-c", PRODUCTS], env=environment, capture_output=True, text=True, check=True)
    _, *said = done.stdout.split("next\n")
    made, shared = ([each.count(f"primitive,create:cache_{what}") for each in said] for what in ("miss", "hit"))
    if not any(made):
        pytest.skip("this build of TensorFlow has no oneDNN")
    assert [*zip(made, shared, strict=True)] == [(1, 1), (2, 0)]


def test_a_command_settles_the_environment_before_jax_does():
    code = "import os; from rembed_keras.cli import main; main(); import jax; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "3"  # JAX would say 1, with which TensorFlow reports that there is no GPU


def test_training_keeps_the_memory_of_a_step_for_the_next():
    environment = {name: value for name, value in os.environ.items() if name not in TRAINING}
    environment["TF_ENABLE_ONEDNN_OPTS"] = "0"  # whose allocator keeps it too
    done = subprocess.run([sys.executable, "-c", PAGES], env=environment, capture_output=True, text=True, check=True)
    usual, kept = map(int, done.stdout.split())
    assert kept < 100 and kept <= usual  # which is 65,000


@pytest.mark.parametrize("train", [config.run, lambda recipe: config.benchmark(recipe, "made", 2)])
def test_a_run_and_a_benchmark_settle_how_training_allocates(train, monkeypatch):
    seen = []
    monkeypatch.setattr(
        execution, "_run", lambda *given: seen.append({name: os.environ.get(name) for name in TRAINING})
    )
    for name in TRAINING:
        monkeypatch.delenv(name, raising=False)
    train(config.load("recipes/quickstart.gin"))
    monkeypatch.setenv("TF_CPU_ALLOCATOR_USE_BFC", "false")
    train(config.load("recipes/quickstart.gin"))
    assert seen == [TRAINING, TRAINING | {"TF_CPU_ALLOCATOR_USE_BFC": "false"}]


@pytest.mark.parametrize("train", [config.run, lambda recipe: config.benchmark(recipe, "made", 2)])
def test_how_training_allocates_is_settled_before_an_optimizer_is_made_to_count_its_slots(train, monkeypatch):
    """TensorFlow reads it at its first operation, which may be one of an optimizer's slots."""
    seen = []
    monkeypatch.setattr(execution, "_run", lambda *given: None)
    monkeypatch.setattr(
        execution, "ledger_of", lambda recipe: seen.append({name: os.environ.get(name) for name in TRAINING})
    )
    for name in TRAINING:
        monkeypatch.delenv(name, raising=False)
    train(config.load("recipes/quickstart.gin"))
    assert seen == [TRAINING]


@pytest.mark.parametrize(
    ("chosen", "named", "hides_jax"), [("jax", "", False), ("tensorflow", "", True), ("jax", "tensorflow", True)]
)
def test_the_backend_is_that_of_kerass_file_where_the_environment_names_none(
    tmp_path, monkeypatch, chosen, named, hides_jax
):
    (tmp_path / "keras.json").write_text(json.dumps({"backend": chosen}))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", named)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    seen = []
    monkeypatch.setattr(importlib, "import_module", lambda name: seen.append("jax" in sys.modules))
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    backend.import_framework()
    assert seen == [hides_jax] * 2 and "TF_USE_LEGACY_KERAS" not in os.environ


def test_a_backend_of_kerass_file_that_cannot_be_used_is_refused(tmp_path, monkeypatch):
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND")
    with pytest.raises(UserError, match=r"^the backend of .*keras.json, torch, cannot be used: install"):
        backend.import_framework()
