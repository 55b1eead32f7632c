"""Parts that a recipe describes, made while it is read: those that own no variables and say what they cost."""

import importlib
from dataclasses import replace

from rembed_keras.config.backend import import_framework
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError

PARTS = ("block", "attention", "input_embedding")  # arguments of an encoder that are objects which say what they cost


def within(outer: Reference, inner: Reference) -> Reference:
    """A reference in the scope that it is called in: its own, or that of the reference which calls it."""
    return replace(inner, scope=inner.scope or outer.scope)


def sizes_of(recipe: Recipe, encoder: Reference) -> dict:
    """The arguments of a recipe's encoder, with parts as it is given them."""
    sizes = recipe.arguments(encoder)
    return sizes | {name: made(recipe, encoder, sizes[name]) for name in PARTS if name in sizes}


def made(recipe: Recipe, outer: Reference, value: object):
    """A part, or a list of them, as what `outer` refers to is given it.

    Raises:
        UserError: for a part that its module has not.
    """
    value = recipe.resolve(value)
    if isinstance(value, list | tuple):
        return [made(recipe, outer, each) for each in value]
    if not isinstance(value, Reference):
        return value
    part = within(outer, value)
    arguments = {name: made(recipe, part, each) for name, each in recipe.arguments(part).items()}
    kind = imported(part.target)
    if kind is None:
        raise UserError(f"there is no {part.selector}")
    return kind(**arguments)


def imported(path: str):
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
