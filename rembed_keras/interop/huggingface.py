"""Folders of Hugging Face models: read into an `Encoder` or a `MaskedLM`, and written from one.

What is read and written are arrays and a configuration; no code of a folder runs. Families whose graph an `Encoder`
computes exactly are read: RemBERT, BERT, XLM-R, ALBERT and ELECTRA's discriminator. An encoder is written as the one of
RemBERT, BERT and ALBERT whose graph it has.
"""

import json
from pathlib import Path

import keras
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.interop.names import FAMILIES, is_kernel, to_matrix, torch_names
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.pretraining import encoder_of
from rembed_keras.sizes import groups_of_layers

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}
SPECIAL_IDS = {"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id"}


def read_huggingface(folder: Path) -> tuple[keras.Model, list[str]]:
    """Reads a model.

    Args:
        folder: has `config.json`, and `model.safetensors`, its shards, or `pytorch_model.bin`.

    Returns:
        A `MaskedLM` if the folder has such a head, otherwise an `Encoder`; and what should be known about it.

    Raises:
        UserError: for a folder of no model that can be read, or a tensor that is missing or has the wrong shape.
    """
    config = _read_config(folder)
    tensors = _Tensors(folder)
    family = FAMILIES[config["model_type"]]
    encoder_config = _encoder_config(config, folder)
    has_head = bool(family.head) and f"{family.head['head/dense']}.weight" in tensors
    keras.utils.set_random_seed(0)
    encoder = Encoder(**encoder_config)
    model: keras.Model = encoder
    if has_head:
        is_tied = config["model_type"] != "rembert" and config.get("tie_word_embeddings", True)
        width = config.get("output_embedding_size", encoder_config["input_embedding_dim"])
        model = MaskedLM(encoder, width, coupling="coupled" if is_tied else "decoupled")
    notes = [] if has_head else ["it has no masked-language-model head that can be used: the encoder alone"]
    groups = _groups(encoder_config)
    weights = {weight.path: weight for weight in model.weights}
    is_pooled = (
        family.pooler is not None and _find(tensors, family, f"{family.prefix}{family.pooler}.weight") is not None
    )
    if not is_pooled:
        weights = {path: weight for path, weight in weights.items() if not path.startswith("pooler/")}
        notes.append("it has no pooler: that of the encoder is as initialised, to be trained when a task needs it")
    found = {}
    for path, theirs in torch_names([*weights], family, groups):
        name = _find(tensors, family, theirs)
        if name is None:
            raise UserError(f"{folder} has no tensor {theirs}")
        found[path] = _ours(path, tensors.read(name), tuple(weights[path].shape), family, f"{folder}: {name}")
    for path, weight in weights.items():
        weight.assign(found.pop(path))
    return model, notes


def _read_config(folder):
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}/config.json cannot be read: {getattr(error, 'strerror', None) or error}") from None
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise UserError(f"{folder} has a model of type {kind!r}; what can be read is {', '.join(FAMILIES)}")
    if config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder"):
        raise UserError(f"{folder} has relative positions or is a decoder: no Encoder computes that")
    if config.get("inner_group_num", 1) != 1:
        raise UserError(f"{folder} has inner_group_num {config['inner_group_num']}; only 1 can be read")
    return config


def _encoder_config(config, folder):
    kind = config["model_type"]
    widths = {"rembert": "input_embedding_size", "albert": "embedding_size", "electra": "embedding_size"}
    activation = config.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise UserError(f"{folder} has hidden_act {activation!r}{did_you_mean(activation, ACTIVATIONS)}")
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
            "layer_norm_epsilon": config.get("layer_norm_eps", 1e-12),
            "layer_sharing": "all" if kind == "albert" else "none",
            "layer_groups": config.get("num_hidden_groups", 1) if kind == "albert" else 1,
            "always_project": kind in ("rembert", "albert"),
        }
    except KeyError as missing:
        raise UserError(f"{folder}/config.json has no {missing.args[0]}") from None


def _groups(config):
    if config["layer_sharing"] == "none":
        return [*range(config["num_layers"])]
    return groups_of_layers(config["num_layers"], config["layer_groups"])


def _find(tensors, family, name):
    """The name by which a folder has a tensor: with or without the model's prefix; a tied bias goes by two names."""
    candidates = [name, name.removeprefix(family.prefix)]
    if name.endswith(".bias"):
        candidates.append(name.removesuffix("bias") + "decoder.bias")
    return next((candidate for candidate in candidates if candidate in tensors), None)


def _ours(path, array, shape, family, source):
    if path == "embeddings/position/embeddings":
        array = array[family.position_offset :]
    if is_kernel(path):
        array = array.T  # PyTorch keeps [out, in]
    wanted = to_matrix(path, np.empty(shape, np.bool_)).shape
    if array.shape != wanted:
        theirs, ours = (x[::-1] if is_kernel(path) else x for x in (array.shape, wanted))
        raise UserError(f"{source} has shape {theirs}; config.json wants {ours}")
    return np.ascontiguousarray(array, np.float32).reshape(shape)


class _Tensors:
    """The tensors of a folder by name, read one at a time."""

    def __init__(self, folder):
        self._files: dict[str, Path] = {}
        self._loaded: dict[str, np.ndarray] = {}
        shards = sorted(folder.glob("*.safetensors"))
        for shard in shards:
            try:
                with safe_open(shard, framework="np") as file:
                    self._files |= dict.fromkeys(file.keys(), shard)
            except (SafetensorError, OSError) as error:
                raise UserError(f"{shard} is no whole safetensors file, fetch it again: {error}") from None
        if not shards:
            self._loaded = _load_pickled(folder)

    def __contains__(self, name):
        return name in self._files or name in self._loaded

    def read(self, name):
        if name in self._loaded:
            return self._loaded[name]
        with safe_open(self._files[name], framework="np") as file:
            return file.get_tensor(name)


def _load_pickled(folder):
    path = folder / "pytorch_model.bin"
    if not path.exists():
        raise UserError(f"{folder} has neither model.safetensors nor pytorch_model.bin")
    try:
        import torch
    except ImportError:
        raise UserError(f"{path} needs PyTorch to be read: pip install torch, or save it as safetensors") from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - PyTorch raises many kinds; none of them may run code of the file
        raise UserError(f"{path} cannot be read as weights alone: {str(error).splitlines()[0]}") from None
    return {name: value.float().numpy() for name, value in state.items()}


def write_huggingface(model: keras.Model, folder: Path, tokenizer) -> list[str]:
    """Writes a model as RemBERT, BERT or ALBERT, whichever graph it has.

    Args:
        model: an `Encoder` or a `MaskedLM`.
        folder: an empty folder.
        tokenizer: the `Tokenizer`, whose special ids the configuration names; None if there is none.

    Returns:
        What should be known about it.

    Raises:
        UserError: if none of them has the model's graph.
    """
    encoder = encoder_of(model)
    ours = encoder.get_config()
    kind = _kind(ours)
    family = FAMILIES[kind]
    weights = {weight.path: weight.numpy() for weight in model.weights}
    config = _their_config(kind, ours)
    notes: list[str] = []
    architecture = {"rembert": "RemBert", "bert": "Bert", "albert": "Albert"}[kind]
    if isinstance(model, MaskedLM):
        notes = _prepare_head(model, kind, weights, config)
    config["architectures"] = [f"{architecture}ForMaskedLM" if isinstance(model, MaskedLM) else f"{architecture}Model"]
    if tokenizer is not None:
        config |= {theirs: getattr(tokenizer, ours) for theirs, ours in SPECIAL_IDS.items()}
    prefix = family.prefix if isinstance(model, MaskedLM) else ""
    tensors = {}
    for path, theirs in torch_names([*weights], family, _groups(ours)):
        matrix = to_matrix(path, weights[path])
        name = prefix + theirs.removeprefix(family.prefix) if theirs.startswith(family.prefix) else theirs
        tensors[name] = np.ascontiguousarray(matrix.T if is_kernel(path) else matrix)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return notes


def _kind(config):
    """The family that has an encoder's graph."""
    wanted: dict[str, object] = {"block": "bert", "head_dim": None, "input_cutoffs": [], "scalar_mix": False}
    other = [f"{key} {config[key]!r}" for key, value in wanted.items() if config[key] != value]
    if config["num_segments"] < 1:
        other.append("num_segments 0")
    if config["layer_sharing"] not in ("none", "all"):
        other.append(f"layer_sharing {config['layer_sharing']!r}")
    if other:
        raise UserError(f"no model of Hugging Face's has the graph of an encoder with {' and '.join(other)}")
    is_projected = config["always_project"] or config["input_embedding_dim"] != config["hidden_dim"]
    if config["layer_sharing"] == "all":
        if not is_projected or not isinstance(config["layer_groups"], int):
            raise UserError("ALBERT has a projection and groups of neighbouring layers; this encoder has not")
        return "albert"
    return "rembert" if is_projected else "bert"


def _their_config(kind, ours):
    config = {
        "model_type": kind,
        "vocab_size": ours["vocabulary_size"],
        "num_hidden_layers": ours["num_layers"],
        "num_attention_heads": ours["num_heads"],
        "hidden_size": ours["hidden_dim"],
        "intermediate_size": ours["intermediate_dim"],
        "max_position_embeddings": ours["max_sequence_length"],
        "type_vocab_size": ours["num_segments"],
        "hidden_dropout_prob": ours["dropout"],
        "attention_probs_dropout_prob": ours["dropout"],
        "hidden_act": THEIR_ACTIVATIONS[ours["activation"]],
        "layer_norm_eps": ours["layer_norm_epsilon"],
    }
    if kind == "albert":
        config |= {"num_hidden_groups": ours["layer_groups"], "inner_group_num": 1}
        config["embedding_size"] = ours["input_embedding_dim"]
    if kind == "rembert":
        config["input_embedding_size"] = ours["input_embedding_dim"]
    return config


def _prepare_head(model, kind, weights, config):
    """Makes the head's weights those of a family's head, and its configuration say so."""
    own = "head/output_embedding/decoupled/table/embeddings"
    arguments, width = model.get_config(), model.head.dense.units
    coupling, notes = arguments["coupling"], []
    if arguments["output_cutoffs"]:
        raise UserError("no model of Hugging Face's has an output embedding with output_cutoffs")
    if kind == "rembert":
        config["output_embedding_size"] = width
    elif width != model.encoder.get_config()["input_embedding_dim"]:
        raise UserError(f"the head of {kind} is as wide as its input embedding; this one's width is {width}")
    if coupling == "gdes":
        difference = weights.pop("head/output_embedding/gdes/difference/embeddings")
        weights[own] = weights["embeddings/token/embeddings"] + difference
        notes.append("the output table, the input's plus its differences, is written as a table of its own")
    elif coupling == "coupled" and kind == "rembert":
        weights[own] = weights["embeddings/token/embeddings"]
        notes.append("RemBERT ties no tables there: the shared one is written twice")
    config["tie_word_embeddings"] = own not in weights
    return notes
