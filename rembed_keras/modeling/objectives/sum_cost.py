"""What several objectives on one encoder cost: the encoder once, and all that is dropped."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.cost import Config, Entry, size_of
from rembed_keras.modeling.encoder_cost import encoder_entries
from rembed_keras.modeling.losses.weights import by_step
from rembed_keras.modeling.sizes import check_sizes

UNSHARED = "{} does not train the encoder's own table, which others of a Sum read"  # by its name


def sum_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
    """The ledger's entries of a `Sum`; arguments as of `masked_lm_entries`.

    The encoder's parameters are the first objective's. What each of the others has it compute once more is dropped.
    """
    check_weights(config["objectives"], config.get("weights"))
    parts = [dict(objective["config"]) for objective in config["objectives"]]
    names = [own.get("name", f"objective {i}") for i, own in enumerate(parts)]
    check_objectives(names, parts)
    plain = {entry.name: entry.is_trained for entry in encoder_entries(config["encoder"], sequence_length)}
    entries: list[Entry] = []
    unreached: dict[str, list] = {}
    for i, (objective, own, name) in enumerate(zip(config["objectives"], parts, names, strict=True)):
        check_sizes(own)
        for entry in _entries_of(objective)(own | {"encoder": config["encoder"]}, sequence_length, mask_rate):
            unreached.setdefault(entry.name, []).append(entry.unreached)
            if entry.is_kept and not entry.is_trained and plain.get(entry.name):
                raise UserError(UNSHARED.format(name))
            if entry.is_kept and i == 0:
                entries.append(entry)
            elif not entry.is_kept:
                entries.append(replace(entry, name=f"{name}: {entry.name}"))
            elif entry.flops or entry.activations:
                entries.append(replace(entry, name=f"{name}: {entry.name}", shapes=(), is_kept=False, in_paper=0))
    least = {name: min(shapes, key=size_of) for name, shapes in unreached.items()}
    return [replace(entry, unreached=least[entry.name]) if entry.is_kept else entry for entry in entries]


def check_weights(objectives: Sequence[Any], weights: Sequence[Any] | None) -> list[list[tuple[int, float]]]:
    """The weights of a `Sum` by step, 1 each where there are none, as `losses.weights.by_step` gives them.

    Raises:
        UserError: for no objectives, not one weight for each, or what is no weight.
    """
    given = [1.0] * len(objectives) if weights is None else [*weights]
    if not objectives or len(given) != len(objectives):
        raise UserError(f"Sum has {len(objectives)} objectives and {len(given)} weights: it needs one for each")
    return [by_step(weight, "a weight of Sum") for weight in given]


def check_objectives(names: Sequence[str], configs: Sequence[Config]) -> None:
    """Checks what each objective of a `Sum` is called, and that it leaves to the sum what is done once for all.

    Raises:
        UserError: for layers that it cuts, micro-batches of its own, or two of one name.
    """
    for name, config in zip(names, configs, strict=True):
        if config.get("kept_layers") is not None or config.get("micro_batches", 1) > 1:
            raise UserError(f"{name} has kept_layers or micro_batches of its own: leave them out in a Sum")
    if len({*names}) < len(names):
        raise UserError(f"the objectives of Sum are called {', '.join(names)}: give each a name of its own")


def _entries_of(objective):
    """The function that gives the entries of an objective: with it, or that of its class.

    Raises:
        UserError: for an objective that does not say what it costs.
    """
    entries = objective.get("ledger_entries")
    if entries is None:
        from rembed_keras.modeling.saving.configuration import class_named  # only here: needs a framework

        entries = getattr(class_named(objective), "ledger_entries", None)
    if entries is None:
        raise UserError(f"{shortened(objective.get('class_name'))} does not say what it costs: give it ledger_entries")
    return entries
