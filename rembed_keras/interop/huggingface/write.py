"""Folders of Hugging Face models, written from an `Encoder` or a `MaskedLM` in the family that has its graph."""

import json
from pathlib import Path

import keras
import numpy as np

from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.interop.huggingface.families import FAMILIES, Family, Place
from rembed_keras.interop.huggingface.families.family import OUTPUT, OUTPUT_TABLE
from rembed_keras.interop.huggingface.layout import WHOLE, to_torch
from rembed_keras.interop.tensors import write_tensors
from rembed_keras.modeling import MaskedLM
from rembed_keras.modeling.layers.adapters import plain_weights
from rembed_keras.modeling.objectives.pretraining import encoder_of
from rembed_keras.modeling.sizes import groups_of

SPECIAL_IDS = {"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id"}
OUTPUT_BIAS = f"{OUTPUT}/bias"
TOKEN_TABLE = "embeddings/token/embeddings"


def write_huggingface(model: keras.Model, folder: Path, tokenizer, family: str | None = None) -> list[str]:
    """Writes a model in a family that has its graph.

    Args:
        model: an `Encoder` or a `MaskedLM`.
        folder: an empty folder.
        tokenizer: the `Tokenizer`, whose special ids go into the configuration; None if there is none.
        family: the family's name, for example "roberta"; the first that has the graph by default.

    Returns:
        Notes.

    Raises:
        UserError: if no family, or not that one, has the model's graph, or it has adapters, LoRA or quantized layers.
    """
    encoder = encoder_of(model)
    ours = encoder.arguments
    chosen = family_of(ours, family)
    weights = plain_weights(model)
    config = chosen.config(ours, chosen.usual_pad if tokenizer is None else tokenizer.pad_id)
    has_head, notes = isinstance(model, MaskedLM), chosen.cautions(config)
    if has_head:
        notes += _prepare_head(model, chosen, weights, config)
    config["architectures"] = [f"{chosen.architecture}{'ForMaskedLM' if has_head else 'Model'}"]
    if tokenizer is not None:
        config |= {theirs: getattr(tokenizer, ours) for theirs, ours in SPECIAL_IDS.items()}
    groups, skipped = groups_of(ours), chosen.skipped_positions(config)
    if not chosen.has_pooler:
        weights = {path: value for path, value in weights.items() if not path.startswith("pooler/")}
        notes.append(f"{chosen.kind} has no pooler: the encoder's is left out")
    tensors = to_torch([(path, chosen.place(path, groups, skipped), value) for path, value in weights.items()])
    if has_head and not config.get("tie_word_embeddings", True):
        both = [(OUTPUT_BIAS, Place(name), weights[OUTPUT_BIAS]) for name in chosen.head_biases]
        tensors |= to_torch(both)
    if not has_head:
        tensors = {name.removeprefix(chosen.prefix): value for name, value in tensors.items()}
    write_tensors(tensors, folder / WHOLE)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return notes


def family_of(ours: dict, name: str | None = None) -> Family:
    """The family that an encoder is written in.

    Args:
        ours: the encoder's arguments.
        name: of the family; by default the first that has the encoder's graph.

    Raises:
        UserError: if none has it, or not that one.
    """
    if name is None:
        obstacles = {family: family.obstacles(ours) for family in FAMILIES.values()}
        family = min(obstacles, key=lambda each: len(obstacles[each]))  # the first of those with none
        if obstacles[family]:
            those = " and ".join(obstacles[family])
            raise UserError(
                f"no Hugging Face model has the graph of an encoder with {those}; {family.kind} comes closest"
            )
        return family
    check_family(name)
    if obstacle := FAMILIES[name].obstacles(ours):
        raise UserError(f"{name} does not have the graph of an encoder with {' and '.join(obstacle)}")
    return FAMILIES[name]


def check_family(name: str) -> None:
    """Refuses what is no family.

    Raises:
        UserError: naming those that there are.
    """
    if name not in FAMILIES:
        raise UserError(f"family is {name!r}; it can be one of {', '.join(FAMILIES)}{did_you_mean(name, FAMILIES)}")


def check_head(family: Family, ours: dict, width: int, coupling: str, has_cutoffs: bool) -> None:
    """Refuses a masked-LM head that a family cannot have.

    Args:
        family: the family.
        ours: the encoder's arguments.
        width: E_out of the head.
        coupling: the name of its kind.
        has_cutoffs: whether its table is in bands.

    Raises:
        UserError: saying what it must be.
    """
    if not family.head:
        raise UserError(f"{family.kind} has another kind of head: write the encoder alone")
    if has_cutoffs:
        raise UserError("no Hugging Face model has an output embedding with output_cutoffs")
    wanted = width if family.has_wide_head else family.head_width({}, ours)
    if width != wanted:
        raise UserError(f"the head of {family.kind} must be of width {wanted}; this one's width is {width}")
    if odd := family.odd_activation(ours):
        raise UserError(f"the head of {family.kind} must have activation {odd!r}; this one's is {ours['activation']!r}")
    if not family.unties and coupling != family.tied:
        raise UserError(f"the head of {family.kind} must have coupling {family.tied!r}; this one's is {coupling!r}")


def _prepare_head(model, family, weights, config):
    """Adapts the head's weights and configuration to a family's head; returns notes."""
    own = f"{OUTPUT_TABLE}/embeddings"
    arguments, width = model.get_config(), model.head.dense.units
    kind, notes = model.head.output_embedding.coupling.kind, []
    check_head(family, model.encoder.arguments, width, kind.name, bool(arguments["output_cutoffs"]))
    if family.has_wide_head:
        config["output_embedding_size"] = width
    is_tied = family.ties and kind.name == family.tied
    if own not in weights and not is_tied:
        tables, shared = model.head.output_embedding.coupling.own, weights[TOKEN_TABLE]
        parts = {name: np.asarray(weights.pop(f"{OUTPUT}/{kind.name}/{name}/embeddings")) for name in tables}
        weights[own] = kind.rows(np.asarray(shared) if parts else shared, parts)
        notes.append(f"the output table, which is {kind.name} with the input table, is written as a table of its own")
    config["tie_word_embeddings"] = own not in weights
    added, said = family.head_config(weights, weights.get(own, weights[TOKEN_TABLE]))
    config |= added
    return notes + said
