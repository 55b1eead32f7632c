"""The package where JAX is installed and TensorFlow is not, as on many machines with a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITHOUT = "import sys; sys.modules['tensorflow'] = sys.modules['tensorflow_text'] = None;"


def without_tensorflow(code, *arguments, **options):
    """What a process comes to that runs code where TensorFlow cannot be imported, and nobody names a backend."""
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("named", [None, "torch"])
def test_jax_is_the_backend_unless_another_is_named(named):
    name = f"import os; os.environ['KERAS_BACKEND'] = {named!r};" if named else "import os;"
    code = f"{name} import rembed_keras; print(os.environ['KERAS_BACKEND'], 'keras' in sys.modules)"
    done = without_tensorflow(WITHOUT + code)
    assert done.stdout == f"{named or 'jax'} False\n", done.stderr  # it is set before Keras reads it
