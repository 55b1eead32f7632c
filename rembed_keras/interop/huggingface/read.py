"""Folders of Hugging Face models, read into an `Encoder` or a `MaskedLM`.

Only arrays and a configuration are read; no code of a folder runs. Supported are the families whose graph an `Encoder`
computes exactly, see `families`. Arrays are read a few rows at a time, after their shapes were checked against the
configuration.
"""

import re
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from rembed_keras.data.json_files import read_json
from rembed_keras.errors import UserError, first_line
from rembed_keras.interop.huggingface.families import FAMILIES, Family
from rembed_keras.interop.huggingface.families.family import OUTPUT_TABLE
from rembed_keras.interop.huggingface.layout import PICKLED, WHOLE, Source, wanted_shape
from rembed_keras.interop.huggingface.modules import notes_on_modules
from rembed_keras.interop.tensors import Tensors
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.blocks.stack import block_of, check_encoder, has_position_table
from rembed_keras.modeling.layers.tables import drawn
from rembed_keras.modeling.saving.filling import PIECE, blank, fill
from rembed_keras.modeling.sizes import groups_of

INPUT_TABLE = "embeddings/token/embeddings"
CLASSIFIER = "classifier.weight"  # of models that were fine-tuned
LAYERS = re.compile(r"(layers?|layer_groups)\.\d+\.")  # in names of their tensors
COMPUTED = ("inv_freq",)  # which follow from the configuration
FORMER = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}  # in the first checkpoints of BERT


def read_huggingface(folder: Path) -> tuple[keras.Model, list[str]]:
    """Reads a model.

    Args:
        folder: has `config.json`, and `model.safetensors` or `pytorch_model.bin`, or shards of one with their index.

    Returns:
        A `MaskedLM` if the folder has such a head, otherwise an `Encoder`; and notes.

    Raises:
        UserError: for an unsupported model, or a tensor that is missing or has the wrong shape.
    """
    config, family = _read_config(folder)
    arguments = _arguments(config, family, folder)
    tensors = _with_input_table(_tensors(folder), config, family)
    has_head = _has_head(tensors, family)
    width, skipped = family.head_width(config, arguments), family.skipped_positions(config)
    _check_sizes(arguments, tensors, family, folder, skipped, width if has_head else None)
    coupling, notes = _coupling(config, tensors, family) if has_head else (None, [])
    if coupling is not None and (odd := family.odd_activation(arguments)):
        said = f"its head has activation {odd!r} and its blocks {arguments['activation']!r}"
        coupling, notes = None, [f"{said}: only the encoder is read"]
    elif coupling is None or not (family.unties or coupling == family.tied):
        coupling, notes = None, ["it has no usable masked LM head: only the encoder is read"]
    with blank():
        encoder = Encoder(**arguments)
        model: keras.Model = encoder if coupling is None else MaskedLM(encoder, width, coupling=coupling)
    absent = family.absent(config)
    weights = {weight.path: weight for weight in model.weights if weight.path not in absent}
    groups = groups_of(arguments)
    if not _is_pooled(tensors, family):
        kernel = weights["pooler/kernel"]
        kernel.assign(drawn(kernel.shape, seed=0))
        weights = {path: weight for path, weight in weights.items() if not path.startswith("pooler/")}
        notes.append("it has no pooler: the encoder's is randomly initialized, and trained with a task that needs it")
    sources, read = {}, set[str]()
    for path, weight in weights.items():
        place = family.place(path, groups, skipped)
        name = _find(tensors, family, place.name)
        if name is None:
            raise UserError(f"{folder} has no tensor {place.name}")
        tensor, wanted = tensors[name], wanted_shape(path, weight.shape, place)
        if (found := tuple(tensor.shape)) != wanted:
            raise UserError(f"{folder}: {name} has shape {found}; config.json wants {wanted}")
        if tensor.dtype.kind in "biu":
            raise UserError(f"{folder}: {name} has numbers of type {tensor.dtype}, which are no weights")
        sources[path] = Source(path, tensor, weight.shape, place)
        read.add(name)
    for path, weight in weights.items():
        fill(weight, sources[path])
    return model, [*notes, *_left_out(tensors, read), *notes_on_modules(folder)]


def _left_out(tensors, read):
    """A note if layers have tensors that are not read: of more layers than the configuration has, or more in them."""
    names = [name for name in tensors if LAYERS.search(name) and not name.endswith(COMPUTED) and name not in read]
    return [f"left out are {len(names)} tensors that config.json has no place for, such as {names[0]}"] if names else []


def huggingface_arguments(folder: Path) -> dict:
    """Arguments of the `Encoder` that a folder holds, of which its configuration alone is read.

    Raises:
        UserError: for an unsupported model.
    """
    config, family = _read_config(folder)
    return _arguments(config, family, folder)


def _read_config(folder):
    config = read_json(folder / "config.json")
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        kind, those = config.get("model_type"), ", ".join(FAMILIES)
        if kind is None:  # as transformers wrote none before version 3
            raise UserError(f"{folder}/config.json has no model_type: add the model's, which can be {those}")
        raise UserError(f"{folder} has a model of type {kind!r}; supported are {those}")
    try:
        family.check(config)
    except UserError as error:
        raise UserError(f"{folder} has {error}") from None
    except (AttributeError, TypeError):
        raise UserError(f"{folder}/config.json has a setting of another type than transformers writes") from None
    return config, family


def _arguments(config, family, folder):
    try:
        arguments = family.arguments(config)
    except KeyError as missing:
        raise UserError(f"{folder}/config.json has no {missing.args[0]}") from None
    except UserError as error:
        raise UserError(f"{folder}/config.json: {error}") from None
    except (TypeError, ValueError, AttributeError, ZeroDivisionError):
        raise UserError(f"{folder}/config.json has a size that is not a number") from None
    return arguments


def _check_sizes(arguments, tensors, family, folder, skipped, head_width):
    """Checks the configuration's sizes against the tensors, before memory is allocated by them."""
    try:
        check_encoder(arguments)
    except UserError as error:
        raise UserError(f"{folder}/config.json: {error}") from None
    width, hidden = arguments["input_embedding_dim"], arguments["hidden_dim"]
    block = block_of(arguments)
    up = next(shape for shape in block.feed_forward_shapes(arguments) if len(shape) > 1)
    first = next(name for name in block.huggingface_names[family.naming] if name.endswith("/up"))
    sizes = {
        INPUT_TABLE: (arguments["vocabulary_size"], width),
        f"block_0/{first}/kernel": up[::-1],
    }
    if has_position_table(arguments):
        sizes["embeddings/position/embeddings"] = (arguments["max_sequence_length"] + skipped, None)
    if arguments["num_segments"]:
        sizes["embeddings/segment/embeddings"] = (arguments["num_segments"], None)
    if head_width is not None:
        sizes["head/dense/kernel"] = (head_width, hidden)
    for path, wanted in sizes.items():
        theirs = family.place(path, groups_of(arguments)).name
        name = _find(tensors, family, theirs)
        if name is None:
            raise UserError(f"{folder} has no tensor {theirs}")
        found = tuple(tensors[name].shape)
        if len(found) != 2 or any(size not in (None, there) for size, there in zip(wanted, found, strict=True)):
            shown = tuple(there if size is None else size for size, there in zip(wanted, found, strict=False))
            raise UserError(f"{folder}: {name} has shape {found}; config.json wants {shown}")
    if arguments.get("layer_sharing", "none") == "none" and arguments["num_layers"] > len(tensors):
        raise UserError(f"{folder} has too few tensors for {arguments['num_layers']} layers")


def _has_head(tensors, family):
    """Whether there is a masked LM head; ModernBERT's classifiers have the first layers of one."""
    return bool(family.head) and f"{family.head['head/dense']}.weight" in tensors and CLASSIFIER not in tensors


def _is_pooled(tensors, family):
    return family.has_pooler and _find(tensors, family, family.place("pooler/kernel", []).name) is not None


def _find(tensors, family, name):
    """The name of a tensor in a folder: with or without the model's prefix, its former one, or that of a bias."""
    candidates: tuple[str, ...] = (name, name.removeprefix(family.prefix))
    if family.head and name in family.head_biases:
        candidates = family.head_biases
    for new, old in FORMER.items():
        candidates += tuple(each.removesuffix(new) + old for each in candidates if each.endswith(new))
    return next((candidate for candidate in candidates if candidate in tensors), None)


def _with_input_table(tensors, config, family):
    """Tensors of which the input table has its own name if it is stored once, under that of the head that shares it."""
    name, ties = family.place(INPUT_TABLE, []).name, family.ties and config.get("tie_word_embeddings", True)
    own = f"{family.head.get(OUTPUT_TABLE)}.weight"
    if not ties or own not in tensors or _find(tensors, family, name) is not None:
        return tensors
    return ChainMap({name: tensors[own]}, tensors)


def _coupling(config, tensors, family: Family):
    """The coupling of a head's table with the input's, as transformers 5 would load them; and notes."""
    if not family.ties or not config.get("tie_word_embeddings", True):
        return "decoupled", []
    own = f"{family.head[OUTPUT_TABLE]}.weight"
    shared = _find(tensors, family, family.place(INPUT_TABLE, []).name)
    if own not in tensors or _is_same(tensors[own], tensors[shared]):
        return family.tied, []
    return "decoupled", ["config.json ties the tables, but they differ: the head keeps its own"]


def _is_same(one, other):
    if tuple(one.shape) != tuple(other.shape):
        return False
    rows, width = one.shape
    step = max(1, PIECE // width)
    pieces = [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
    return all(np.array_equal(one[piece], other[piece]) for piece in pieces)


def _tensors(folder) -> Mapping[str, Any]:
    """The tensors of a folder by name."""
    if (folder / WHOLE).exists():
        return Tensors(folder / WHOLE)
    pickled = [folder / PICKLED] if (folder / PICKLED).exists() else _shards(folder, PICKLED)
    shards = _shards(folder, WHOLE) or ([] if pickled else sorted(folder.glob("*.safetensors")))
    if shards:
        return Tensors(*shards)
    if not pickled:
        raise UserError(f"{folder} has neither {WHOLE} nor {PICKLED}, nor an index of shards of one")
    return {name: value for path in pickled for name, value in _load_pickled(path).items()}


def _shards(folder, whole):
    """The files that the index of a model in shards names; none without one."""
    index = folder / f"{whole}.index.json"
    if not index.exists():
        return []
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise UserError(f"{index} has no weight_map, which says the file of each tensor")
    return [folder / Path(name).name for name in sorted({*places.values()})]


def _load_pickled(path):
    try:
        import torch
    except ImportError:
        raise UserError(f"{path} needs PyTorch: pip install torch, or save the model as safetensors") from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path} is missing, and the index beside it names it: download it") from None
    except Exception as error:  # noqa: BLE001 - PyTorch raises many kinds; none of them may run code of the file
        raise UserError(f"{path} cannot be read with weights_only=True: {first_line(error)}") from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"{path} has more than tensors by name: save the state_dict of the model alone")
    tensors = {name: value.detach() for name, value in state.items()}  # parameters too
    return {name: (value.float() if value.is_floating_point() else value).numpy() for name, value in tensors.items()}
