"""Variables that devices of JAX keep in parts, whole where they are used and nowhere else.

Left to itself, a compiler gathers a variable once a step and keeps it until its gradient is taken, so that at the
end of the forward pass all of them are there, on every device; or it exchanges hidden states instead. Here a layer's
variables are gathered when the layer is computed, forgotten, and gathered again for the backward pass, for which only
products are kept; hidden states stay where their rows are, and gradients go where the parts are.
Source: Rajbhandari et al. 2020 (ZeRO), stage 3.
"""

from collections.abc import Callable
from typing import Any

import keras

from rembed_keras import compat
from rembed_keras.modeling.replicas import row_groups

PRODUCTS = ("dot_general", "pallas_call")  # JAX's primitives of matrix products, and of kernels that have some


def in_parts(variables: list) -> list:
    """Those of `variables` that the devices of the present distribution keep in parts, and gather to use them."""
    spread: Any = keras.distribution.distribution()
    is_gathered = getattr(spread, "is_gathered", None)
    return [] if is_gathered is None else [each for each in variables if is_gathered(each)]


def gathering(layer: keras.layers.Layer, function: Callable) -> Callable:
    """A function of hidden states that reads a layer's variables, with those in parts gathered while it is computed.

    Args:
        layer: whose variables, those of its sublayers included, `function` reads.
        function: of a tensor [B, ...], to another; it may add losses to the sublayers, and draw random numbers of them.

    Returns:
        The function itself where nothing is in parts.
    """
    scope = compat.stateless_scope()
    if scope is None or not in_parts(layer.variables):
        return function
    import jax

    mapped = [each for each in layer.variables if scope.get_current_value(each) is not None]
    dtypes = _dtypes_of_use(layer, in_parts(mapped))
    moved: list = []

    def hold(variables, values):
        for variable, value in zip(variables, values, strict=True):
            scope.add_update((variable, value))

    def apply(hidden, values):
        """What comes out, losses that were added, and new values of variables, which `moved` lists."""
        given = [
            _gathered(variable, value, dtypes[id(variable)]) if id(variable) in dtypes else value
            for variable, value in zip(mapped, values, strict=True)
        ]
        hold(mapped, given)
        outcome, losses = compat.taking_losses(layer, lambda: _by_rows(function(_by_rows(hidden))))
        pairs = zip(mapped, given, strict=True)
        moved[:] = [each for each, value in pairs if scope.get_current_value(each) is not value]
        return outcome, losses, [scope.get_current_value(each) for each in moved]

    def applied(hidden):
        values = [scope.get_current_value(each) for each in mapped]
        outcome, losses, changed = jax.checkpoint(apply, policy=_is_kept)(hidden, values)
        hold(mapped, values)
        hold(moved, changed)
        for loss in losses:
            layer.add_loss(loss)
        return outcome

    return applied


def _gathered(variable, value, dtype):
    """The value of a variable in parts, on every device, in the dtype that it is used in; its gradient is in parts."""
    import jax

    layout = compat.layout_of(variable)
    own, steps = layout.backend_layout, layout.backend_steps
    whole = jax.sharding.NamedSharding(own.mesh, jax.sharding.PartitionSpec())
    place = jax.lax.with_sharding_constraint

    def gather(part):
        return place(place(part.astype(dtype), own), whole)

    def scatter(_, gradient):
        shape = gradient.shape
        if layout.cut < 2:  # a matrix, as the product has it: compilers cut the sums of few others as they are made
            gradient = gradient.reshape(shape[0], -1)
        # Along a grid of chips, one side at a time. Elsewhere summed first: a product that is asked for in parts may
        # exchange hidden states for it.
        for step in steps if len(steps) > 1 else (whole, own):
            gradient = place(gradient, step)
        return (gradient.reshape(shape).astype(value.dtype),)

    with_gradient_in_parts = jax.custom_vjp(gather)
    with_gradient_in_parts.defvjp(lambda part: (gather(part), None), scatter)
    return with_gradient_in_parts(value)


def _dtypes_of_use(layer, variables):
    """By the id of each variable the dtype that the layer which owns it computes in, or its own if that is no float.

    What a layer casts a variable to is kept for the backward pass, so it must be cast before it is gathered.
    """
    dtypes = {id(each): each.dtype for each in variables}
    for part in compat.layers_of(layer):  # owners come after the layers that they are in
        for each in part.variables:
            if id(each) in dtypes and each.dtype.startswith(("float", "bfloat")) and part.autocast:
                dtypes[id(each)] = part.compute_dtype
    return dtypes


def _by_rows(tensor):
    """A tensor [B, ...] of which each device has its rows, and of the gradient too; as it is if it cannot be shared."""
    if row_groups(tensor.shape[0])[0] == 1:
        return tensor
    spread: Any = keras.distribution.distribution()
    return keras.distribution.distribute_tensor(tensor, spread.get_data_layout(tensor.shape))


def _is_kept(primitive, *_, **__):
    """Whether the backward pass keeps what a primitive results in: products; the rest is computed from them again.

    Kept whole, what is between products would take five times as much memory; gathered variables must not be kept.
    """
    return primitive.name in PRODUCTS
