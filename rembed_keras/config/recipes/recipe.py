"""A recipe as data: macros and bindings after all files were read, and what can be said of them.

gin lets a misspelt macro or scope pass and a binding nobody reads do nothing, so a run may not be what its recipe says.
Here a recipe is followed from its root, the stages of the run, through every reference and macro: what is not met
is an error that names the place and what may have been meant. Nothing is imported or built for that, so a
recipe is checked in a moment.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rembed_keras.config.recipes.annotations import check_value
from rembed_keras.config.recipes.signatures import signature
from rembed_keras.config.recipes.statements import (
    Binding,
    Key,
    Macro,
    Reference,
    check_binding,
    check_finite,
    check_given,
    in_macro,
    references_in,
)
from rembed_keras.config.recipes.uses import Uses
from rembed_keras.errors import UserError, did_you_mean, shortened

PACKAGE = "rembed_keras.training"  # of the stages, called so wherever a recipe need not import it
ROOT = f"{PACKAGE}.run"  # what is called when a recipe is run
RUN = Reference("", "training.run", ROOT, False)
SCORED = ("task", "tasks", "texts", "parallel")  # parameters of stages: what they score, or train for


@dataclass
class Recipe:
    """All files of a recipe and the command line, later ones having won over earlier ones.

    Attributes:
        imports: modules by the name that bindings call them by.
        macros: by name.
        bindings: by scope, target and parameter.
        history: all that was bound, in the order in which it was read.
        dropped: what went with a value that a later file replaced, each with the binding that did; see `uses`.
        trusted: packages that the user lets it name anything of.
        root: what is called, a dotted path.
    """

    trusted: tuple[str, ...] = ()
    imports: dict[str, str] = field(default_factory=dict)
    macros: dict[str, Binding] = field(default_factory=dict)
    bindings: dict[Key, Binding] = field(default_factory=dict)
    history: list[Binding] = field(default_factory=list)
    dropped: list[tuple[Binding, Binding]] = field(default_factory=list)
    root: str = ROOT

    def add(self, binding: Binding) -> None:
        """Binds a parameter or macro, in place of what was bound there before."""
        if binding.parameter:
            self.bindings.pop(binding.bound, None)
            self.bindings[binding.bound] = binding
        else:
            old = self.macros.get(binding.key)
            binding = replace(binding, comment=binding.comment or (old.comment if old else ""))
            self.macros[binding.key] = binding
        self.history.append(binding)

    def text(self, has_comments: bool = True, by_name: bool = False) -> str:
        """The recipe as one gin file that needs no other.

        Args:
            has_comments: whether knobs have their comments.
            by_name: whether bindings are in the order of their names alone, as checksums have them. Otherwise what is
                bound around scopes comes before what is bound in them, as the default that it is.
        """
        lines = ["from __gin__ import dynamic_registration"]
        for name, module in sorted(self.imports.items()):
            parent, _, last = module.rpartition(".")
            statement = f"from {parent} import {last}" if parent else f"import {last}"
            lines.append(statement if last == name else f"{statement} as {name}")
        lines.append("")
        lines += [binding.text(has_comments) for binding in sorted(self.macros.values(), key=_by_key)]
        lines.append("")
        order = _by_key if by_name else _outer_first
        lines += [binding.text(has_comments) for binding in sorted(self.bindings.values(), key=order)]
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
        """A value with its macro, if it is one, and those within it, replaced by what they stand for."""
        while isinstance(value, Macro):
            value = in_macro(value, self.macros[value.name].value)
        if isinstance(value, dict):
            return {self.resolve(key): self.resolve(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.resolve, value))
        return value

    def given(self, binding: Binding) -> Binding:
        """The binding that a binding's value is written in: its own, or that of the macro that it uses."""
        while isinstance(binding.value, Macro):
            binding = self.macros[binding.value.name]
        return binding

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
        given = [
            (binding.parameter, self.given(binding))
            for reference in references
            for binding in self.bindings_of(reference.scope, reference.target)
        ]
        words = dict.fromkeys(re.findall(r"\w+", message))
        named = dict.fromkeys(f"{each.key}: {each.place}" for word in words for name, each in given if name == word)
        return f" ({', '.join(named)})" if named else ""

    def bindings_of(self, scope: str, target: str) -> Iterator[Binding]:
        """Yields the bindings that apply when a target is called in a scope; those of inner scopes come last."""
        parts = scope.split("/") if scope else []
        for depth in range(len(parts) + 1):
            outer = "/".join(parts[:depth])
            for binding in self.bindings.values():
                if binding.target == target and binding.scope == outer:
                    yield binding

    def check(self) -> None:
        """Checks the recipe, and drops what went with values that later files replace.

        Raises:
            UserError: for a name that is not there, a macro that is not defined, a value of the wrong kind, or anything
                that nothing uses.
        """
        for binding in (*self.macros.values(), *self.bindings.values()):
            check_binding(binding, self.trusted)
        uses = Uses(self.history, self.root)
        self._drop_unused(self.macros, uses)
        self._drop_unused(self.bindings, uses)
        for binding in self.bindings.values():
            check_value(binding, self.given(binding), self.resolve)
        for binding in (*self.macros.values(), *self.bindings.values()):
            check_finite(binding)
            self._check_calls(binding.value)

    def _check_calls(self, value: object) -> None:
        """Checks that what a value calls is given what it needs, in some scope; gin gives it what is bound alone."""
        for reference in references_in(value):
            if reference.is_call:
                bindings = self.bindings.values()
                check_given(reference, [each.parameter for each in bindings if each.target == reference.target])

    def _drop_unused(self, bound: dict[Any, Binding], uses: Uses) -> None:
        """Drops what went with values that later files replace; refuses what else nothing uses."""
        for key, binding in [*bound.items()]:
            if uses.is_used(binding):
                continue
            replacement = uses.replacement(binding)
            if replacement is None:
                used = [each.key for each in bound.values() if uses.is_used(each)]
                raise UserError(f"{binding.place}: nothing uses {binding.key}{did_you_mean(binding.key, used)}")
            if not uses.went(binding):
                now = f"{replacement.key} is {shortened(replacement.value)} ({replacement.place})"
                raise UserError(f"{binding.place}: nothing uses {binding.key}: {now}")
            self.dropped.append((bound.pop(key), replacement))


def _by_key(binding):
    return binding.key


def _outer_first(binding):
    return len(binding.scope.split("/")) if binding.scope else 0, binding.key


def _plain(value):
    """A value as JSON can say it."""
    if isinstance(value, Reference | Macro):
        return repr(value)
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def stages(recipe: Recipe) -> Iterator[Reference]:
    """The stages of a recipe's run."""
    listed = recipe.arguments(RUN).get("stages")
    for each in listed if isinstance(listed, list | tuple) else ():
        stage = recipe.resolve(each)
        if isinstance(stage, Reference):
            yield stage


def check_stage(recipe: Recipe, stage: Reference) -> None:
    """Checks that a stage is given what it needs beside the run's folder.

    Raises:
        UserError: for a parameter that has no default and is not bound.
    """
    check_given(stage, ("workdir", *recipe.arguments(stage)))
