"""Layers that are added to an encoder to learn a task while its own weights stay, where they stand, and how they fold.

They start as the identity, so that a task starts from what pre-training left. Adapters stand after a sublayer
or beside it and stay there; changes of projections, as LoRA, can be folded into the matrices that they change.
Sublayers that several blocks share are changed once, for all of these blocks.
"""

import math
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, get_args

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.errors import UserError
from rembed_keras.modeling.layers.activation import activation_function
from rembed_keras.modeling.layers.sublayer import LEARNING, PLACES, Place, changes_on, host_on, inner_axes, own_kernel
from rembed_keras.modeling.layers.tables import initializer
from rembed_keras.modeling.saving.filling import Values
from rembed_keras.modeling.saving.naming import names_of_weights

Projection: TypeAlias = Literal["query", "key", "value", "output", "up", "down"]
PROJECTIONS = get_args(Projection)
ADAPTERS = {"after": "adapter", "beside": "parallel_adapter"}  # names by place


@keras.saving.register_keras_serializable(package="rembed_keras")
class BottleneckAdapter(keras.layers.Layer):
    """A narrow feed-forward pair, whose output is 0 at first.

    Args:
        width: m, of the bottleneck.
        activation: "gelu", "gelu_tanh" or "relu".
        residual: whether its input is added to its output, as after a sublayer; not beside one.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call argument: [B, S, D]. Returns [B, S, D]. It has 2Dm + D + m parameters. The second matrix starts as zeros, so
    that nothing changes before something is learned; in the paper it is merely small.
    Source: Houlsby et al. 2019, section 2.1.

    >>> adapter = BottleneckAdapter(width=2)
    >>> ops.convert_to_numpy(adapter(np.array([[[1.0, 2.0, 3.0, 4.0]]]))).tolist()
    [[[1.0, 2.0, 3.0, 4.0]]]
    >>> adapter.count_params() == 2 * 4 * 2 + 4 + 2
    True
    """

    def __init__(self, width, activation="gelu", residual=True, name="adapter", trainable=True, dtype=None):
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self.width = width
        self.residual = residual
        self._activation_name = activation
        self.activation = activation_function(activation)
        self.down = keras.layers.Dense(width, kernel_initializer=initializer(), name="down", dtype=dtype)

    def build(self, hidden_shape):
        self.up = keras.layers.Dense(hidden_shape[-1], kernel_initializer="zeros", name="up", dtype=self.dtype_policy)
        self.down.build(hidden_shape)
        self.up.build((*hidden_shape[:-1], self.width))

    def call(self, hidden):
        made = self.up(self.activation(self.down(hidden)))  # [B, S, D] -> [B, S, m] -> [B, S, D]
        return hidden + made if self.residual else made

    def get_config(self):
        own = {"width": self.width, "activation": self._activation_name, "residual": self.residual}
        return super().get_config() | own


def sublayers(blocks) -> list:
    """The sublayers of blocks, each of them once."""
    return [*dict.fromkeys(sublayer for block in blocks for sublayer in (block.attention, block.feed_forward))]


def insert_adapters(encoder, blocks, width: int, place: Place = "after") -> list:
    """Puts an adapter after each sublayer, before the residual sum, or beside it.

    Args:
        encoder: an `Encoder`.
        blocks: some of its blocks.
        width: m, of the bottlenecks.
        place: "after" or "beside".

    Returns:
        The variables of the adapters.

    Raises:
        UserError: if a sublayer has an adapter there.
    """
    if place not in PLACES:
        raise UserError(f"an adapter's place is {place!r}; it can be one of {', '.join(PLACES)}")
    variables = []
    for sublayer in sublayers(blocks):
        activation, dtype = encoder.arguments["activation"], sublayer.dtype_policy
        adapter = BottleneckAdapter(width, activation, place == "after", name=ADAPTERS[place], dtype=dtype)
        sublayer.host(adapter, place, (None, None, encoder.arguments["hidden_dim"]))
        variables += adapter.weights
    return variables


def insert_changes(blocks, targets: Iterable[str], make: Callable) -> list:
    """Puts a change on each of some projections.

    Args:
        blocks: blocks of an encoder.
        targets: which projections, from "query", "key", "value", "output", "up" and "down".
        make: makes a `ProjectionChange` of a dtype.

    Returns:
        The variables of the changes.

    Raises:
        UserError: for an unknown target, or a projection that has such a change.
    """
    variables = []
    for layer, dtype in _targeted(blocks, targets):
        change = make(dtype)
        host_on(layer, change)
        variables += change.weights
    return variables


def insert_keras_lora(blocks, rank: int, alpha: float | None, targets: Iterable[str]) -> list:
    """Adds a low-rank product to each of some matrices by Keras's `enable_lora`: in every head one of rank r.

    Args:
        blocks: blocks of an encoder.
        rank: r.
        alpha: the products are multiplied by alpha / r; not at all by default.
        targets: as in `insert_changes`.

    Returns:
        The variables of the factors.

    Raises:
        UserError: for an unknown target, or a matrix that has such a product.
    """
    chosen = [layer for layer, _ in _targeted(blocks, targets)]
    for layer in chosen:
        if layer.lora_enabled:
            raise UserError(f"{layer.path} has LoRA already: a model takes it once")
        layer.enable_lora(rank, lora_alpha=alpha)
    return [variable for layer in chosen for variable in (layer.lora_kernel_a, layer.lora_kernel_b)]


def merge(encoder) -> None:
    """Folds the changes of projections, and Keras's LoRA wherever it is, into the encoder's own matrices and tables.

    Outputs stay as they are. The changes stay, and are cleared. Call this before weights are read by name, for example
    to export them.

    A matrix with Keras's LoRA that is quantized is quantized again, to scales of its own; outputs move by as much as
    that rounds.

    Args:
        encoder: an `Encoder`.

    Raises:
        UserError: for other changes of a matrix that is quantized.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> left, right = insert_keras_lora(encoder.parts.blocks, rank=2, alpha=None, targets=("up",))
    >>> _ = right.assign(np.ones(right.shape))
    >>> layer = encoder.parts.blocks[0].feed_forward.up
    >>> changed = ops.convert_to_numpy(layer.kernel)
    >>> merge(encoder)
    >>> bool(np.allclose(changed, layer.weights[0].numpy())), bool(np.any(right.numpy()))
    (True, False)
    """
    for layer in _with_keras_lora(encoder):
        _merge_keras_lora(layer)
    for layer, change in _changes(encoder):
        if layer.quantization_mode is not None:
            raise UserError(f"{layer.path} is quantized: merge what fine-tuning learned before `quantize`")
        kernel, bias = _folded(layer, change)
        own_kernel(layer).assign(kernel)
        if bias is not None:
            layer.bias.assign(bias)
        change.clear()


def _folded(layer, change):
    """A projection's matrix and bias with a change in them, in their own shapes."""
    own = own_kernel(layer)
    dtype = keras.backend.result_type(own.dtype, "float32")
    matrix = ops.reshape(ops.cast(own, dtype), (-1, _outputs(layer)))  # [..., ...] -> [I, O]
    bias = None if layer.bias is None else ops.reshape(ops.cast(layer.bias, dtype), (-1,))
    kernel, folded = change.fold(matrix, bias)
    if (folded is None) != (bias is None):
        raise UserError(f"{layer.path}: {change.name} folds into a bias, which only a projection with one has")
    return ops.reshape(kernel, own.shape), None if bias is None else ops.reshape(folded, layer.bias.shape)


def _outputs(layer):
    return math.prod(own_kernel(layer).shape[inner_axes(layer) :])


def _with_keras_lora(encoder):
    return [layer for layer in compat.layers_of(encoder) if getattr(layer, "lora_enabled", False)]


def _keras_lora(layer):
    """The two factors of Keras's LoRA on a dense layer or a table."""
    return [weight for weight in layer.weights if weight.name.startswith("lora_")]


def _merge_keras_lora(layer):
    left, right = _keras_lora(layer)
    if layer.quantization_mode is not None:
        merged: dict = {}
        layer.save_own_variables(merged)  # in which Keras folds it in, in floating point
        first = ops.copy(left)
        layer.load_own_variables(merged)
        left.assign(first)  # of two matrices of zeros neither would learn again
        return
    own = next(weight for weight in layer.weights if weight.name in ("kernel", "embeddings"))
    own.assign_add(ops.cast((layer.lora_alpha / layer.lora_rank) * ops.matmul(left, right), own.dtype))
    right.assign(ops.zeros(right.shape))


def added_variables(encoder) -> list:
    """The variables of the layers that were added to an encoder, and of Keras's LoRA."""
    return [
        *(variable for layer in hosted_by(encoder) for variable in layer.weights),
        *(variable for layer in _with_keras_lora(encoder) for variable in _keras_lora(layer)),
    ]


def quantized_weights(encoder) -> list:
    """Matrices and tables of an encoder in few bits, and their scales: no step can move them; in float8 it can."""
    parts = [part for layer in hosted_by(encoder) for part in compat.layers_of(layer)]
    of_parts = [weight for part in parts if part.quantization_mode not in LEARNING for weight in part.weights]
    still = {id(weight) for weight in of_parts if not weight.name.startswith("lora_")}  # in adapters, as of a task
    added = {id(variable) for variable in added_variables(encoder)} - still
    layers = [layer for layer in compat.layers_of(encoder) if layer.quantization_mode not in LEARNING]
    own = [weight for layer in layers for weight in layer.weights if id(weight) not in added]
    return [weight for weight in own if weight.name != "bias"]


def plain_weights(model) -> dict:
    """The `Values` of a model by their paths, for those who know no layers that were added, nor quantized matrices.

    Blocks and kinds of attention are numbered from 0 in them, even if these were cut from other ones.

    Args:
        model: an `Encoder`, or a model that has one.

    Raises:
        UserError: if the model is not the same without them. Changes that were merged are left out.
    """
    encoder = getattr(model, "encoder", model)
    if any(sublayer.after or sublayer.beside for sublayer in sublayers(encoder.parts.blocks)):
        raise UserError("this encoder has adapters, which other forms have no place for: a preset keeps them")
    quantized = [layer.path for layer in compat.layers_of(model) if layer.quantization_mode is not None]
    if quantized:
        raise UserError(f"{quantized[0]} is quantized, which other forms have no place for: write it before `quantize`")
    lora = [weight for weight in model.weights if weight.name.startswith("lora_")]
    changes = _changes(encoder)
    if any(weight.name.endswith("_b") and bool(ops.any(weight != 0)) for weight in lora) or not all(
        own is None or bool(ops.all(ops.equal(folded, own)))
        for layer, change in changes
        for folded, own in zip(_folded(layer, change), (own_kernel(layer), layer.bias), strict=True)
    ):
        raise UserError("it has LoRA or the like: fold it in with `merge` of rembed_keras.modeling.layers.adapters")
    left_out = {id(weight) for weight in (*lora, *(weight for _, change in changes for weight in change.weights))}
    places = names_of_weights(encoder)
    return {
        places.get(id(weight), weight.path): Values(weight) for weight in model.weights if id(weight) not in left_out
    }


def hosted_by(encoder) -> list:
    """The layers that were added to an encoder: after sublayers, beside them, and on projections."""
    found = sublayers(encoder.parts.blocks)
    adapters = [layer for sublayer in found for layer in (*sublayer.after, *sublayer.beside)]
    return adapters + [change for _, change in _changes(encoder)]


def _targeted(blocks, targets):
    """Pairs (projection, dtype of its sublayer) of some targets."""
    targets = [*targets]
    unknown = [target for target in targets if target not in PROJECTIONS]
    if unknown or not targets:
        raise UserError(f"targets are {targets}; they can be of {', '.join(PROJECTIONS)}")
    pairs = [(name, each, of.dtype_policy) for of in sublayers(blocks) for name, each in of.projections.items()]
    if missing := {*targets} - {name.rpartition("/")[2] for name, _, _ in pairs}:
        raise UserError(f"targets are {targets}: these blocks have no projection {min(missing)!r}")
    return [(layer, dtype) for name, layer, dtype in pairs if name.rpartition("/")[2] in targets]


def _changes(encoder):
    """Pairs (projection, change) of an encoder."""
    projections = (layer for each in sublayers(encoder.parts.blocks) for layer in each.projections.values())
    return [(layer, change) for layer in projections for change in changes_on(layer)]
