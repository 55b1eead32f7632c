"""What a value in a recipe may be: what the annotation of the parameter says that it is bound to.

A number where a text belongs would be found late, by whatever library it reaches, in words that no recipe has. So
values are held against annotations when a recipe is read. What an annotation leaves open stays open.
"""

import ast
from collections.abc import Callable

from rembed_keras.config.recipes.classes import (
    bases,
    has_what,
    imported_path,
    is_class_of_ours,
    is_protocol,
    returned_by,
)
from rembed_keras.config.recipes.signatures import expanded, is_ours, names_a_class, signature
from rembed_keras.config.recipes.statements import Binding, Macro, Reference, owns_variables
from rembed_keras.errors import RANGES, UserError, did_you_mean, is_within, shortened, with_article

PLAIN = {
    "str": ("a text", str),
    "Path": ("a text", str),
    "int": ("a whole number", int),
    "float": ("a number", int | float),
    "bool": ("True or False", bool),
    "None": ("None", type(None)),
}
LISTS = ("Sequence", "Collection", "Iterable", "list", "tuple")
DICTS = ("Mapping", "dict")
CHOICES = "Literal"
FUNCTIONS = "Callable"
OPEN = ("", "Any", "object")
VALUES = (*PLAIN, *RANGES, *LISTS, *DICTS, CHOICES)  # what a recipe writes itself; functions may give it too


def check_value(binding: Binding, given: Binding, resolve: Callable[[object], object]) -> None:
    """Checks what a parameter of this package is bound to.

    Args:
        binding: the binding; its names have been checked.
        given: where its value is written: the binding itself, or that of the macro that it uses.
        resolve: gives what a macro stands for.

    Raises:
        UserError: for a value of another kind than the parameter's, or out of its range, or a name that Keras refuses.
    """
    known = signature(binding.target) if binding.parameter else None
    if known is None or binding.parameter not in known.annotations:
        return
    _check_name(binding, given, resolve)
    annotation = expanded(known.annotations[binding.parameter], known.module)
    if _fits(binding.value, annotation, resolve):
        return
    members = _kinds(annotation)
    takes_classes = any(_name(kind) == "type" for kind in members)  # which says all that there is to be said
    kinds = dict.fromkeys(_word(kind) for kind in members if not (takes_classes and is_protocol(_path(kind))))
    value = resolve(given.value)
    meant = did_you_mean(value, map(str, _choices_in(annotation))) if isinstance(value, str) else ""
    raise UserError(f"{given.place}: {given.key} is {shortened(value)}; it must be {' or '.join(kinds)}{meant}")


def _check_name(binding, given, resolve):
    """Checks the name of a model or a layer, which paths of weights are made of."""
    name = resolve(given.value)
    if binding.parameter == "name" and isinstance(name, str) and "/" in name and owns_variables(binding.target):
        raise UserError(f"{given.place}: {given.key} is {shortened(name)}; a name of what has weights has no '/'")


def _is_made(call, kind):
    """Whether a call gives what a type asks for, as far as the source says: classes say what they make."""
    name, path = _name(kind), _path(kind)
    is_class = names_a_class(call.target)
    if name in VALUES:
        return not is_class  # a function may give it
    if not (is_class and is_ours(call.target)):
        return True
    return has_what(call.target, path) if is_protocol(path) else _is_derived(call.target, kind)


def _is_referred_to(reference, kind):
    """Whether a reference is what a type asks for, as far as the source says: if a function, what it gives."""
    name, wanted = _name(kind), _given_by(kind)
    is_object = is_class_of_ours(_path(kind)) or (is_protocol(_path(kind)) and wanted is None)
    if is_object or name in VALUES:
        return False
    is_open = wanted is None or not (names_a_class(reference.target) and is_ours(reference.target))
    return is_open or _is_derived(reference.target, wanted)


def _given_by(kind):
    """The type of what a type of functions gives; None where that is left open, or of other types."""
    if _name(kind) == FUNCTIONS:
        return next(iter(_arguments(kind)[-1:]), None)
    return returned_by(_path(kind)) if is_protocol(_path(kind)) else None


def _is_derived(target, kind):
    """Whether a class of this package is one that is asked for, or derived from it, as far as the source says."""
    line = (target, *bases(target))
    if any(each.rpartition(".")[2] == _name(kind) for each in line):
        return True
    if _name(kind) == "None" or is_class_of_ours(_path(kind)):
        return False
    room = imported_path(_path(kind) or ast.unparse(kind)).rpartition(".")[0]  # as keras.optimizers
    return is_ours(room) or any(each.startswith(f"{room}.") for each in line)


def _kinds(annotation) -> list[ast.expr]:
    """The members of a union."""
    if isinstance(annotation, ast.BinOp):
        return [*_kinds(annotation.left), *_kinds(annotation.right)]
    return [annotation]


def _name(kind):
    """The last name of a type, "" for what is none."""
    if isinstance(kind, ast.Constant):
        return "None" if kind.value is None else ""
    kind = kind.value if isinstance(kind, ast.Subscript) else kind
    return kind.attr if isinstance(kind, ast.Attribute) else kind.id if isinstance(kind, ast.Name) else ""


def _path(kind):
    """The dotted path of a type of this package, "" of others."""
    return getattr(kind, "path", "")


def _word(kind):
    """What a message calls the values of a type."""
    name = _name(kind)
    if name == CHOICES:
        return f"one of {', '.join(str(choice) for choice in _choices_in(kind))}"
    if name in RANGES or name in PLAIN:
        return RANGES[name][0] if name in RANGES else PLAIN[name][0]
    if name in LISTS:
        items = [" or ".join(dict.fromkeys(_word(each) for each in _kinds(part))) for part in _arguments(kind)[:1]]
        return ", each ".join(["a list", *items])
    if (wanted := _given_by(kind)) is not None and _name(wanted) != "None":
        return f"a reference to {with_article(_name(wanted))}, with @ and without ()"
    if is_class_of_ours(_path(kind)) or is_protocol(_path(kind)):
        return f"{with_article(name)}, made by a reference with ()"
    return "a dict" if name in DICTS else "a reference, with @"


def _fits(value, annotation, resolve):
    value = resolve(value)
    return any(_is(value, kind, resolve) for kind in _kinds(annotation))


def _is(value, kind, resolve):
    name, arguments = _name(kind), _arguments(kind)
    if name in OPEN:
        return True
    if isinstance(value, Reference):
        return _is_made(value, kind) if value.is_call else _is_referred_to(value, kind)
    if isinstance(value, Macro):
        return True  # of nothing that is defined, which is reported elsewhere
    if name == CHOICES:
        return any(type(value) is type(choice) and value == choice for choice in _choices_in(kind))
    if name in RANGES:
        return is_within(value, name)
    if name in PLAIN:
        return isinstance(value, PLAIN[name][1]) and (name == "bool" or not isinstance(value, bool))
    if name in LISTS and isinstance(value, list | tuple):
        return all(_fits(item, arguments[0], resolve) for item in value if arguments)
    if name in DICTS and isinstance(value, dict):
        pairs = [pair for item in value.items() for pair in zip(item, arguments, strict=False)]
        return all(_fits(item, argument, resolve) for item, argument in pairs)
    return False


def _arguments(kind):
    """What stands in the brackets of a type."""
    if not isinstance(kind, ast.Subscript):
        return []
    return kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]


def _choices_in(annotation):
    """The values that a type names one by one, wherever in it."""
    literals = [node for node in ast.walk(annotation) if _name(node) == CHOICES]
    return [each.value for literal in literals for each in _arguments(literal) if isinstance(each, ast.Constant)]
