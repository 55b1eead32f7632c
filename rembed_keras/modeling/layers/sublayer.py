"""What attention and feed-forward sublayers have in common: they add to the hidden states, and host what is added.

Attention and dense layers are Keras's own, so that LoRA, quantization and mixed precision work on them.
"""

import math
import re
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.errors import UserError

Place: TypeAlias = Literal["after", "beside"]
PLACES = get_args(Place)
MODES = ("int8", "int4", "float8")  # in which layers can be quantized and read again
LEARNING = (None, "float8")  # modes in which a step moves matrices: of float8 they are rounded where they are used
HOSTING = ("int8", "float8")  # modes in which a projection can host changes: int4 has several numbers to a byte


def pick(values, at):
    """Values of some tokens: [B, S, ...] at int [B, P] -> [B, P, ...]; the values themselves if `at` is None.

    >>> ops.convert_to_numpy(pick(np.array([[5, 6, 7]]), np.array([[2, 0]]))).tolist()
    [[7, 5]]
    """
    if at is None:
        return values
    return ops.take_along_axis(values, ops.reshape(at, (*ops.shape(at), *[1] * (len(values.shape) - 2))), axis=1)


class Sublayer(keras.layers.Layer):
    """What adds to the hidden states: attention or a feed-forward pair. It hosts layers that fine-tuning adds.

    Attributes:
        after: layers from [B, S, D] to [B, S, D] that change what is added, one after the other; none at first.
        beside: layers from [B, S, D] to [B, S, D] of what the sublayer reads, added to what it adds; none at first.
    """

    after: Sequence[keras.layers.Layer] = ()
    beside: Sequence[keras.layers.Layer] = ()

    @property
    def projections(self) -> dict[str, keras.layers.Layer]:
        """The matrices, by what they do: "query", "key", "value" and "output", or "up" and "down"; none by default.

        Of several that do the same each has a prefix: "0/up". Fine-tuning methods find here what they change.
        """
        return {}

    @property
    def adding(self):
        """The matrix whose products are added to the hidden states."""
        return next(matrix for name, matrix in self.projections.items() if name in ("output", "down"))

    def host(self, layer, place: str, hidden_shape) -> None:
        """Builds a layer from [B, S, D] to [B, S, D] as a part of this sublayer, which is built already.

        Args:
            layer: the layer, not built.
            place: "after" or "beside".
            hidden_shape: of the hidden states.

        Raises:
            UserError: for another place, or if a layer of that name is there.
        """
        if place not in PLACES:
            raise UserError(f"a place is {place!r}; it can be one of {', '.join(PLACES)}")
        _host(self, place, layer, hidden_shape)

    def adapted(self, branch, read):
        """What is added to the hidden states, with the layers that are hosted: [B, S, D] twice -> [B, S, D]."""
        for layer in self.beside:
            branch = branch + layer(read)
        for layer in self.after:
            branch = layer(branch)
        return branch


class ProjectionChange(keras.layers.Layer):
    """What changes the outputs of a projection, and can be folded into its matrix; it starts as the identity.

    A projection is a dense layer of I features in and O out; heads are flattened. It is built of the shapes of both.
    """

    def call(self, inputs, outputs):
        """What the projection gives now: of what it reads [..., I] and gave [..., O], [..., O]."""
        raise NotImplementedError

    def fold(self, kernel, bias):
        """The projection's matrix [I, O] and bias, [O] or None, with the change in them."""
        raise NotImplementedError

    def clear(self) -> None:
        """Makes it the identity, from which it can learn again."""
        raise NotImplementedError


def _host(owner, place, layer, *shapes):
    there = [*getattr(owner, "after", ()), *getattr(owner, "beside", ()), *getattr(owner, "changes", ())]
    if layer.name in [each.name for each in there]:
        raise taken(owner.path, layer.name)
    with keras.name_scope(owner.name, caller=owner):
        layer.build(*shapes)
    with compat.unlocked(owner):
        setattr(owner, place, [*getattr(owner, place, ()), layer])


def taken(owner: str, name: str) -> UserError:
    """The error where a sublayer or a projection, by its name, has a layer of the name of what is added.

    >>> print(taken("block_0/attention/query", "lora"))
    block_0/attention/query has 'lora' already: a model takes a method once, or under another name
    """
    return UserError(f"{owner} has {name!r} already: a model takes a method once, or under another name")


def move_hosted(sublayer, place: str, name: str, at: int) -> None:
    """Moves a layer that a sublayer or one of its projections hosts to another place among those that are with it.

    Args:
        sublayer: it has them, or has the projection.
        place: "after", "beside" or the name of a projection.
        name: of the layer.
        at: its number from then on.
    """
    owner, kind = (sublayer, place) if place in PLACES else (sublayer.projections[place], "changes")
    layers = [*getattr(owner, kind)]
    moved = next(layer for layer in layers if layer.name == name)
    layers.remove(moved)
    layers.insert(at, moved)
    with compat.unlocked(owner):
        setattr(owner, kind, layers)


def host_on(dense, change: ProjectionChange) -> None:
    """Builds a change as a part of a projection, which is built already; several are applied in their order.

    Raises:
        UserError: if a change of that name is there, or the matrix is packed, several numbers to a byte.
    """
    check_bits(dense.path, dense.quantization_mode, change.name)
    kernel = own_kernel(dense)
    width = inner_axes(dense)
    shapes = [(None, None, math.prod(axes)) for axes in (kernel.shape[:width], kernel.shape[width:])]
    _host(dense, "changes", change, *shapes)


def check_bits(matrix: str, mode: str | None, change: str) -> None:
    """Checks that a matrix can host a change.

    Args:
        matrix: its name.
        mode: in which it is quantized, or None.
        change: its name.

    Raises:
        UserError: if the matrix is packed, several numbers to a byte.
    """
    if mode not in (None, *HOSTING):
        raise UserError(f"{matrix} is in {mode}: {change} needs int8, or more bits")


def check_mode(layer, mode: str) -> None:
    """Checks that a layer can be quantized in a mode: Keras has no int8 in float16, and advises "mixed_float16" there.

    Raises:
        UserError: for int8 of a layer that computes in float16.
    """
    if mode == "int8" and layer.compute_dtype == "float16":
        raise UserError(f"{layer.path} computes in float16, which has no int8: open the model in 'mixed_bfloat16'")


def changes_on(dense) -> list[ProjectionChange]:
    """The changes that a projection hosts, in the order in which they apply."""
    return [*getattr(dense, "changes", ())]


def own_kernel(dense):
    """A projection's own matrix as it is stored, whatever Keras's LoRA adds to `kernel`."""
    return next(variable for variable in dense.weights if variable.name == "kernel")


def inner_axes(dense) -> int:
    """How many of the axes of a projection's matrix are those of what it reads; they come first.

    >>> inner_axes(keras.layers.EinsumDense("bshk,hkd->bsd", (None, 8)))
    2
    """
    if not isinstance(dense, keras.layers.EinsumDense):
        return 1
    _, kernel, outputs = re.split(",|->", dense.equation)
    return sum(axis not in outputs for axis in kernel)


def project(dense, tokens):
    """What a projection makes of tokens, with the changes that it hosts: [B, S, ...] -> [B, S, ...].

    TensorFlow's gradient of an EinsumDense's kernel is one matrix for each row, and then their sum: of one row it is
    one product.

    >>> dense = keras.layers.EinsumDense("bsd,dhk->bshk", (None, 4, 5))
    >>> tuple(project(dense, np.ones((2, 3, 8), "float32")).shape)
    (2, 3, 4, 5)
    """
    made = _product(dense, tokens)
    changes = changes_on(dense)
    if not changes:
        return made
    rows, heads = ops.shape(made)[:2], made.shape[2:]
    inputs = ops.reshape(tokens, (*rows, math.prod(tokens.shape[2:])))  # [B, S, ...] -> [B, S, I]
    outputs = ops.reshape(made, (*rows, math.prod(heads)))  # [B, S, ...] -> [B, S, O]
    for change in changes:
        outputs = change(inputs, outputs)
    return ops.reshape(outputs, (*rows, *heads))


def _product(dense, tokens):
    if keras.config.backend() != "tensorflow" or not isinstance(dense, keras.layers.EinsumDense):
        return dense(tokens)
    made = dense(ops.reshape(tokens, (1, -1, *tokens.shape[2:])))
    return ops.reshape(made, (*ops.shape(tokens)[:2], *made.shape[2:]))
