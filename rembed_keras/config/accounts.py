"""The account of the model that a recipe pre-trains, made of what the recipe says: nothing is imported or built."""

import importlib
from functools import partial

from rembed_keras.analysis.cost.ledger import Ledger, ledger
from rembed_keras.config.backend import import_framework
from rembed_keras.config.bindings import Reference
from rembed_keras.config.recipe import Recipe
from rembed_keras.config.signatures import is_ours, static_method
from rembed_keras.errors import UserError
from rembed_keras.modeling.cost import adam_slots

PARTS = ("block", "attention")  # arguments of an encoder that are objects which say what they cost
PRETRAIN = Reference("", "training.pretrain", "rembed_keras.training.pretrain", False)


def account(recipe: Recipe) -> Ledger | None:
    """The account of the model that a recipe pre-trains; None if it pre-trains none.

    Raises:
        UserError: if a size of the model is not bound.
    """
    stage = recipe.arguments(PRETRAIN)
    if not all(isinstance(stage.get(name), Reference) for name in ("encoder", "model")):
        return None
    encoder = recipe.arguments(stage["encoder"])
    encoder |= {name: _made(recipe, encoder[name]) for name in PARTS if name in encoder}
    config = recipe.arguments(stage["model"]) | {"encoder": encoder}
    data = recipe.arguments(stage["mixture"]) if isinstance(stage.get("mixture"), Reference) else {}
    try:
        rate = data.get("mask_rate", 0.15)
        rate = max(rate.values()) if isinstance(rate, dict) else rate
        entries = _entries_of(stage["model"].target)
        return ledger(config, data.get("sequence_length"), rate, entries, _slots_of(recipe, stage.get("optimizer")))
    except KeyError as missing:
        raise UserError(f"{stage['encoder'].selector} has no {missing.args[0]}: bind it in the recipe") from None
    except UserError:
        raise
    except (TypeError, ValueError, ArithmeticError):
        raise UserError(f"a size of {stage['encoder'].selector} or {stage['model'].selector} is no number") from None


def _entries_of(objective: str):
    """The function that gives an objective's ledger entries; of ours it is found without importing a framework.

    Raises:
        UserError: for an objective that does not say what it costs.
    """
    path = static_method(objective, "ledger_entries") if is_ours(objective) else f"{objective}.ledger_entries"
    entries = _imported(path) if path else None
    if entries is None:
        raise UserError(f"{objective} does not say what it costs: give it ledger_entries")
    return entries


def _slots_of(recipe, optimizer):
    """The function that counts what an optimizer remembers; where it does not say, it is made and built to be counted.

    Raises:
        UserError: when it is called, for an optimizer that cannot be made or wrapped.
    """
    if not isinstance(optimizer, Reference):
        return adam_slots
    path = static_method(optimizer.target, "ledger_slots") if is_ours(optimizer.target) else None
    if path:
        return _imported(path)
    import_framework()
    from rembed_keras.training.optimizers.slots import count_slots

    def make():
        try:
            return _made(recipe, optimizer)
        except (TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"no optimizer can be made by {optimizer.selector}: {reason}") from None

    return partial(count_slots, make)


def _made(recipe, value):
    """A part, or a list of them, as an encoder is given it."""
    if isinstance(value, list | tuple):
        return [_made(recipe, each) for each in value]
    if not isinstance(value, Reference):
        return value
    return _imported(value.target)(**{name: _made(recipe, each) for name, each in recipe.arguments(value).items()})


def _imported(path):
    """What a dotted path leads to; None if there is no such thing."""
    if not is_ours(path):
        import_framework()
    module, _, name = path.rpartition(".")
    try:
        owner = importlib.import_module(module)
    except ImportError:
        outer, _, inner = module.rpartition(".")
        owner = getattr(importlib.import_module(outer), inner)
    return getattr(owner, name, None)
