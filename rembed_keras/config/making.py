"""Objects made of what a recipe says, without gin: those that are counted or checked before anything is run."""

import importlib
from dataclasses import replace

from rembed_keras.config.backend import import_framework
from rembed_keras.config.signatures import is_ours
from rembed_keras.config.statements import Reference


def within(outer, inner):
    """A reference in the scope that it is called in: its own, or that of the reference which calls it."""
    return replace(inner, scope=inner.scope or outer.scope)


def made(recipe, outer, value):
    """A part, or a list of them, as an encoder is given it."""
    value = recipe.resolve(value)
    if isinstance(value, list | tuple):
        return [made(recipe, outer, each) for each in value]
    if not isinstance(value, Reference):
        return value
    part = within(outer, value)
    arguments = {name: made(recipe, part, each) for name, each in recipe.arguments(part).items()}
    return imported(part.target)(**arguments)


def imported(path):
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
