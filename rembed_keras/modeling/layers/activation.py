"""GELU in its two forms, and ReLU."""

import math
from functools import partial
from typing import get_args

import keras
from keras import ops

from rembed_keras.errors import UserError
from rembed_keras.modeling.sizes import Activation


def activation_function(name):
    """The activation of a name.

    Args:
        name: "gelu", with the error function, as in PyTorch's RemBERT; or "gelu_tanh", the approximation of the
            original TensorFlow code. The two differ by up to 5e-3 after 32 layers. Or "relu", MobileBERT's.

    Returns:
        A function from a tensor to a tensor of the same shape.

    Raises:
        ValueError: for any other name.

    >>> float(activation_function("gelu")(0.0))
    0.0
    """
    if name not in get_args(Activation):
        raise UserError(f"activation is {name!r}; it can be 'gelu' (exact), 'gelu_tanh' (approximate) or 'relu'")
    return FUNCTIONS[name]


def _gelu(x):
    """GELU by erf, as PyTorch's; by erfc, as Keras's, it takes XLA on CPUs three times as long to compute.

    Where x is negative 1 + erf(x) has few digits left, of half precision none: that is computed in float32.
    """
    x = ops.convert_to_tensor(x)
    wide = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    return ops.cast(0.5 * wide * (1.0 + ops.erf(wide * math.sqrt(0.5))), x.dtype)


FUNCTIONS = {"gelu": _gelu, "gelu_tanh": partial(keras.activations.gelu, approximate=True), "relu": ops.relu}
