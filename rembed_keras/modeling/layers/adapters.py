"""Small layers that are added to an encoder to learn a task while its own weights stay: adapters and LoRA.

Both begin as if they were not there, so that a task starts from what pre-training left. Adapters stand after each
sublayer and stay there; LoRA's products of two thin matrices can be folded into the matrices that they change.
Sublayers that several blocks share are changed once, for all of these blocks.
"""

import keras
from keras import ops

from rembed_keras import compat
from rembed_keras.errors import UserError
from rembed_keras.modeling.layers.activation import activation_function
from rembed_keras.modeling.layers.tables import initializer

PROJECTIONS = ("query", "key", "value", "output", "up", "down")


class BottleneckAdapter(keras.layers.Layer):
    """A narrow feed-forward pair with a residual sum, which begins as the identity.

    Args:
        width: m, of the bottleneck.
        activation: "gelu" or "gelu_tanh".
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call argument: [B, S, D]. Returns [B, S, D]. It has 2Dm + D + m parameters. The second matrix begins as zeros, so
    that nothing changes before something is learned; in the paper it is merely small.
    Source: Houlsby et al. 2019, section 2.1.

    >>> adapter = BottleneckAdapter(width=2)
    >>> ops.convert_to_numpy(adapter(np.array([[[1.0, 2.0, 3.0, 4.0]]]))).tolist()
    [[[1.0, 2.0, 3.0, 4.0]]]
    >>> adapter.count_params() == 2 * 4 * 2 + 4 + 2
    True
    """

    def __init__(self, width, activation="gelu", name="adapter", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.width = width
        self.activation = activation_function(activation)
        self.down = keras.layers.Dense(width, kernel_initializer=initializer(), name="down", dtype=dtype)

    def build(self, hidden_shape):
        self.up = keras.layers.Dense(hidden_shape[-1], kernel_initializer="zeros", name="up", dtype=self.dtype_policy)
        self.down.build(hidden_shape)
        self.up.build((*hidden_shape[:-1], self.width))

    def call(self, hidden):
        return hidden + self.up(self.activation(self.down(hidden)))  # [B, S, D] -> [B, S, m] -> [B, S, D]


def sublayers(blocks) -> list:
    """The sublayers of blocks, each of them once."""
    return [*dict.fromkeys(sublayer for block in blocks for sublayer in (block.attention, block.feed_forward))]


def insert_adapters(encoder, blocks, width: int) -> list:
    """Puts an adapter after each sublayer, before the residual sum.

    Args:
        encoder: an `Encoder`.
        blocks: some of its blocks.
        width: m, of the bottlenecks.

    Returns:
        The variables of the adapters.

    Raises:
        UserError: if a sublayer has an adapter.
    """
    adapters = [add_adapter(encoder, sublayer, width) for sublayer in sublayers(blocks)]
    return [variable for adapter in adapters for variable in adapter.weights]


def add_adapter(encoder, sublayer, width: int) -> BottleneckAdapter:
    """Puts an adapter after a sublayer of an encoder, and returns it.

    Raises:
        UserError: if the sublayer has one.
    """
    adapter = BottleneckAdapter(width, encoder.arguments["activation"], dtype=sublayer.dtype_policy)
    sublayer.host(adapter, (None, None, encoder.arguments["hidden_dim"]))
    return adapter


def insert_lora(blocks, rank: int, alpha: float | None, targets) -> list:
    """Adds a product of two thin matrices to each of some matrices, as Keras's `enable_lora` does.

    Args:
        blocks: blocks of an encoder.
        rank: r, the inner width of the products.
        alpha: the products are multiplied by alpha / r; not at all by default.
        targets: which matrices, from "query", "key", "value", "output", "up" and "down".

    Returns:
        The variables of the thin matrices.

    Raises:
        UserError: for an unknown target, or a matrix that has such a product.
    """
    unknown = [target for target in targets if target not in PROJECTIONS]
    if unknown or not targets:
        raise UserError(f"LoRA's targets are {[*targets]}; they can be of {', '.join(PROJECTIONS)}")
    chosen = [layer for name, layer in _projections(blocks) if name in targets]
    for layer in chosen:
        if layer.lora_enabled:
            raise UserError(f"{layer.path} has LoRA already: a model takes it once")
        layer.enable_lora(rank, lora_alpha=alpha)
    return [variable for layer in chosen for variable in (layer.lora_kernel_a, layer.lora_kernel_b)]


def merge_lora(encoder) -> None:
    """Folds what LoRA learned into the encoder's own matrices, whose outputs stay as they are.

    The thin matrices stay, and add zeros: their second one is cleared, as Keras does on loading. Call this before
    weights are read by name, for example to export them; Keras's own `save` folds in the copy that it writes.

    A quantized matrix is quantized anew, to scales of its own; outputs move by as much as that rounds.

    Args:
        encoder: an `Encoder`.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> left, right = insert_lora(encoder.parts.blocks, rank=2, alpha=None, targets=("up",))
    >>> _ = right.assign(np.ones(right.shape))
    >>> layer = encoder.parts.blocks[0].feed_forward.up
    >>> changed = ops.convert_to_numpy(layer.kernel)
    >>> merge_lora(encoder)
    >>> bool(np.allclose(changed, layer.weights[0].numpy())), bool(np.any(right.numpy()))
    (True, False)
    """
    for _, layer in _projections(encoder.parts.blocks):
        if layer.lora_enabled and layer.quantization_mode is not None:
            merged: dict = {}
            layer.save_own_variables(merged)  # in which Keras folds it in, in floating point
            first = ops.copy(layer.lora_kernel_a)
            layer.load_own_variables(merged)
            layer.lora_kernel_a.assign(first)  # of two matrices of zeros neither would learn again
        elif layer.lora_enabled:
            own = next(variable for variable in layer.weights if variable.name == "kernel")
            change = (layer.lora_alpha / layer.lora_rank) * ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b)
            own.assign_add(ops.cast(change, own.dtype))
            layer.lora_kernel_b.assign(ops.zeros(layer.lora_kernel_b.shape))


def added_variables(encoder) -> list:
    """The variables of an encoder's adapters and of its LoRA."""
    lora = [layer for _, layer in _projections(encoder.parts.blocks) if layer.lora_enabled]
    return [
        *(variable for adapter in adapters_of(encoder) for variable in adapter.weights),
        *(variable for layer in lora for variable in (layer.lora_kernel_a, layer.lora_kernel_b)),
    ]


def plain_weights(model) -> dict:
    """The weights of a model by their paths, for those who know neither adapters nor LoRA nor quantized matrices.

    Args:
        model: an `Encoder`, or a model that has one.

    Raises:
        UserError: if the model is not the same without them. LoRA that was merged is left out.
    """
    encoder = getattr(model, "encoder", model)
    if adapters_of(encoder):
        raise UserError("this encoder has adapters, which other forms have no place for: a preset keeps them")
    quantized = [layer.path for layer in compat.layers_of(model) if layer.quantization_mode is not None]
    if quantized:
        raise UserError(f"{quantized[0]} is quantized, which other forms have no place for: write it before `quantize`")
    lora = [weight for weight in model.weights if weight.name.startswith("lora_")]
    if any(weight.name.endswith("_b") and bool(ops.any(weight != 0)) for weight in lora):
        raise UserError("this encoder has LoRA that other forms have no place for: fold it in with `merge_lora`")
    left_out = {id(weight) for weight in lora}
    return {weight.path: ops.convert_to_numpy(weight) for weight in model.weights if id(weight) not in left_out}


def adapters_of(encoder) -> list:
    """An encoder's adapters."""
    return [sublayer.adapter for sublayer in sublayers(encoder.parts.blocks) if sublayer.adapter is not None]


def _projections(blocks):
    return [pair for sublayer in sublayers(blocks) for pair in sublayer.projections.items()]
