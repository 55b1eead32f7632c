"""A recipe as data: macros and bindings after all files were read, and what can be said of them.

gin lets a misspelt macro or scope pass and a binding nobody reads do nothing, so a run may not be what its recipe says.
Here a recipe is followed from its root, the stages of the run, through every reference and macro: what is not met on
the way is an error that names the place and what may have been meant. Nothing is imported or built for that, so a
recipe is checked in a moment.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from rembed_keras.config.annotations import check_value
from rembed_keras.config.signatures import signature
from rembed_keras.config.statements import Binding, Macro, Reference, check_binding, items_of
from rembed_keras.errors import UserError, did_you_mean

ROOT = "rembed_keras.training.run"  # what is called when a recipe is run


@dataclass
class Recipe:
    """All files of a recipe and the command line, later ones having won over earlier ones.

    Attributes:
        imports: modules by the name that bindings call them by.
        macros: by name.
        bindings: by scope, target and parameter.
        trusted: packages that the user lets it name anything of.
        root: what is called, a dotted path.
    """

    trusted: tuple[str, ...] = ()
    imports: dict[str, str] = field(default_factory=dict)
    macros: dict[str, Binding] = field(default_factory=dict)
    bindings: dict[tuple[str, str, str], Binding] = field(default_factory=dict)
    root: str = ROOT

    def add(self, binding: Binding) -> None:
        """Binds a parameter or macro, in place of what was bound there before."""
        if binding.parameter:
            key = (binding.scope, binding.target, binding.parameter)
            self.bindings.pop(key, None)
            self.bindings[key] = binding
        else:
            old = self.macros.get(binding.key)
            comment = binding.comment or (old.comment if old else "")
            self.macros[binding.key] = Binding(**(vars(binding) | {"comment": comment}))

    def text(self) -> str:
        """The recipe as one gin file that needs no other."""
        lines = ["from __gin__ import dynamic_registration"]
        for name, module in sorted(self.imports.items()):
            parent, _, last = module.rpartition(".")
            statement = f"from {parent} import {last}" if parent else f"import {last}"
            lines.append(statement if last == name else f"{statement} as {name}")
        lines.append("")
        lines += [binding.text() for binding in sorted(self.macros.values(), key=_by_key)]
        lines.append("")
        lines += [binding.text() for binding in sorted(self.bindings.values(), key=_by_key)]
        return "\n".join(lines) + "\n"

    def knobs(self) -> dict[str, dict]:
        """The public knobs: each macro's value, and what its comment says of it."""
        return {
            name: {"value": _plain(binding.value), "about": binding.comment}
            for name, binding in sorted(self.macros.items())
        }

    def configuration(self) -> dict:
        """All bindings by what they bind, references as text."""
        return {binding.key: _plain(binding.value) for binding in sorted(self.bindings.values(), key=_by_key)}

    def resolve(self, value: object) -> object:
        """A value with its macro, if it is one, replaced by what the macro stands for."""
        while isinstance(value, Macro):
            value = _in_macro(value, self._macro(value).value)
        return value

    def _given(self, binding):
        """The binding that a binding's value is written in: its own, or that of the macro that it uses."""
        while isinstance(binding.value, Macro):
            binding = self._macro(binding.value, binding)
        return binding

    def _macro(self, macro, user=None):
        if macro.name not in self.macros:
            where = f"{user.place}: {user.key}" if user else "the recipe"
            raise UserError(f"{where} uses %{macro.name}, which nothing defines{did_you_mean(macro.name, self.macros)}")
        return self.macros[macro.name]

    def arguments(self, reference: Reference) -> dict:
        """What a reference is called with: its bindings, with macros resolved, over literal defaults."""
        known = signature(reference.target)
        values = dict(known.defaults) if known else {}
        for binding in self.bindings_of(reference.scope, reference.target):
            values[binding.parameter] = self.resolve(binding.value)
        return values

    def places(self, message: str, references: Iterable[Reference]) -> str:
        """Where what a message names is bound, as an end of the message: the parameters of some references.

        Args:
            message: names parameters, as constructors do.
            references: what has these parameters.

        Returns:
            For example " (NUM_HEADS: command line)"; empty if none of them is bound.
        """
        given = {
            binding.parameter: self._given(binding)
            for reference in references
            for binding in self.bindings_of(reference.scope, reference.target)
        }
        named = [given[word] for word in dict.fromkeys(re.findall(r"\w+", message)) if word in given]
        return f" ({', '.join(f'{each.key}: {each.place}' for each in named)})" if named else ""

    def bindings_of(self, scope: str, target: str) -> Iterator[Binding]:
        """Yields the bindings that apply when a target is called in a scope; those of inner scopes come last."""
        parts = scope.split("/") if scope else []
        for depth in range(len(parts) + 1):
            outer = "/".join(parts[:depth])
            for binding in self.bindings.values():
                if binding.target == target and binding.scope == outer:
                    yield binding

    def check(self) -> None:
        """Checks the recipe.

        Raises:
            UserError: for a name that is not there, a macro that is not defined, a value of the wrong kind, or anything
                that nothing uses.
        """
        for binding in (*self.macros.values(), *self.bindings.values()):
            check_binding(binding, self.trusted)
        macros: set[str] = set()
        bindings: set[tuple[str, str, str]] = set()
        self._follow(self.root, "", macros, bindings, set())
        for name, binding in self.macros.items():
            if name not in macros:
                raise UserError(f"{binding.place}: nothing uses {name}{did_you_mean(name, macros)}")
        for key, binding in self.bindings.items():
            if key not in bindings:
                used = {self.bindings[each].key for each in bindings}
                raise UserError(f"{binding.place}: nothing uses {binding.key}{did_you_mean(binding.key, used)}")
            check_value(binding, self._given(binding), self.resolve)

    def _follow(self, target, scope, macros, bindings, met) -> None:
        """Notes the macros and bindings that a call meets, and those of all that it refers to."""
        if (target, scope) in met:
            return
        met.add((target, scope))
        for binding in self.bindings_of(scope, target):
            bindings.add((binding.scope, binding.target, binding.parameter))
            for reference in self._references(binding.value, binding, macros):
                self._follow(reference.target, reference.scope or scope, macros, bindings, met)

    def _references(self, value, user, macros, trail=()) -> Iterator[Reference]:
        """Yields the references in a value, also through macros, which are noted."""
        if isinstance(value, Reference):
            yield value
        elif isinstance(value, Macro):
            if value.name in trail:
                raise UserError(f"{user.place}: macro {value.name} is defined by itself")
            macros.add(value.name)
            definition = self._macro(value, user)
            for reference in self._references(definition.value, definition, macros, (*trail, value.name)):
                yield _in_macro(value, reference)
        else:
            for item in items_of(value):
                yield from self._references(item, user, macros, trail)


def _in_macro(macro, value):
    """What a macro stands for; what it calls gin calls in a scope of the macro's name, whatever scope uses it."""
    if isinstance(value, Reference) and value.is_call and not value.scope:
        return replace(value, scope=macro.name)
    return value


def _by_key(binding):
    return binding.key


def _plain(value):
    """A value as JSON can say it."""
    if isinstance(value, Reference | Macro):
        return repr(value)
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
