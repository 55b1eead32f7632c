"""A single forward pass without compilation, which takes seconds."""

import keras
import numpy as np

EAGER = {"run_eagerly": True, "jit_compile": False}  # of `compile`
# before a single step: TensorFlow takes it as it is, and JAX would compile each of its operations by itself
QUICK = EAGER if keras.config.backend() == "tensorflow" else {}


def forward(model, inputs):
    """The model's outputs as NumPy arrays."""
    return keras.tree.map_structure(np.asarray, model(inputs, training=False))
