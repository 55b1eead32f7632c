"""What a family of Hugging Face's models says of itself: its configuration and the places of its weights.

A family is an object of constants. It says which arguments an encoder has of its configuration and the other way round,
so that it can express an encoder if, and only if, its own configuration of it reads as the same encoder.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rembed_keras.errors import UserError, did_you_mean, shortened
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks.stack import (
    attention_of,
    block_of,
    has_position_table,
    has_projection,
    input_embedding_of,
)

TANH = ("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate")  # all one approximation
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_python": "gelu", **dict.fromkeys(TANH, "gelu_tanh")}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
OUTPUT = "head/output_embedding"
OUTPUT_TABLE = f"{OUTPUT}/decoupled/table"
ENDINGS = {"embeddings": "weight", "kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
SIZES = MappingProxyType(
    {
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "input_embedding_dim": "hidden_size",
        "max_sequence_length": "max_position_embeddings",
        "num_segments": "type_vocab_size",
    }
)  # of an encoder, by its arguments
NOT_OF_THE_GRAPH = ("freeze_input_embedding", "rematerialize", "dropout", "name", "trainable", "dtype")
CONSEQUENCES = {
    "always_project": {"input_embedding_dim", "input_embedding"},
    "arguments of attention": {"attention", "block"},
    "arguments of block": {"block"},
    "layer_groups": {"layer_sharing"},
    "max_sequence_length": {"block"},
}  # what may differ because others do
DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(Encoder).parameters.items()
    if parameter.default is not inspect.Parameter.empty and name not in (*NOT_OF_THE_GRAPH, "parts")
}


@dataclass(frozen=True)
class Place:
    """Where an array of ours is among theirs.

    Attributes:
        name: of their array.
        part: which of its `parts`, one upon the other, ours is.
        parts: how many there are.
        skipped: rows of it before ours.
    """

    name: str
    part: int = 0
    parts: int = 1
    skipped: int = 0


class Family:
    """A kind of model; BERT's names are the usual ones.

    Attributes:
        kind: as `model_type` in their configurations.
        architecture: what the names of its classes begin with.
        prefix: of the names of encoder layers in a model with a head.
        block: the name of a block, with `{}` for its index, or that of its group.
        naming: by which its block's names go; see `huggingface_names` of a block.
        outside: names of the encoder's other layers, by ours; those that it lacks are left out.
        head: names of the head's layers, by ours; empty for a family with another kind of head.
        sizes: their names of sizes, by our arguments.
        implied: arguments that all its encoders have.
        rates: their names of dropout rates, the first being read.
        activation: their name of the activation.
        epsilon: their name of the norms' epsilon; None where it is always 1e-12.
        usual_activation: the activation where a configuration says none.
        usual_epsilon: the epsilon where it says none.
        head_activation: that of a head, whatever that of the blocks is; None where it is theirs.
        fewest_segments: rows that the segment table has at least.
        has_wide_head: whether a head has a width of its own.
        ties: whether a head can share the input table.
        tied: the coupling of a head that does.
        unties: whether one can have a table of its own.
        doubles_separator: whether two separators are between the texts of a pair.
        usual_pad: the id of padding where no tokenizer says it.
    """

    kind = ""
    architecture = ""
    prefix = ""
    block = "encoder.layer.{}."
    naming = "bert"
    outside: Mapping[str, str] = MappingProxyType(
        {
            "embeddings/token": "embeddings.word_embeddings",
            "embeddings/position": "embeddings.position_embeddings",
            "embeddings/segment": "embeddings.token_type_embeddings",
            "embeddings/norm": "embeddings.LayerNorm",
            "pooler": "pooler.dense",
        }
    )
    head: Mapping[str, str] = MappingProxyType({})
    sizes: Mapping[str, str] = SIZES
    implied: Mapping[str, Any] = MappingProxyType({"always_project": False})
    rates: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    activation = "hidden_act"
    epsilon: str | None = "layer_norm_eps"
    usual_activation = "gelu"
    usual_epsilon = 1e-12
    head_activation: str | None = None
    fewest_segments = 1
    has_wide_head = False
    ties = True
    tied = "coupled"
    unties = True
    doubles_separator = False
    usual_pad = 0

    def check(self, config: Mapping[str, Any]) -> None:
        """Checks what a configuration asks for beside sizes.

        Raises:
            UserError: for what an `Encoder` does not compute; what follows "it has".
        """
        if config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder"):
            raise UserError("relative positions or is a decoder, which is not supported")
        if config.get("quantization_config"):
            raise UserError("a quantization_config, and weights that are quantized are not read")
        activation = config.get(self.activation, self.usual_activation)
        if activation not in [*ACTIVATIONS]:
            raise UserError(f"{self.activation} {activation!r}{did_you_mean(str(activation), ACTIVATIONS)}")

    def arguments(self, config: Mapping[str, Any]) -> dict:
        """The arguments of the `Encoder` that a configuration describes.

        Raises:
            KeyError: for a size that it lacks.
            TypeError, ValueError: for one that is not a number.
        """
        arguments = {ours: config[theirs] for ours, theirs in self.sizes.items()}
        if "max_sequence_length" in arguments:
            arguments["max_sequence_length"] -= self.skipped_positions(config)
        arguments["dropout"] = float(config.get(self.rates[0], 0.0))
        arguments["activation"] = ACTIVATIONS[config.get(self.activation, self.usual_activation)]
        usual = self.usual_epsilon
        arguments["layer_norm_epsilon"] = usual if self.epsilon is None else float(config.get(self.epsilon, usual))
        return {**arguments, **self.implied}

    def config(self, ours: Mapping[str, Any], pad_id: int) -> dict:
        """The configuration of an encoder.

        Args:
            ours: its arguments.
            pad_id: id of padding.
        """
        config: dict[str, Any] = {"model_type": self.kind}
        config |= {theirs: ours[argument] for argument, theirs in reversed([*self.sizes.items()])}
        config |= dict.fromkeys(self.rates, ours["dropout"])
        config[self.activation] = THEIR_ACTIVATIONS[ours["activation"]]
        if self.epsilon is not None:
            config[self.epsilon] = ours["layer_norm_epsilon"]
        config["pad_token_id"] = pad_id
        if "max_sequence_length" in self.sizes:
            config[self.sizes["max_sequence_length"]] += self.skipped_positions(config)
        return config

    def obstacles(self, ours: Mapping[str, Any]) -> list[str]:
        """What of an encoder the family cannot express, for example "head_dim 4"; nothing if it can."""
        wanted, theirs = _graph(ours), _graph(DEFAULTS | self.arguments(self.config(ours, pad_id=0)))
        found = {key: value for key, value in wanted.items() if value != theirs[key]}
        if "num_segments" in self.sizes and ours["num_segments"] < self.fewest_segments:
            found["num_segments"] = ours["num_segments"]
        for key, causes in CONSEQUENCES.items():
            if found.keys() & causes:
                found.pop(key, None)
        return [f"{key} {_shown(value)}" for key, value in found.items()]

    def skipped_positions(self, config: Mapping[str, Any]) -> int:
        """Rows of the position table before that of the first token."""
        return 0

    def absent(self, config: Mapping[str, Any]) -> frozenset[str]:
        """Paths of our weights that its models lack, and which are 0 then."""
        return frozenset()

    def head_width(self, config: Mapping[str, Any], ours: Mapping[str, Any]) -> int:
        """Width of a head's features, from the configuration and the encoder's arguments."""
        return ours["input_embedding_dim"]

    def odd_activation(self, ours: Mapping[str, Any]) -> str | None:
        """The activation of a head if it is not that of the blocks, from the encoder's arguments."""
        return self.head_activation if self.head_activation != ours["activation"] else None

    def head_config(self, weights: dict[str, Any], table: Any) -> tuple[dict, list[str]]:
        """Prepares the weights of a head, by our paths, to be written.

        Args:
            weights: which may be changed.
            table: the output table [V, E], or None.

        Returns:
            What the head adds to the configuration, and notes.
        """
        return {}, []

    def cautions(self, config: Mapping[str, Any]) -> list[str]:
        """Notes on who cannot read a configuration that was written."""
        return []

    @property
    def has_pooler(self) -> bool:
        """Whether its encoders have one."""
        return "pooler" in self.outside

    def place(self, path: str, groups: list[int], skipped_positions: int = 0) -> Place:
        """Where a weight is.

        Args:
            path: ours, for example "block_3/feed_forward/up/kernel".
            groups: the group whose weights each layer has; its own number where nothing is shared.
            skipped_positions: see the method.

        Raises:
            UserError: if the family has no such layer.
        """
        layer, _, ending = path.rpartition("/")
        name, part, parts = self.name_of(layer, groups), 0, 1
        if name is None:
            raise UserError(f"{self.kind} has no layer {layer}")
        if fused := re.fullmatch(r"(.+)\[(\d+)/(\d+)\]", name):
            name, part, parts = fused[1], int(fused[2]), int(fused[3])
        skipped = skipped_positions if layer == "embeddings/position" else 0
        return Place(f"{name}.{ENDINGS[ending]}", part, parts, skipped)

    def name_of(self, ours, groups):
        """Their name of a layer; None if there is none."""
        if in_block := re.fullmatch(r"block_(\d+)/(.+)", ours):
            names = block_of({"block": self.implied.get("block")}).huggingface_names[self.naming]
            name = names.get(in_block[2])
            return name and self.prefix + self.block.format(groups[int(in_block[1])]) + name
        if ours in self.head:
            return self.head[ours]
        name = self.outside.get(ours)
        return name and self.prefix + name

    @property
    def head_biases(self) -> tuple[str, str]:
        """Names of the bias of a head's output embedding, that of the decoder first.

        Before version 5, transformers keeps one array under both and saves it by the second name; since then they are
        two arrays in a head that is not tied, and the second is never used.
        """
        return f"{self.head[OUTPUT_TABLE]}.bias", f"{self.head[OUTPUT]}.bias"


def _graph(arguments: Mapping[str, Any]) -> dict:
    """The arguments on which an encoder's graph depends, each graph said in one way."""
    own = {key: arguments[key] for key in DEFAULTS | dict(arguments) if key not in NOT_OF_THE_GRAPH}
    kinds = attention_of(arguments)
    own["block"] = type(block_of(arguments))
    own["arguments of block"] = block_of(arguments).get_config()
    own["input_embedding"] = type(input_embedding_of(arguments))
    own["attention"] = [type(kind) for kind in kinds]
    unread = ("kernel",) if block_of(arguments).is_rotary else ("kernel", "rotary_base")
    configs = [kind.get_config() for kind in kinds]
    own["arguments of attention"] = [{key: each[key] for key in each if key not in unread} for each in configs]
    own["always_project"] = has_projection(arguments)
    own["input_cutoffs"] = [*own["input_cutoffs"]]
    if own["head_dim"] == own["hidden_dim"] // own["num_heads"]:
        own["head_dim"] = None
    if own["layer_sharing"] == "none":
        own["layer_groups"] = 1
    if not has_position_table(arguments):
        own["max_sequence_length"] = None
    return own


def _shown(value):
    if isinstance(value, list) and value and isinstance(value[0], type):
        return ", ".join(dict.fromkeys(_shown(kind) for kind in value))
    return value.__name__ if isinstance(value, type) else shortened(value)
