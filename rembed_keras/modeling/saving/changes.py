"""What was done to a model after it was made: adapters that were added to it, and layers that were quantized.

A model is made anew of its arguments, and these are none of them: what is saved has to say them too, or weights would
find no place to go, and be left out without a word. Layers go by the paths that they have in a model made anew, whose
blocks are numbered from 0 even if blocks were cut from this one.
"""

import contextlib
import gc

import keras

from rembed_keras import compat
from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.layers.adapters import BottleneckAdapter, adapters_of, add_adapter

KEYS = ("adapters", "quantized")
MODES = ("int8", "int4", "float8")


def changes_of(encoder, without=()) -> dict:
    """What was done to an encoder, as JSON can say it.

    Args:
        encoder: an `Encoder`.
        without: the ids, as of `id`, of adapters to leave out.

    Returns:
        Nothing, or "adapters", for each block the widths of attention's and of the feed-forward pair's, 0 for none;
        and "quantized", the paths of layers by mode.

    Raises:
        UserError: for an adapter that cannot be made anew of a width.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> encoder.parts.projection.quantize("int8")
    >>> changes_of(encoder)
    {'quantized': {'int8': ['projection']}}
    """
    left = [adapter for adapter in adapters_of(encoder) if id(adapter) in without]
    left_out = {id(part) for adapter in left for part in compat.layers_of(adapter)}
    adapters = [[_width(each.adapter, left_out) for each in _pair(block)] for block in encoder.parts.blocks]
    layers = {name: layer for name, layer in layers_by_name(encoder).items() if id(layer) not in left_out}
    changes = {"adapters": adapters if any(map(any, adapters)) else [], "quantized": _by_mode(layers)}
    return {key: value for key, value in changes.items() if value}


def change_again(encoder, changes: dict) -> None:
    """Does to an encoder that was made anew what `changes_of` says.

    Raises:
        UserError: if that suits another encoder.
    """
    blocks, adapters = encoder.parts.blocks, changes.get("adapters", [])
    if adapters and not _fit(adapters, blocks):
        raise UserError(f"adapters are {shortened(adapters)}; they must be two widths for each of {len(blocks)} blocks")
    for block, widths in zip(blocks, adapters, strict=False):
        for sublayer, width in zip(_pair(block), widths, strict=True):
            if width and sublayer.adapter is None:  # blocks may share it
                add_adapter(encoder, sublayer, width)
    quantize_again(encoder, changes.get("quantized", {}))


def config_with_encoder(model, added=()) -> dict:
    """An encoder in the configuration of a model that holds it, and which of the model's other layers are quantized.

    Args:
        model: it has an `encoder`.
        added: the ids of adapters that the model adds itself when it is made anew.
    """
    encoder = keras.saving.serialize_keras_object(model.encoder)
    plain = {key: value for key, value in encoder["config"].items() if key not in KEYS}
    changes = changes_of(model.encoder, added)
    told = {name for names in changes.get("quantized", {}).values() for name in names}
    rest = {name: layer for name, layer in layers_by_name(model).items() if name not in told}
    quantized = _by_mode(rest)
    return {"encoder": encoder | {"config": plain | changes}} | ({"quantized": quantized} if quantized else {})


def quantize_again(model, quantized: dict) -> None:
    """Quantizes layers of a model that was made anew, whose weights are still to come.

    Raises:
        UserError: for a mode that is not saved, or a layer that is not there.
    """
    layers = layers_by_name(model) if quantized else {}
    pairs = [(name, mode) for mode, names in quantized.items() for name in names]
    for name, mode in pairs:
        if mode not in MODES or name not in layers:
            raise UserError(f"{shortened(name)} is quantized to {shortened(mode)}: this model has no such layer")
    with _without_old_garbage():
        for name, mode in pairs:
            if layers[name].quantization_mode is None:
                layers[name].quantize(mode)


@contextlib.contextmanager
def _without_old_garbage():
    """Lets the garbage collector leave aside what is there: Keras has it look at all for each layer, a second each."""
    is_ours = gc.get_freeze_count() == 0
    if is_ours:
        gc.freeze()
    try:
        yield
    finally:
        if is_ours:
            gc.unfreeze()


def layers_by_name(model) -> dict[str, keras.layers.Layer]:
    """The layers of a model, by the paths that they have in one that is made anew."""
    encoder = getattr(model, "encoder", model)
    names = names_in_blocks(encoder.parts.blocks)
    for layer in compat.layers_of(model, include_self=False):
        if layer.path and not isinstance(layer, keras.Model):
            names.setdefault(layer, layer.path)
    return {name: layer for layer, name in names.items()}


def names_in_blocks(blocks) -> dict[keras.layers.Layer, str]:
    """The paths of blocks and of all that they are made of in an encoder of these blocks."""
    names: dict[keras.layers.Layer, str] = {}
    for i, block in enumerate(blocks):
        names[block] = f"block_{i}"
        for sublayer in _pair(block):
            for layer in compat.layers_of(sublayer):
                if layer.path:
                    names.setdefault(layer, f"block_{i}/{sublayer.name}{layer.path.removeprefix(sublayer.path)}")
    return names


def settle_dtypes(layer) -> None:
    """Gives each part of a layer a policy of its own, where all hold one `DTypePolicyMap`.

    Keras asks such a map for a layer's dtypes, but not where it quantizes the layer or saves it quantized: both fail.
    What has no path, as dropout, takes the dtype of what it is a part of.
    """
    for part in compat.layers_of(layer, recursive=False, include_self=False):
        policies = part.dtype_policy
        if isinstance(policies, keras.dtype_policies.DTypePolicyMap) and not isinstance(part, keras.Model):
            above = policies.default_policy if isinstance(layer, keras.Model) else layer.dtype_policy
            compat.set_dtype_policy(part, policies[part.path] if part.path else above)
        settle_dtypes(part)


def dtypes_of_cut(policy, blocks):
    """The dtype policy of an encoder that has some of another's blocks: a map knows them by their new paths too."""
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    renamed = {name: policy[layer.path] for layer, name in names_in_blocks(blocks).items()}
    return keras.dtype_policies.DTypePolicyMap(policy.default_policy, dict(policy) | renamed)


def _pair(block):
    return block.attention, block.feed_forward


def _width(adapter, left_out):
    if adapter is None or id(adapter) in left_out:
        return 0
    if not isinstance(adapter, BottleneckAdapter):
        raise UserError(f"{adapter.path} is no BottleneckAdapter: an encoder with it cannot be saved")
    return adapter.width


def _fit(adapters, blocks):
    """Whether there are two widths for each block."""
    if not isinstance(adapters, list | tuple) or len(adapters) != len(blocks):
        return False
    pairs = [pair for pair in adapters if isinstance(pair, list | tuple) and len(pair) == 2]
    return len(pairs) == len(blocks) and all(type(width) is int and width >= 0 for pair in pairs for width in pair)


def _by_mode(layers):
    """Names of quantized layers by how they are quantized."""
    modes: dict[str, list[str]] = {}
    for name, layer in layers.items():
        if layer.quantization_mode is not None:
            modes.setdefault(layer.quantization_mode, []).append(name)
    return modes
