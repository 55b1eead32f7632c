"""What distillation costs: the encoder, and maps and a head that are dropped; the teacher's pass is counted apart."""

from collections.abc import Mapping
from typing import Any

from rembed_keras.adaptation.terms.mini_lm import check_relations
from rembed_keras.errors import UserError, is_within, shortened
from rembed_keras.modeling.cost import Config, Entry, inner_dim
from rembed_keras.modeling.encoder_cost import reached_entries
from rembed_keras.modeling.objectives.masked_lm_cost import head_entries


def compared_states(config: Mapping[str, Any], num_layers: int) -> list[int]:
    """Which hidden states of a student are compared; none if their part of the loss has no weight.

    Args:
        config: arguments of a `Distillation`.
        num_layers: the student's.

    Raises:
        UserError: for weights or states that are none, and for logits without a head or the reverse.
    """
    weights = {name: config.get(name, usual) for name, usual in (("hidden_states", 1.0), ("relations", 1.0))}
    weights["logits"] = config.get("logits", 0.0)
    for name, weight in weights.items():
        if not is_within(weight, "Rate"):
            raise UserError(f"{name} of Distillation is {shortened(weight)}; it must be a number of at least 0")
    if not any(weights.values()):
        raise UserError("Distillation has nothing to learn: give hidden_states, relations or logits a weight")
    if bool(weights["logits"]) != (config.get("output_embedding_dim") is not None):
        raise UserError("logits of Distillation need output_embedding_dim, that of the student's head, and only they")
    given = config.get("states")
    states = [*range(num_layers + 1)] if given is None else [*given]
    if not states or len({*states}) < len(states) or not {*states} <= {*range(num_layers + 1)}:
        raise UserError(f"states of Distillation are {shortened(states)}; they can be 0 to {num_layers}, each once")
    return states if weights["hidden_states"] else []


def read_depth(config: Mapping[str, Any], num_layers: int) -> int:
    """How many of a student's blocks the loss reads the output of; relations read heads of the last block besides.

    Args:
        config: arguments of a `Distillation`.
        num_layers: the student's.
    """
    if config.get("logits", 0.0):
        return num_layers
    below = num_layers - 1 if config.get("relations", 1.0) else 0
    return max(below, *compared_states(config, num_layers), 0)


def check_compared(config: Mapping[str, Any], student: Config, teacher: Config) -> None:
    """Checks that a student can be compared with a teacher, as far as the arguments of both encoders say it.

    Args:
        config: arguments of a `Distillation`.
        student: those of the encoder that learns.
        teacher: those of the teacher's.

    Raises:
        UserError: for widths, heads or attention that cannot be compared.
    """
    width, name = config.get("teacher_dim") or student["hidden_dim"], config.get("name", "distillation")
    if compared_states(config, student["num_layers"]) and teacher["hidden_dim"] != width:
        widths = f"width {teacher['hidden_dim']} and the maps lead to {width}"
        raise UserError(f"the teacher of {name} is of {widths}: set teacher_dim")
    if config.get("relations", 1.0):
        check_relations("relations", config.get("relation_heads"), student, teacher)


def distillation_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
    """The ledger's entries of a `Distillation`; arguments as of `masked_lm_entries`."""
    encoder = config["encoder"]
    states = compared_states(config, encoder["num_layers"])
    hidden = encoder["hidden_dim"]
    width = config.get("teacher_dim") or hidden
    depth, relates = read_depth(config, encoder["num_layers"]), bool(config.get("relations", 1.0))
    entries = reached_entries(encoder, sequence_length, depth, relates, mixes=bool(config.get("logits", 0.0)))
    if states:
        shapes = ((hidden, width), (width,)) * len(states)
        flops = 2 * hidden * width * len(states)
        entries.append(
            Entry("learned maps", shapes, flops, is_kept=False, in_paper=0, activations=hidden * len(states))
        )
    if relates:
        inner = inner_dim(encoder)
        flops = 6 * hidden * inner + 4 * sequence_length * inner
        heads = config.get("relation_heads") or encoder["num_heads"]
        numbers = 2 * sequence_length * heads + 3 * inner
        entries.append(Entry("relations", (), flops, is_kept=False, activations=numbers))
    return entries + (head_entries(config, encoder, mask_rate) if config.get("output_embedding_dim") else [])
