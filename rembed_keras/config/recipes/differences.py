"""What two recipes say differently, macros resolved and defaults filled in, whatever their files look like."""

from dataclasses import dataclass, replace

from rembed_keras.config.recipes.recipe import ROOT, Recipe
from rembed_keras.config.recipes.signatures import signature
from rembed_keras.config.recipes.statements import Key, Macro, Reference
from rembed_keras.config.recipes.uses import Uses

NOT_COMPARED = ("", ROOT, "workdir")  # where a run is, and not what it computes
ABSENT = "-"


@dataclass(frozen=True)
class Difference:
    """What is bound differently.

    Attributes:
        name: a knob where both have it there, else a parameter.
        one: its value in the first recipe as gin writes it, with dotted paths where both write the same and mean
            other things; "-" where nothing calls what has the parameter and leaves it to what is bound there, or to
            a default, which it may lack.
        other: its value in the second.
    """

    name: str
    one: str
    other: str


def differences(one: Recipe, other: Recipe) -> list[Difference]:
    """What two checked recipes bind differently, each knob once; the run's folder is not compared."""
    sides = [_Said(one), _Said(other)]
    found = []
    for key in sorted({*one.bindings, *other.bindings} - {NOT_COMPARED}):
        whole = [side.value(key, in_full=True) for side in sides]
        if whole[0] != whole[1]:
            written = [side.value(key) for side in sides]
            found.append(Difference(_name(key, one, other), *(written if written[0] != written[1] else whole)))
    return sorted(dict.fromkeys(found), key=lambda each: (not each.name.isupper(), each.name))


def _name(key: Key, one: Recipe, other: Recipe) -> str:
    """The knob that both have there, or the parameter."""
    bindings = [recipe.bindings.get(key) for recipe in (one, other)]
    knobs = {each.value.name if each and isinstance(each.value, Macro) else None for each in bindings}
    knob = knobs.pop()
    return next(each.key for each in bindings if each) if knobs or knob is None else knob


class _Said:
    """What a recipe says of any parameter."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.uses = Uses(recipe.history, ROOT)

    def value(self, key: Key, in_full: bool = False) -> str:
        """A parameter's value as text; what it refers to as it is written, or in full by its dotted path."""
        scope, target, parameter = key
        binding = self.recipe.bindings.get(key)
        if binding is not None:
            return self._text(binding.value, in_full)
        if not self.uses.asks(key):
            return ABSENT
        outer = [each for each in self.recipe.bindings_of(scope, target) if each.parameter == parameter]
        if outer:
            return self._text(outer[-1].value, in_full)
        known = signature(target)
        return repr(known.defaults[parameter]) if known and parameter in known.defaults else ABSENT

    def _text(self, value, in_full):
        value = self.recipe.resolve(value)
        return repr(_in_full(value) if in_full else value)


def _in_full(value):
    """A value whose references are written by what they stand for, whatever a file imports it as."""
    if isinstance(value, Reference):
        return replace(value, selector=value.target)
    if isinstance(value, dict):
        return {_in_full(key): _in_full(each) for key, each in value.items()}
    return type(value)(map(_in_full, value)) if isinstance(value, list | tuple) else value
