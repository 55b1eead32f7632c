"""What a run uses of what a recipe's files bind, and what goes with a value that a later file replaces.

A recipe that includes AdamW's file, and then another optimizer's or names one on the command line, would be full of
bindings that nothing uses: of AdamW's rates, and of knobs for them. They went with the value that they were bound for.
So the bindings of a recipe are followed from the stages of its run, through every reference and macro, and through the
values that were bound earlier too. What only an earlier value used is dropped with it, if it was bound before the value
was replaced, and in another file: what stands in the same file, or in a later one, is a mistake. Nobody meets what
is bound to an argument that the caller gives, as `finetune` gives its optimizer a learning rate, nor what is bound
after inner scopes wherever it would be met: it is no default of theirs, and it overrules nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rembed_keras.config.recipes.classes import called_with
from rembed_keras.config.recipes.statements import Binding, Key, Macro, Reference, in_macro, items_of
from rembed_keras.errors import UserError, did_you_mean

NEVER = -1  # instead of the number of a replacement


class Uses:
    """What a run meets from its root.

    Args:
        history: all bindings and macros in the order in which they were read, later ones having won.
        root: dotted path of what is called when the recipe is run.

    Raises:
        UserError: for a macro that is not defined, or by itself.
    """

    def __init__(self, history: Sequence[Binding], root: str):
        self._history = history
        self._versions: dict[Key, list[tuple[Binding, int]]] = defaultdict(list)  # each with what replaced it
        self._numbers = {binding.bound: number for number, binding in enumerate(history)}
        later: dict[Key, int] = {}
        for number, binding in reversed([*enumerate(history)]):
            self._versions[binding.bound].append((binding, later.get(binding.bound, NEVER)))
            later[binding.bound] = number
        self._met: dict[Key, set[int]] = defaultdict(set)  # the first replacement on each path to a binding
        self._followed: set[tuple[str, str, int, tuple[str, ...]]] = set()
        self._follow(root, "", NEVER)

    def called(self) -> set[tuple[str, str]]:
        """What the run calls: dotted paths, each with the scope that it is called in."""
        return {(target, scope) for target, scope, replaced, _ in self._followed if replaced == NEVER}

    def asks(self, key: Key) -> bool:
        """Whether the run calls something whose parameter is what is bound under a key, or else what is there without.

        Args:
            key: a scope, in which calls count, a target and a parameter; not where inner scopes bind it, or a caller
                gives it.
        """
        scope, target, parameter = key
        same = [bound[0] for bound in self._versions if bound[1:] == (target, parameter) and bound[0] != scope]
        inner = [each for each in same if is_within(each, scope)]
        called = [(own, given) for each, own, replaced, given in self._followed if each == target and replaced == NEVER]
        return any(
            is_within(own, scope) and parameter not in given and not any(is_within(own, each) for each in inner)
            for own, given in called
        )

    def is_used(self, binding: Binding) -> bool:
        """Whether the run meets a binding or macro."""
        return NEVER in self._met[binding.bound]

    def replacement(self, binding: Binding) -> Binding | None:
        """What is bound now instead of the value that used a binding; None if nothing ever used it."""
        last = max(self._met[binding.bound], default=NEVER)
        return None if last == NEVER else self._versions[self._history[last].bound][0][0]

    def went(self, binding: Binding) -> bool:
        """Whether a binding that nothing uses went with a value that a later file replaced."""
        last = max(self._met[binding.bound], default=NEVER)
        return self._numbers[binding.bound] < last and binding.file != self._history[last].file

    def _follow(self, target, scope, replaced, given=()) -> None:
        """Notes the macros and bindings that a call with some arguments meets, and those of all that it refers to."""
        if (target, scope, replaced, given) in self._followed:
            return
        self._followed.add((target, scope, replaced, given))
        here = [bound for bound in self._versions if bound[1] == target and is_within(scope, bound[0])]
        for bound in [bound for bound in here if bound[2] not in given]:
            inner = (self._numbers[other] for other in here if other[2] == bound[2] and len(other[0]) > len(bound[0]))
            before = max((number for number in inner if number < self._numbers[bound]), default=NEVER)
            hidden = _first(replaced, before)
            self._met[bound].add(hidden)
            for binding, by in self._versions[bound]:
                for reference, first in self._references(binding.value, binding, _first(by, hidden)):
                    self._follow(reference.target, reference.scope or scope, first, called_with(target, bound[2]))

    def _references(self, value, user, replaced, trail=()) -> Iterator[tuple[Reference, int]]:
        """Yields the references in a value, also through macros, which are noted."""
        if isinstance(value, Reference):
            yield value, replaced
        elif isinstance(value, Macro):
            bound = ("", value.name, "")
            if replaced == NEVER:
                self._check(value.name, user, trail)
            if value.name in trail or bound not in self._versions:
                return
            self._met[bound].add(replaced)
            for definition, by in self._versions[bound]:
                inner = self._references(definition.value, definition, _first(by, replaced), (*trail, value.name))
                for reference, first in inner:
                    yield in_macro(value, reference), first
        else:
            for item in items_of(value):
                yield from self._references(item, user, replaced, trail)

    def _check(self, name, user, trail):
        if name in trail:
            raise UserError(f"{user.place}: macro {name} is defined by itself")
        if ("", name, "") not in self._versions:
            names = [each for _, each, parameter in self._versions if not parameter]
            raise UserError(f"{user.place}: {user.key} uses %{name}, which nothing defines{did_you_mean(name, names)}")


def _first(one, other):
    """The first of two replacements on a path, from which on nothing is met by it."""
    return min((each for each in (one, other) if each != NEVER), default=NEVER)


def is_within(scope: str, outer: str) -> bool:
    """Whether what is bound in a scope holds in another: it is that, or one around it.

    >>> is_within("a/b", "a"), is_within("a", "a/b"), is_within("ab", "a")
    (True, False, False)
    """
    return not outer or f"{scope}/".startswith(f"{outer}/")
