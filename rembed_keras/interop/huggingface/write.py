"""Folders of Hugging Face models, written from an `Encoder` or a `MaskedLM`: as RemBERT, BERT or ALBERT."""

import json
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import save_file

from rembed_keras.errors import UserError
from rembed_keras.interop.huggingface.names import FAMILIES, OUTPUT, OUTPUT_TABLE, is_kernel, to_matrix, torch_names
from rembed_keras.interop.huggingface.read import groups_of
from rembed_keras.modeling import MaskedLM
from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.blocks.stack import attention_of, block_of
from rembed_keras.modeling.layers.adapters import plain_weights
from rembed_keras.modeling.objectives.pretraining import encoder_of

THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}
SPECIAL_IDS = {"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id"}


def write_huggingface(model: keras.Model, folder: Path, tokenizer) -> list[str]:
    """Writes a model as RemBERT, BERT or ALBERT, whichever has its graph.

    Args:
        model: an `Encoder` or a `MaskedLM`.
        folder: an empty folder.
        tokenizer: the `Tokenizer`, whose special ids go into the configuration; None if there is none.

    Returns:
        Notes.

    Raises:
        UserError: if none of them has the model's graph, or it has adapters, LoRA or quantized layers.
    """
    encoder = encoder_of(model)
    ours = encoder.get_config()
    kind = _kind(ours)
    family = FAMILIES[kind]
    weights = plain_weights(model)
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
    for path, theirs in torch_names([*weights], family, groups_of(ours)):
        matrix = to_matrix(path, weights[path])
        name = prefix + theirs.removeprefix(family.prefix) if theirs.startswith(family.prefix) else theirs
        tensors[name] = np.ascontiguousarray(matrix.T if is_kernel(path) else matrix)
    if not config.get("tie_word_embeddings", True):
        tensors |= dict.fromkeys(family.head_biases, weights[f"{OUTPUT}/bias"])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return notes


def _kind(config):
    """The family with an encoder's graph."""
    wanted: dict[str, object] = {"head_dim": None, "input_cutoffs": [], "scalar_mix": False}
    other = [f"{key} {config[key]!r}" for key, value in wanted.items() if config[key] != value]
    block = block_of(config)
    other += sorted({f"attention {type(kind).__name__}" for kind in attention_of(config) if type(kind) is not Global})
    if "bert" not in block.huggingface_families:
        other.append(f"block {type(block).__name__}")
    if config["num_segments"] < 1:
        other.append("num_segments 0")
    if config["layer_sharing"] not in ("none", "all"):
        other.append(f"layer_sharing {config['layer_sharing']!r}")
    if other:
        raise UserError(f"no Hugging Face model has the graph of an encoder with {' and '.join(other)}")
    is_projected = config["always_project"] or config["input_embedding_dim"] != config["hidden_dim"]
    if config["layer_sharing"] == "all":
        if not is_projected or not isinstance(config["layer_groups"], int):
            raise UserError(
                "ALBERT needs an embedding projection and groups of adjacent layers; this encoder lacks them"
            )
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
    """Adapts the head's weights and configuration to a family's head; returns notes."""
    own = f"{OUTPUT_TABLE}/embeddings"
    arguments, width = model.get_config(), model.head.dense.units
    coupling, notes = arguments["coupling"], []
    if arguments["output_cutoffs"]:
        raise UserError("no Hugging Face model has an output embedding with output_cutoffs")
    if kind == "rembert":
        config["output_embedding_size"] = width
    elif width != model.encoder.get_config()["input_embedding_dim"]:
        raise UserError(f"the head of {kind} must be as wide as its input embedding; this one's width is {width}")
    if coupling == "gdes":
        difference = weights.pop(f"{OUTPUT}/gdes/difference/embeddings")
        weights[own] = weights["embeddings/token/embeddings"] + difference
        notes.append("the output table, input table plus difference, is written as a table of its own")
    elif coupling == "coupled" and kind == "rembert":
        weights[own] = weights["embeddings/token/embeddings"]
        notes.append("transformers' RemBERT does not tie tables: the shared one is written twice")
    config["tie_word_embeddings"] = own not in weights
    return notes
