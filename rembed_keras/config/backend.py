"""The backend that Keras runs on, imported without the messages it prints."""

import contextlib
import gc
import importlib
import importlib.util
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rembed_keras.errors import UserError

SETTINGS = {  # which the environment may overrule
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # oneDNN keeps its programs of matrix products for all threads, and takes two for one whose strides differ where a
    # side is 1: if two threads make them at once, one writes past the end of memory that was measured for the other.
    # So it is in TensorFlow 2.21 without XLA, with one head or one query; TensorFlow itself keeps them for each thread,
    # so that nothing is lost
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0",
}
# and for training. On CPUs without AVX-512 TensorFlow takes the memory of a step from the system and gives it back at
# once, so that each page is cleared again for the next step: a tenth or more of its time. The allocator that it prefers
# where there is a GPU keeps memory for the next step, by default 64 GB at most
TRAINING = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(2**24)}
# the backends, and what Keras and TensorFlow import wherever it is installed and do without elsewhere, for galleries of
# images, models of scikit-learn, sparse matrices and programs of JAX's: a third of what a command waits for
BACKENDS = {"tensorflow": ("matplotlib", "sklearn", "scipy", "jax"), "jax": ("matplotlib", "sklearn")}


def settle_environment(settings: Mapping[str, str] = SETTINGS) -> None:
    """Sets what frameworks read of the environment when they are imported; JAX, for one, would set some itself.

    Args:
        settings: values by name, which the environment may overrule.
    """
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def import_framework() -> None:
    """Imports Keras on its backend; what they print meanwhile is suppressed, unless the import fails.

    They go without what they have no need of, see `BACKENDS`, which can be imported afterwards all the same.

    Raises:
        UserError: for a backend that this package does not run on.
    """
    backend, name = _choice()
    if backend not in BACKENDS or importlib.util.find_spec(backend) is None:
        raise UserError(f"{name} cannot be used: install and name one of {', '.join(BACKENDS)}")
    settle_environment()
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # by which others ask for a Keras that is not installed along
    with suppressed_stderr(), _without_garbage_collection(), _absent(BACKENDS[backend]):
        importlib.import_module("keras")
        importlib.import_module("keras_hub")


def replicas_under(strategies: Iterable[Any]) -> int:
    """The least number of rows that the devices here can share evenly, whichever of some strategies they are under.

    Args:
        strategies: by name; see `distributed.place`. The backend is imported unless all of them are "one_device".

    Raises:
        UserError: for a strategy that the backend does not have or the environment does not allow.

    >>> replicas_under(["one_device"])
    1
    """
    several = {*strategies} - {"one_device", None}
    if not several:
        return 1
    settle_environment(TRAINING)
    import_framework()
    from rembed_keras.training.distributed.strategies import place

    return math.lcm(*(place(each, 0).replicas for each in sorted(several)))


def _choice():
    """The backend that Keras will take, which its file says where the environment does not, and what to call it."""
    if chosen := os.environ.get("KERAS_BACKEND"):
        return chosen, f"KERAS_BACKEND {chosen}"
    home = Path("~").expanduser()
    folder = os.environ.get("KERAS_HOME") or Path(home if os.access(home, os.W_OK) else "/tmp") / ".keras"
    path, chosen = Path(folder).expanduser() / "keras.json", next(iter(BACKENDS))
    with contextlib.suppress(OSError, ValueError):  # in which Keras takes its default too
        chosen = json.loads(path.read_text()).get("backend", chosen)
    return chosen, f"the backend of {path}, {chosen},"


@contextlib.contextmanager
def _absent(packages):
    """A block that cannot import what has not been imported of some packages."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # None, which importlib knows as absent
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def _without_garbage_collection():
    """What is imported stays: to look through it for garbage, then and ever again, takes a fifth of the import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def suppressed_stderr():
    """Shows what is written to stderr, by C code too, only if the block fails."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(stderr, said.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
