"""Parts that a recipe describes, made while it is read: those that own no variables and say what they cost."""

import importlib
import importlib.util
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial

from rembed_keras.config.backend import import_framework
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.signatures import is_ours, names_a_class
from rembed_keras.config.recipes.statements import Macro, Reference, owns_variables, references_in
from rembed_keras.errors import UserError, first_line

# arguments of encoders and objectives that are objects without variables, which say what they cost
KINDS = ("block", "attention", "input_embedding", "coupling", "sharing")


def within(outer: Reference, inner: Reference) -> Reference:
    """A reference in the scope that it is called in: its own, or that of the reference which calls it."""
    return replace(inner, scope=inner.scope or outer.scope)


def identity(recipe: Recipe, value: object, scope: str = "") -> Hashable:
    """What a value amounts to where it is evaluated: equal for calls of the same thing with the same arguments.

    Args:
        recipe: whose bindings hold.
        value: of a recipe.
        scope: in which it is evaluated, unless it has its own.
    """
    if isinstance(value, Macro):
        return identity(recipe, recipe.macros[value.name].value, value.name)
    if isinstance(value, Reference) and value.is_call:
        inner = value.scope or scope
        bindings = recipe.bindings_of(inner, value.target)  # those of inner scopes come last
        given = {binding.parameter: identity(recipe, binding.value, inner) for binding in bindings}
        return value.target, tuple(sorted(given.items(), key=repr))
    if isinstance(value, dict):
        return dict, tuple((identity(recipe, key, scope), identity(recipe, each, scope)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(identity(recipe, each, scope) for each in value)
    return repr(value)


def sizes_of(recipe: Recipe, encoder: Reference) -> dict:
    """The arguments of a recipe's encoder, with parts as it is given them."""
    sizes = recipe.arguments(encoder)
    return sizes | kinds_of(recipe, encoder, sizes)


def kinds_of(recipe: Recipe, outer: Reference, arguments: Mapping) -> dict:
    """Those of the arguments of what `outer` refers to that are kinds, made.

    Raises:
        UserError: for what is none, as a model, a layer or a stage.
    """
    given = {name: recipe.resolve(arguments[name]) for name in KINDS if name in arguments}
    for name, value in given.items():
        for reference in references_in(value):
            target = reference.target
            if owns_variables(target) or (is_ours(target) and not names_a_class(target)):
                raise UserError(f"{name} is @{reference.selector}, which is no kind of {name}")
    return {name: made(recipe, outer, value) for name, value in given.items()}


def made(recipe: Recipe, outer: Reference, value: object, settled: Mapping[str, object] | None = None):
    """A part, or a list of them, as what `outer` refers to is given it.

    Args:
        recipe: whose bindings hold.
        outer: what is given the part.
        value: the part of the recipe: a reference, which is made whether it is a call or not.
        settled: arguments of the part that `outer` gives it.

    Raises:
        UserError: for a part that its module has not.
    """
    value = recipe.resolve(value)
    if isinstance(value, list | tuple):
        return [made(recipe, outer, each) for each in value]
    if not isinstance(value, Reference):
        return value
    kind, arguments = _called(recipe, within(outer, value))
    return kind(**arguments | dict(settled or {}))


def attempted(
    recipe: Recipe, outer: Reference, part: Reference, what: str, settled: Mapping[str, object] | None = None
):
    """As `made`, of a part that may be another's: what it refuses by an error of its own is refused in a line.

    Args:
        recipe: as `made`.
        outer: as `made`.
        part: as `value` of `made`.
        what: it is, for the message.
        settled: as `made`.

    Raises:
        UserError: for a part that cannot be made.
    """
    try:
        return made(recipe, outer, part, settled)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"no {what} can be made by {part.selector}: {first_line(error)}") from None


def _called(recipe, part):
    """What a reference leads to, and what it is called with."""
    arguments = {name: handed(recipe, part, each) for name, each in recipe.arguments(part).items()}
    kind = imported(part.target)
    if kind is None:
        raise UserError(f"there is no {part.selector}")
    return kind, arguments


def handed(recipe: Recipe, outer: Reference, value: object):
    """An argument of a part: what is bound without () is handed on as what makes it, as an optimizer's optimizer.

    Args:
        recipe: whose bindings hold.
        outer: the part that is given the argument.
        value: the argument.

    Raises:
        UserError: as `made`.
    """
    value = recipe.resolve(value)
    if isinstance(value, list | tuple):
        return type(value)(handed(recipe, outer, each) for each in value)
    if isinstance(value, dict):
        return {key: handed(recipe, outer, each) for key, each in value.items()}
    if not isinstance(value, Reference) or value.is_call:
        return made(recipe, outer, value)
    kind, arguments = _called(recipe, within(outer, value))
    return partial(kind, **arguments) if arguments else kind


def imported(path: str):
    """What a dotted path leads to; None if there is no such thing."""
    if not is_ours(path):
        import_framework()
    module, _, name = path.rpartition(".")
    if _is_module(module):
        return getattr(importlib.import_module(module), name, None)
    outer, _, inner = module.rpartition(".")
    owner = getattr(importlib.import_module(outer), inner, None) if _is_module(outer) else None
    return getattr(owner, name, None)


def _is_module(path):
    """Whether a dotted path leads to a module; what it imports itself may be missing all the same."""
    try:
        return bool(path) and importlib.util.find_spec(path) is not None
    except ModuleNotFoundError:  # of a package that it would be in
        return False
