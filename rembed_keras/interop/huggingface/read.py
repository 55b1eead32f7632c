"""Folders of Hugging Face models, read into an `Encoder` or a `MaskedLM`.

Only arrays and a configuration are read; no code of a folder runs. Supported are the families whose graph an `Encoder`
computes exactly: RemBERT, BERT, XLM-R, ALBERT and ELECTRA's discriminator. Arrays are read a few rows at a time, after
their shapes were checked against the configuration.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from rembed_keras.data.json_files import read_json
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.interop.huggingface.names import FAMILIES, OUTPUT_TABLE, is_kernel, to_matrix, torch_names
from rembed_keras.interop.tensors import Tensors
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.layers.tables import initializer
from rembed_keras.modeling.saving.filling import PIECE, blank, fill
from rembed_keras.modeling.sizes import check_sizes, groups_of_layers

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def read_huggingface(folder: Path) -> tuple[keras.Model, list[str]]:
    """Reads a model.

    Args:
        folder: has `config.json`, and `model.safetensors`, its shards, or `pytorch_model.bin`.

    Returns:
        A `MaskedLM` if the folder has such a head, otherwise an `Encoder`; and notes.

    Raises:
        UserError: for an unsupported model, or a tensor that is missing or has the wrong shape.
    """
    config = _read_config(folder)
    tensors = _tensors(folder)
    family = FAMILIES[config["model_type"]]
    encoder_config = _encoder_config(config, folder)
    has_head = bool(family.head) and f"{family.head['head/dense']}.weight" in tensors
    width = config.get("output_embedding_size", encoder_config["input_embedding_dim"])
    _check_sizes(encoder_config, tensors, family, folder, width if has_head else None)
    notes = [] if has_head else ["it has no usable masked LM head: only the encoder is read"]
    with blank():
        encoder = Encoder(**encoder_config)
        model: keras.Model = encoder
        if has_head:
            coupling, notes = _coupling(config, tensors, family)
            model = MaskedLM(encoder, width, coupling=coupling)
    groups = groups_of(encoder_config)
    weights = {weight.path: weight for weight in model.weights}
    is_pooled = (
        family.pooler is not None and _find(tensors, family, f"{family.prefix}{family.pooler}.weight") is not None
    )
    if not is_pooled:
        keras.utils.set_random_seed(0)
        kernel = weights["pooler/kernel"]
        kernel.assign(initializer()(kernel.shape, kernel.dtype))
        weights = {path: weight for path, weight in weights.items() if not path.startswith("pooler/")}
        notes.append("it has no pooler: the encoder's is randomly initialized, and trained with a task that needs it")
    found = {}
    for path, theirs in torch_names([*weights], family, groups):
        name = _find(tensors, family, theirs)
        if name is None:
            raise UserError(f"{folder} has no tensor {theirs}")
        _check_shape(path, tensors[name].shape, weights[path].shape, family, f"{folder}: {name}")
        found[path] = name
    for path, weight in weights.items():
        fill(weight, _Ours(path, tensors[found[path]], weight.shape, family))
    return model, notes


def encoder_arguments(folder: Path) -> dict[str, Any]:
    """Arguments of the `Encoder` of a folder's model, of which only `config.json` is read.

    Raises:
        UserError: for an unsupported model.
    """
    return _encoder_config(_read_config(folder), folder)


def _read_config(folder):
    config = read_json(folder / "config.json")
    kind = config.get("model_type")
    if kind not in [*FAMILIES]:
        raise UserError(f"{folder} has a model of type {kind!r}; supported are {', '.join(FAMILIES)}")
    if config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder"):
        raise UserError(f"{folder} has relative positions or is a decoder, which is not supported")
    if config.get("inner_group_num", 1) != 1:
        raise UserError(f"{folder} has inner_group_num {config['inner_group_num']}; only 1 is supported")
    return config


def _encoder_config(config, folder):
    kind = config["model_type"]
    widths = {"rembert": "input_embedding_size", "albert": "embedding_size", "electra": "embedding_size"}
    activation = config.get("hidden_act", "gelu")
    if activation not in [*ACTIVATIONS]:
        raise UserError(f"{folder} has hidden_act {activation!r}{did_you_mean(str(activation), ACTIVATIONS)}")
    try:
        return {
            "vocabulary_size": config["vocab_size"],
            "num_layers": config["num_hidden_layers"],
            "num_heads": config["num_attention_heads"],
            "hidden_dim": config["hidden_size"],
            "intermediate_dim": config["intermediate_size"],
            "input_embedding_dim": config[widths.get(kind, "hidden_size")],
            "max_sequence_length": config["max_position_embeddings"] - FAMILIES[kind].position_offset,
            "num_segments": config["type_vocab_size"],
            "dropout": float(config.get("hidden_dropout_prob", 0.0)),
            "activation": ACTIVATIONS[activation],
            "layer_norm_epsilon": float(config.get("layer_norm_eps", 1e-12)),
            "layer_sharing": "all" if kind == "albert" else "none",
            "layer_groups": config.get("num_hidden_groups", 1) if kind == "albert" else 1,
            "always_project": kind in ("rembert", "albert"),
        }
    except KeyError as missing:
        raise UserError(f"{folder}/config.json has no {missing.args[0]}") from None
    except (TypeError, ValueError):
        raise UserError(f"{folder}/config.json has a size that is not a number") from None


def _check_sizes(config, tensors, family, folder, head_width):
    """Checks the configuration's sizes against the tensors, before memory is allocated by them."""
    try:
        check_sizes(config)
        groups_of(config)
    except UserError as error:
        raise UserError(f"{folder}/config.json: {error}") from None
    sizes = {
        "embeddings.word_embeddings.weight": (config["vocabulary_size"], config["input_embedding_dim"]),
        "embeddings.position_embeddings.weight": (config["max_sequence_length"] + family.position_offset, None),
        "embeddings.token_type_embeddings.weight": (config["num_segments"], None),
        f"{family.block.format(0)}{family.in_block['feed_forward/up']}.weight": (
            config["intermediate_dim"],
            config["hidden_dim"],
        ),
    }
    sizes = {f"{family.prefix}{theirs}": wanted for theirs, wanted in sizes.items()}
    if head_width is not None:
        sizes[f"{family.head['head/dense']}.weight"] = (head_width, config["hidden_dim"])
    for theirs, wanted in sizes.items():
        name = _find(tensors, family, theirs)
        if name is None:
            raise UserError(f"{folder} has no tensor {theirs}")
        found = tuple(tensors[name].shape)
        if len(found) != 2 or any(size not in (None, there) for size, there in zip(wanted, found, strict=True)):
            shown = tuple(there if size is None else size for size, there in zip(wanted, found, strict=False))
            raise UserError(f"{folder}: {name} has shape {found}; config.json wants {shown}")
    if config["layer_sharing"] == "none" and config["num_layers"] > len(tensors):
        raise UserError(f"{folder} has too few tensors for {config['num_layers']} layers")


def groups_of(config: dict) -> list[int]:
    """The group of shared weights of each layer, from an encoder's configuration."""
    if config["layer_sharing"] == "none":
        return [*range(config["num_layers"])]
    return groups_of_layers(config["num_layers"], config["layer_groups"])


def _find(tensors, family, name):
    """The name of a tensor in a folder: with or without the model's prefix, or the alternative of a head's bias."""
    candidates: tuple[str, ...] = (name, name.removeprefix(family.prefix))
    if family.head and name in family.head_biases:
        candidates = family.head_biases
    return next((candidate for candidate in candidates if candidate in tensors), None)


def _coupling(config, tensors, family):
    """The coupling of a head's table with the input's, as transformers 5 would load them; and notes."""
    if config["model_type"] == "rembert" or not config.get("tie_word_embeddings", True):
        return "decoupled", []
    own = f"{family.head[OUTPUT_TABLE]}.weight"
    shared = _find(tensors, family, f"{family.prefix}embeddings.word_embeddings.weight")
    if own not in tensors or _is_same(tensors[own], tensors[shared]):
        return "coupled", []
    return "decoupled", ["config.json ties the tables, but they differ: the head keeps its own"]


def _is_same(one, other):
    if tuple(one.shape) != tuple(other.shape):
        return False
    rows, width = one.shape
    step = max(1, PIECE // width)
    pieces = [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
    return all(np.array_equal(one[piece], other[piece]) for piece in pieces)


def _check_shape(path, theirs, shape, family, source):
    wanted = to_matrix(path, np.empty(shape, np.bool_)).shape
    if path == "embeddings/position/embeddings":
        wanted = (wanted[0] + family.position_offset, *wanted[1:])
    if is_kernel(path):
        wanted = wanted[::-1]  # PyTorch keeps [out, in]
    if tuple(theirs) != wanted:
        raise UserError(f"{source} has shape {tuple(theirs)}; config.json wants {wanted}")


class _Ours:
    """A tensor of theirs in our layout, read lazily."""

    def __init__(self, path, tensor, shape, family):
        self.shape = tuple(shape)
        self._path, self._tensor = path, tensor
        self._skipped = family.position_offset if path == "embeddings/position/embeddings" else 0

    def __getitem__(self, rows):
        if is_kernel(self._path):  # ours is [in, ...] or [H, K, out], theirs [out, in]
            width = self._tensor.shape[1] // self.shape[0]
            theirs = self._tensor[:, rows.start * width : rows.stop * width]
            return np.ascontiguousarray(theirs.T, np.float32).reshape(-1, *self.shape[1:])
        return np.asarray(self._tensor[rows.start + self._skipped : rows.stop + self._skipped], np.float32)

    def __array__(self, dtype=None, copy=None):
        array = np.asarray(self._tensor, np.float32)[self._skipped :]
        return np.ascontiguousarray(array.T if is_kernel(self._path) else array).reshape(self.shape)


def _tensors(folder) -> Mapping[str, Any]:
    """The tensors of a folder by name."""
    shards = sorted(folder.glob("*.safetensors"))
    return Tensors(*shards) if shards else _load_pickled(folder)


def _load_pickled(folder):
    path = folder / "pytorch_model.bin"
    if not path.exists():
        raise UserError(f"{folder} has neither model.safetensors nor pytorch_model.bin")
    try:
        import torch
    except ImportError:
        raise UserError(f"{path} needs PyTorch: pip install torch, or save the model as safetensors") from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - PyTorch raises many kinds; none of them may run code of the file
        raise UserError(f"{path} cannot be read with weights_only=True: {str(error).splitlines()[0]}") from None
    return {name: value.float().numpy() for name, value in state.items()}
