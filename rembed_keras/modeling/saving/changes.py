"""What was done to a model after it was made: layers that were added to it, that were quantized, or that were frozen.

A model is rebuilt from its arguments, and these are none of them: what is saved has to say them too, or weights would
find no place to go, and be left out without a word. Layers go by the paths that they have in a rebuilt model, whose
blocks are numbered from 0 even if blocks were cut from this one.
"""

import contextlib
import gc
from collections.abc import Iterable
from typing import Any

import keras

from rembed_keras import compat
from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.layers.adapters import BottleneckAdapter, hosted_by
from rembed_keras.modeling.layers.sublayer import MODES, PLACES, changes_on, check_mode, host_on
from rembed_keras.modeling.saving.configuration import made
from rembed_keras.modeling.saving.freezing import is_frozen
from rembed_keras.modeling.saving.naming import layers_by_name, sublayers_of

QUANTIZED = ("quantized", "quantizers")
OF_LAYERS = (*QUANTIZED, "frozen")
KEYS = ("adapters", "hosted", *OF_LAYERS)  # "adapters" is as version 0.1 said it
CHANGED = "this encoder has LoRA, adapters or quantized layers: reallocate it before they are added"
USUAL = {"int8": "Int8QuantizationConfig", "int4": "Int4QuantizationConfig"}  # which Keras 3.10 has not


def changes_of(encoder, without=()) -> dict:
    """What was done to an encoder, as JSON can say it.

    Args:
        encoder: an `Encoder`.
        without: the ids, as of `id`, of added layers to leave out.

    Returns:
        Nothing, or "hosted", the layers that were added and where: the number of a block, its sublayer, and a place,
        which is "after", "beside" or the name of a projection; "quantized", the paths of layers by mode; and
        "quantizers", Keras's `QuantizationConfig` of those for which another one was given than their mode's usual.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> encoder.parts.projection.quantize("int8")
    >>> changes_of(encoder)
    {'quantized': {'int8': ['projection']}}
    """
    left = [layer for layer in hosted_by(encoder) if id(layer) in without]
    left_out = {id(part) for layer in left for part in compat.layers_of(layer)}
    layers = {name: layer for name, layer in layers_by_name(encoder).items() if id(layer) not in left_out}
    changes = {"hosted": _hosted(encoder, without), "quantized": _by_mode(layers), "quantizers": _quantizers(layers)}
    return {key: value for key, value in changes.items() if value}


def _hosted(encoder, without):
    """The layers that were added to an encoder, those of a sublayer that blocks share where it stands first."""
    found: list[dict] = []
    met: set[int] = set(without)
    for i, block in enumerate(encoder.parts.blocks):
        for sublayer in sublayers_of(block):
            for place, layers in _places_of(sublayer).items():
                own = [at for at, layer in enumerate(layers) if id(layer) in without]
                for at, layer in enumerate(layers):
                    if id(layer) not in met:
                        met.add(id(layer))
                        described = keras.saving.serialize_keras_object(layer)
                        kept = {key: value for key, value in described.items() if key != "build_config"}
                        found.append({"block": i, "sublayer": sublayer.name, "place": place, "layer": kept})
                        found[-1] |= {"at": at} if own and own[0] < at else {}  # what is left out comes last when read
    return found


def _places_of(sublayer):
    """The layers that a sublayer hosts, by place; those after and beside it as their weights follow each other."""
    taken = {id(layer): number for number, layer in enumerate(compat.layers_of(sublayer, recursive=False))}
    places = [("after", sublayer.after), ("beside", sublayer.beside)]
    places.sort(key=lambda place: [taken[id(layer)] for layer in place[1][:1]])
    return dict(places) | {name: changes_on(dense) for name, dense in sublayer.projections.items()}


def change_again(encoder, changes: dict) -> None:
    """Does to an encoder that was rebuilt what `changes_of` says.

    Raises:
        UserError: if that suits another encoder.
    """
    blocks = encoder.parts.blocks
    for hosted in changes.get("hosted", []) or _former(encoder, changes.get("adapters", [])):
        try:
            sublayer = {each.name: each for each in sublayers_of(blocks[hosted["block"]])}[hosted["sublayer"]]
            place = hosted["place"]
            host = sublayer if place in PLACES else sublayer.projections[place]
            layer = _made_for(host, hosted["layer"])
            if host is sublayer:
                sublayer.host(layer, place, (None, None, encoder.arguments["hidden_dim"]))
            else:
                host_on(host, layer)
        except (TypeError, KeyError, IndexError, AttributeError):
            raise UserError(f"{shortened(hosted)} describes no layer that this encoder could host") from None
    change_layers_again(encoder, changes)


def _made_for(host, described):
    """A layer as it was, but for its dtype if that of what it is added to is another now: presets may be read so."""
    layer = made(described, keras.layers.Layer)
    if layer.compute_dtype == host.compute_dtype:
        return layer
    dtype = keras.dtype_policies.serialize(host.dtype_policy)
    return made(described | {"config": described["config"] | {"dtype": dtype}}, keras.layers.Layer)


def _former(encoder, adapters):
    """What version 0.1 said of adapters, two widths for each block and 0 for none, as it is said now."""
    blocks = encoder.parts.blocks
    if adapters and not _fit(adapters, blocks):
        raise UserError(f"adapters are {shortened(adapters)}; they must be two widths for each of {len(blocks)} blocks")
    found, met = [], set()
    for i, (block, widths) in enumerate(zip(blocks, adapters, strict=False)):
        for sublayer, width in zip(sublayers_of(block), widths, strict=True):
            if width and id(sublayer) not in met:  # blocks may share it
                met.add(id(sublayer))
                adapter = BottleneckAdapter(width, encoder.arguments["activation"], dtype=sublayer.dtype_policy)
                layer = keras.saving.serialize_keras_object(adapter)
                found.append({"block": i, "sublayer": sublayer.name, "place": "after", "layer": layer})
    return found


def config_with_encoder(model, added=(), is_adapted: bool = False) -> dict:
    """An encoder in the configuration of a model that holds it, and what was done to the model's other layers.

    Args:
        model: it has an `encoder`.
        added: the ids of layers that the model adds itself when it is rebuilt.
        is_adapted: whether methods say then what of the encoder is trained, so that all that is frozen has to be so
            after them.
    """
    encoder = keras.saving.serialize_keras_object(model.encoder)
    reads, of_encoder = model.preprocessor, model.encoder.preprocessor
    is_shared = reads is not None and of_encoder is not None and of_encoder.tokenizer is reads.tokenizer
    left_out = (*KEYS, "preprocessor") if is_shared else KEYS  # the model gives its own to an encoder that has none
    plain = {key: value for key, value in encoder["config"].items() if key not in left_out}
    changes = changes_of(model.encoder, added)
    layers = layers_by_name(model)
    named = {name for names in changes.get("quantized", {}).values() for name in names}
    others = {name: layer for name, layer in layers.items() if name not in named}
    of_layers = _by_mode(others), _quantizers(others), _outermost_frozen(layers, [] if is_adapted else [model.encoder])
    found = {"encoder": encoder | {"config": plain | changes | frozen_in(model.encoder, added)}}
    found |= {key: each for key, each in zip(OF_LAYERS, of_layers, strict=True) if each}
    if reads is not None:
        found["preprocessor"] = keras.saving.serialize_keras_object(reads)
    return found


def parts_of(config: dict) -> dict:
    """The encoder and the preprocessor, None for none, that a configuration of a model describes, rebuilt.

    Raises:
        UserError: for one that nothing of ours can be made of.
    """
    kinds = {"encoder": keras.Model, "preprocessor": keras.layers.Layer}
    there = {"preprocessor": None} | {key: config[key] for key in kinds if key in config}
    return {key: made(each, kinds[key]) if isinstance(each, dict) else each for key, each in there.items()}


def change_layers_again(model, changes: dict) -> None:
    """Quantizes and freezes layers of a model that was rebuilt, whose weights are still to come.

    Args:
        model: an `Encoder`, or a model that has one.
        changes: "quantized", the paths of layers by mode, "quantizers", how, see `changes_of`, and "frozen", paths of
            layers; any may be missing.

    Raises:
        UserError: for a mode that is not saved, or a layer that is not there.
    """
    quantized, quantizers, frozen = (changes.get(key) for key in OF_LAYERS)
    if not quantized and not frozen:
        return
    layers = layers_by_name(model)
    for name in frozen or ():
        if name not in layers:
            raise UserError(f"{shortened(name)} is frozen: this model has no such layer")
        _freeze(layers[name])
    pairs = [(name, mode) for mode, names in (quantized or {}).items() for name in names]
    for name, mode in pairs:
        if mode not in MODES or name not in layers:
            raise UserError(f"{shortened(name)} is quantized to {shortened(mode)}: this model has no such layer")
        check_mode(layers[name], mode)
    with _without_old_garbage():
        for name, mode in pairs:
            if layers[name].quantization_mode is None:
                layers[name].quantize(mode, **_options(quantizers, name))


def freeze_again(model, names: Iterable[str]) -> None:
    """Freezes those layers of a model that it has of another's which were frozen by hand.

    Args:
        model: an `Encoder`, or a model that has one.
        names: as `frozen_in` gives them of the other.
    """
    layers = layers_by_name(model)
    for name in names:
        if name in layers and layers[name].trainable:
            _freeze(layers[name])


def _freeze(layer):
    layer.trainable = True  # TensorFlow's layers drop an assignment of what is there, for their parts as well
    layer.trainable = False


def frozen_in(encoder, without=()) -> dict:
    """Layers of an encoder that were frozen by hand, as JSON can say it: `{"frozen": paths}`, or nothing.

    Left out is what is a part of a frozen layer, of an encoder that says itself that it is not trained, or frozen by an
    argument.

    Args:
        encoder: an `Encoder`.
        without: the ids, as of `id`, of added layers to leave out.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> encoder.parts.blocks[0].trainable = False
    >>> frozen_in(encoder)
    {'frozen': ['block_0']}
    """
    left = [layer for layer in hosted_by(encoder) if id(layer) in without]
    if is_frozen(encoder):
        left.append(encoder)
    elif encoder.arguments["freeze_input_embedding"]:
        left.append(encoder.token_embedding)
    frozen = _outermost_frozen(layers_by_name(encoder), left)
    return {"frozen": frozen} if frozen else {}


def _outermost_frozen(layers, left=()):
    """Names of frozen layers that are a part of no other one, nor of what is `left` out.

    None are where Keras's LoRA froze them, which is not added again to a model that was rebuilt.
    """
    if any(getattr(layer, "lora_enabled", False) for layer in layers.values()):
        return []
    met = {id(part) for layer in left for part in compat.layers_of(layer)}
    frozen = []
    for name, layer in layers.items():  # a layer stands before its parts
        is_still = bool(layer.weights) and not any(weight.trainable for weight in layer.weights)
        if not layer.trainable and is_still and id(layer) not in met:
            frozen.append(name)
            met |= {id(part) for part in compat.layers_of(layer)}
    return frozen


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


def _quantizers(layers):
    """How layers are quantized for which another way was given than is usual of their mode, by their names."""
    configs: dict[str, Any] = {name: getattr(each, "quantization_config", None) for name, each in layers.items()}
    modes = {name: layers[name].quantization_mode for name, config in configs.items() if config is not None}
    usual = {mode: getattr(keras.quantizers, USUAL[mode])().get_config() for mode in {*modes.values()} & {*USUAL}}
    return {
        name: keras.saving.serialize_keras_object(configs[name])
        for name, mode in modes.items()
        if mode in usual and configs[name].get_config() != usual[mode]
    }


def _options(quantizers, name):
    """What `quantize` of a layer is given besides its mode."""
    kind = getattr(keras.quantizers, "QuantizationConfig", object)
    return {"config": made(quantizers[name], kind)} if name in (quantizers or {}) else {}
