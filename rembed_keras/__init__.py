"""Pre-train multilingual encoders, and know what every part of them costs.

The names of `__init__.pyi` are imported when they are first asked for, so that what needs no framework loads none.
Where TensorFlow, which Keras would take, is not installed and JAX is, KERAS_BACKEND is set to it, unless it is set.
"""

import os
from importlib.util import find_spec

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if find_spec("tensorflow") is None and find_spec("jax") is not None:
    os.environ.setdefault("KERAS_BACKEND", "jax")
