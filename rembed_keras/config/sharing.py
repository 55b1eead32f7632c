"""One object a name: what several stages refer to is made once a run.

gin makes `@task()` again wherever it stands, and `%TASK` too, so a task that is learnt, scored and submitted would be
read three times. Here calls among the arguments of stages are made once, and so are calls among the arguments of those;
two of them are one if what is called and all that it is called with are the same. What Keras has is made again each
time: an initializer that two layers share would give both the same numbers.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import gin

from rembed_keras import compat
from rembed_keras.config.making import identity
from rembed_keras.config.recipes.recipe import RUN, Recipe, stages
from rembed_keras.config.recipes.statements import Macro, Reference, items_of

AGAIN = ("keras", "keras_hub")


def made_once(recipe: Recipe):
    """A context in which gin makes what stages of a recipe refer to once; the next one makes it again."""
    shared: set[Hashable] = set()
    for stage in (RUN, *stages(recipe)):
        _note(recipe, stage, stage.scope, shared)
    made: dict[Hashable, Any] = {}

    def evaluate(scopes: list[str], selector: str, call: Callable[[], Any]):
        target = _target(recipe, selector)
        scope = "/".join(scopes or gin.current_scope())
        call_itself = identity(recipe, Reference(scope, selector, target, True)) if target else None
        if call_itself not in shared:
            return call()
        if call_itself not in made:
            made[call_itself] = call()
        return made[call_itself]

    return compat.gin_evaluates_by(evaluate)


def _note(recipe, caller, scope, shared):
    """Adds the calls among the arguments of a caller, and among the arguments of those."""
    for binding in recipe.bindings_of(scope, caller.target):
        for call in _calls(recipe, binding.value, scope):
            if call.target.split(".")[0] not in AGAIN:
                shared.add(identity(recipe, call))
                _note(recipe, call, call.scope, shared)


def _calls(recipe, value, scope):
    """Yields the calls in a value, in the scopes that they are made in."""
    if isinstance(value, Macro):
        yield from _calls(recipe, recipe.macros[value.name].value, value.name)
    elif isinstance(value, Reference) and value.is_call:
        yield replace(value, scope=value.scope or scope)
    for item in items_of(value):
        yield from _calls(recipe, item, scope)


def _target(recipe, selector):
    """The dotted path that a selector stands for; None for a macro."""
    first, dot, rest = selector.partition(".")
    return recipe.imports[first] + dot + rest if first in recipe.imports else None
