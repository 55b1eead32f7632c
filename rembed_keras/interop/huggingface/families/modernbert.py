"""ModernBERT and mmBERT. Source: Warner et al. 2024; Marone et al. 2025; the state dict of ModernBertForMaskedLM."""

from types import MappingProxyType

import numpy as np

from rembed_keras.errors import UserError, shortened
from rembed_keras.interop.huggingface.families.family import OUTPUT, OUTPUT_TABLE, SIZES, Family
from rembed_keras.modeling.attention import Global, Local
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.modeling.blocks.stack import attention_of
from rembed_keras.modeling.choices import described
from rembed_keras.modeling.sizes import check_sizes

FULL, SLIDING = "full_attention", "sliding_attention"
BASES = {FULL: 160_000.0, SLIDING: 10_000.0}  # where a configuration of version 5 says none
FORMER = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}  # before version 5


class ModernBert(Family):
    """ModernBERT: blocks with norms first, rotary positions, local and global layers; no segments and no pooler."""

    kind = "modernbert"
    architecture = "ModernBert"
    prefix = "model."
    block = "layers.{}."
    naming = "modernbert"
    outside = MappingProxyType(
        {"embeddings/token": "embeddings.tok_embeddings", "embeddings/norm": "embeddings.norm", "norm": "final_norm"}
    )
    head = MappingProxyType(
        {"head/dense": "head.dense", "head/norm": "head.norm", OUTPUT: "decoder", OUTPUT_TABLE: "decoder"}
    )
    sizes = MappingProxyType({ours: theirs for ours, theirs in SIZES.items() if ours != "num_segments"})
    implied = MappingProxyType({"always_project": False, "num_segments": 0, "block": described(PreNorm())})
    rates = ("mlp_dropout", "attention_dropout", "embedding_dropout")
    activation = "hidden_activation"
    epsilon = "norm_eps"
    usual_epsilon = 1e-5

    def check(self, config):
        super().check({**config, "position_embedding_type": "absolute"})  # of no effect: mmBERT's says "sans_pos"
        biased = [key for key in ("norm_bias", "attention_bias", "mlp_bias") if config.get(key)]
        if biased:
            raise UserError(f"{biased[0]}, which blocks without biases have no place for")
        if config.get("classifier_activation", "gelu") != config.get(self.activation, "gelu"):
            raise UserError("another activation in its head than in its blocks")
        scaling = config.get("rope_scaling") or {}
        if _rope_type(scaling) != "default" or "rope_theta" in scaling:
            raise UserError(f"rope_scaling {shortened(scaling)}, which is not supported")
        for rotary in (config.get("rope_parameters") or {}).values():
            if isinstance(rotary, dict) and (kind := _rope_type(rotary)) != "default":
                raise UserError(f"rope_type {kind!r}; only 'default' is supported")

    def arguments(self, config):
        kinds = {
            FULL: described(Global(_base(config, FULL))),
            SLIDING: described(Local(config.get("local_attention", 128), _base(config, SLIDING))),
        }
        attention = [kinds[kind] for kind in _layer_types(config)]
        return super().arguments(config) | {"attention": attention}

    def config(self, ours, pad_id):
        kinds = attention_of(ours)
        full = next((kind for kind in kinds if type(kind) is Global), Global())
        local = next((kind for kind in kinds if type(kind) is Local), Local(rotary_base=full.rotary_base))
        bases = {FULL: full.rotary_base, SLIDING: local.rotary_base}
        types = [SLIDING if type(kind) is Local else FULL for kind in kinds]
        every = next((layer for layer, kind in enumerate(types) if layer and kind == FULL), len(types))
        config = super().config(ours, pad_id) | {
            "local_attention": local.window,
            "layer_types": types,
            # before version 5 alone: it would take a number for the truth, and fails without one
            "global_attn_every_n_layers": every if types == _every(every, len(types)) else None,
            "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
            "norm_bias": False,
            "attention_bias": False,
            "mlp_bias": False,
            "decoder_bias": True,
        }
        config |= {FORMER[kind]: base for kind, base in bases.items()}
        return config | {"classifier_activation": config[self.activation]}

    def cautions(self, config):
        if config["global_attn_every_n_layers"] is None:
            return ["its local and global layers take no regular turns: transformers reads that from version 5 on"]
        return []

    def absent(self, config):
        without = {"head/norm/beta"}
        without |= {"head/dense/bias"} if not config.get("classifier_bias", False) else set()
        without |= {f"{OUTPUT}/bias"} if not config.get("decoder_bias", True) else set()
        return frozenset(without)

    def head_config(self, weights, table):
        """The head's norm has no bias, so that ours goes into the bias of the scores, which is the same sum."""
        notes, shift = [], np.asarray(weights.pop("head/norm/beta"))
        if shift.any():
            weights[f"{OUTPUT}/bias"] = np.asarray(weights[f"{OUTPUT}/bias"]) + np.asarray(table, np.float32) @ shift
            notes.append("the bias of the head's norm is written as a part of the output bias")
        has_bias = bool(np.any(weights["head/dense/bias"]))
        if not has_bias:
            del weights["head/dense/bias"]
        return {"classifier_bias": has_bias}, notes


def _rope_type(said):
    """The kind of rotations, by the name of its setting or by the former one."""
    return said.get("rope_type", said.get("type", "default"))


def _base(config, kind):
    """The rotary base of layers of a kind, as one version of transformers or the other says it."""
    said = ((config.get("rope_parameters") or {}).get(kind) or {}).get("rope_theta")
    former = config.get(FORMER[kind], BASES[kind])
    if former is None:  # local layers turn as global ones then
        former = config.get(FORMER[FULL], BASES[FULL])
    return float(former if said is None else said)


def _layer_types(config):
    """The kind of each layer, FULL or SLIDING."""
    every, count = config.get("global_attn_every_n_layers", 3), config["num_hidden_layers"]
    check_sizes({"num_layers": count})  # before as many are listed
    types = config.get("layer_types") or _every(every, count)
    if len(types) != count or not {*types} <= {FULL, SLIDING}:
        raise UserError(f"layer_types must say {FULL} or {SLIDING} of each of {count} layers")
    return types


def _every(every, count):
    """Kinds of layers of which each n-th is global, the first of all included."""
    return [SLIDING if layer % every else FULL for layer in range(count)]
