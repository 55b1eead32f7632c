"""What several objectives on one encoder cost: the encoder once, and all that is dropped."""

from dataclasses import replace

from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.sizes import check_sizes


def sum_entries(config: Config, sequence_length: int, mask_rate: float) -> list[Entry]:
    """The ledger's entries of a `Sum`; arguments as of `masked_lm_entries`.

    The encoder's parameters are the first objective's. What each of the others has it compute once more is dropped.
    """
    entries: list[Entry] = []
    for i, objective in enumerate(config["objectives"]):
        own = dict(objective["config"])
        check_sizes(own)
        name = own.get("name", f"objective {i}")
        for entry in _entries_of(objective)(own | {"encoder": config["encoder"]}, sequence_length, mask_rate):
            if entry.is_kept and i == 0:
                entries.append(entry)
            elif not entry.is_kept:
                entries.append(replace(entry, name=f"{name}: {entry.name}"))
            elif entry.flops or entry.activations:
                entries.append(replace(entry, name=f"{name}: {entry.name}", shapes=(), is_kept=False, in_paper=0))
    return entries


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
