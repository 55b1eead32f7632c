"""A single forward pass: without compilation, which takes seconds, on TensorFlow; on JAX as one program.

JAX would compile each operation by itself, a hundred of them, at the first pass of each shape.
"""

import keras
import numpy as np

EAGER = {"run_eagerly": True, "jit_compile": False}  # of `compile`
# before a single step: TensorFlow takes it as it is, and JAX would compile each of its operations by itself
QUICK = EAGER if keras.config.backend() == "tensorflow" else {}


def forward(model, inputs):
    """The model's outputs as NumPy arrays."""
    return at_once(lambda given: model(given, training=False), inputs, owner=model)


def encode_at(encoder, inputs, positions):
    """What `Encoder.encode_at` gives, as a NumPy array."""
    return at_once(lambda given: encoder.encode_at(*given), (inputs, positions), owner=encoder, name="encode_at")


def at_once(compute, given, owner=None, name="call"):
    """What a function makes of arrays, as NumPy arrays; on JAX by one program, which its owner keeps.

    Args:
        compute: the function.
        given: a structure of arrays, its argument.
        owner: the model whose variables it reads.
        name: of the function, of which an owner may have several.
    """
    if keras.config.backend() != "jax":
        return keras.tree.map_structure(np.asarray, compute(given))
    import jax

    variables = [] if owner is None else owner.variables
    programs = {} if owner is None else vars(owner).setdefault("programs_of_tests", {})
    key = name, *map(id, variables)  # what quantizes a model, or adds to it, changes them

    def run(values, arrays):
        with keras.StatelessScope([*zip(variables, values, strict=True)]):
            return compute(arrays)

    program = programs.setdefault(key, jax.jit(run))
    return keras.tree.map_structure(np.asarray, program([variable.value for variable in variables], given))
