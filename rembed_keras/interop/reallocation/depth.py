"""Another depth for a trained encoder: some of its blocks, or more of them, of which the new ones change nothing.

A new block is a copy of the one below it whose outputs are multiplied with zeros: what it adds to the residual stream
is 0, and it can learn from the first step, as in progressive stacking. With norms first, x + 0 is x to the bit. With
norms last, a new block still norms what it is given, which is the identity only of what is normed and not yet scaled:
so the scale and bias of the norm below move up to the new block's last norm. What two norms do then differs from one
by rounding alone, if epsilon is as small as BERT's 1e-12.
"""

from typing import Any

import keras
import numpy as np

from rembed_keras.errors import UserError, check_counts
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks.stack import (
    attention_of,
    block_of,
    cut_arguments,
    kind_numbers,
    layers_of_cut,
    make_blocks,
)
from rembed_keras.modeling.choices import described
from rembed_keras.modeling.parts import Parts
from rembed_keras.modeling.saving.filling import blank, fill
from rembed_keras.modeling.saving.freezing import is_frozen
from rembed_keras.modeling.saving.naming import names_in_blocks, path_in_block
from rembed_keras.modeling.sizes import check_sizes


def with_depth(encoder: Encoder, num_layers: int, keep: str = "bottom") -> Encoder:
    """An encoder of more or fewer layers; tables and projection are those of the other, and its blocks are copies.

    Args:
        encoder: an `Encoder`.
        num_layers: how many layers to have.
        keep: which layers stay if there are fewer: "bottom", "top", "alternate" or "symmetric".

    Raises:
        UserError: for a depth that the encoder cannot have.

    >>> small = Encoder(50, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=8, input_embedding_dim=4)
    >>> with_depth(small, 5).num_layers, with_depth(small, 1, "top").num_layers
    (5, 1)
    """
    layers, arguments = stacking(encoder.arguments, num_layers, keep)
    made = _restacked(encoder, layers, arguments)
    if num_layers <= encoder.num_layers:
        return made
    blocks = made.parts.blocks
    for place in range(1, num_layers):
        if layers[place] == layers[place - 1]:
            _silence(blocks[place])
            if not block_of(arguments).norms_first:
                _move_scale(blocks[place - 1], blocks[place])
    return made


def stacking(config: dict[str, Any], num_layers: int, keep: str = "bottom") -> tuple[list[int], dict[str, Any]]:
    """Which layer each layer of an encoder of another depth begins as, and the arguments of that encoder.

    Args:
        config: the arguments of the encoder that there is.
        num_layers: how many layers to have.
        keep: as of `with_depth`.

    Raises:
        UserError: for a depth that it cannot have.
    """
    check_counts({"num_layers": num_layers})
    check_sizes({"num_layers": num_layers})
    if num_layers <= config["num_layers"]:
        layers = layers_of_cut(config, num_layers, keep)
        return layers, cut_arguments(config, layers)
    if config["layer_sharing"] != "none":
        raise UserError("layers that share weights cannot be stacked: a new one could not begin as the identity")
    if config["scalar_mix"]:
        raise UserError("an encoder with scalar_mix reads all of its layers: none can be added")
    layers = stacked(config["num_layers"], num_layers)
    grown: dict[str, Any] = {"num_layers": num_layers, "layer_groups": 1}
    if config["attention"] is not None:
        kinds = [described(kind) for kind in attention_of(config)]
        grown["attention"] = [kinds[layer] for layer in layers]
    return layers, config | grown


def stacked(depth: int, num_layers: int) -> list[int]:
    """Which layer each layer of a deeper encoder begins as; of several in a row, all but the first are new.

    >>> stacked(3, 5), stacked(2, 6)
    ([0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1])
    """
    new = num_layers - depth
    copies = [1 + (layer + 1) * new // depth - layer * new // depth for layer in range(depth)]
    return [layer for layer, count in enumerate(copies) for _ in range(count)]


def _restacked(encoder, layers, config):
    """An encoder whose blocks begin as the given ones of another."""
    dtype, is_trained = _dtypes(encoder, layers, config), not is_frozen(encoder)
    with blank():
        parts = Parts(**(vars(encoder.parts) | {"blocks": make_blocks(config, dtype)}))
        made = type(encoder)(parts=parts, name=encoder.name, trainable=is_trained, dtype=dtype, **config)
    for place, (block, layer) in enumerate(zip(parts.blocks, layers, strict=True)):
        source = encoder.parts.blocks[layer]
        _copy(source, block)
        if is_trained and layer not in layers[:place]:  # a layer that is new learns
            _freeze(source, block)
    return made


def _copy(source, block):
    """Gives a block the weights of another of the same kind."""
    theirs = {path_in_block(weight.path, 0): weight for weight in source.weights}
    for weight in block.weights:
        path = path_in_block(weight.path, 0)
        if path in theirs:
            fill(weight, theirs[path].value)
        elif source.attention.norm is not None or not path.startswith("attention/norm/"):
            # the first of blocks with norms first has one norm less than a copy of it
            raise UserError(f"the depth of this encoder cannot be changed: {path} is not in each of its layers")


def _freeze(source, block):
    """Freezes of a block what is frozen of another of the same kind."""
    ours, theirs = ({name: layer for layer, name in names_in_blocks([each], [0]).items()} for each in (block, source))
    for name, layer in theirs.items():
        if name in ours and not layer.trainable and not any(weight.trainable for weight in layer.weights):
            ours[name].trainable = False


def _dtypes(encoder, layers, config):
    """The dtype policy of an encoder whose blocks begin as the given ones of another: a map names blocks by place."""
    policy = encoder.dtype_policy
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    blocks = [encoder.parts.blocks[layer] for layer in layers]
    renamed = {
        f"block_{i}{name.removeprefix('block_0')}": policy[layer.path]
        for i, (block, number) in enumerate(zip(blocks, kind_numbers(attention_of(config)), strict=True))
        for layer, name in names_in_blocks([block], [number]).items()
    }
    return keras.dtype_policies.DTypePolicyMap(policy.default_policy, dict(policy) | renamed)


def _silence(block):
    """Makes what a block adds to the residual stream 0."""
    for sublayer in (block.attention, block.feed_forward):
        for weight in sublayer.adding.weights:
            weight.assign(np.zeros(weight.shape))


def _move_scale(below, block):
    """Moves the scale and bias of a block's last norm to that of the silenced block above it."""
    for norm in (below.feed_forward.norm, block.attention.norm):
        norm.gamma.assign(np.ones(norm.gamma.shape))
        norm.beta.assign(np.zeros(norm.beta.shape))
