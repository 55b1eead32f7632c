"""What a value in a recipe may be: what the annotation of the parameter says that it is bound to.

A number where a text belongs would be found late, by whatever library it reaches, in words that no recipe has. So
values are held against annotations when a recipe is read. What an annotation leaves open stays open.
"""

import ast
from collections.abc import Callable

from rembed_keras.config.recipes.signatures import bases, expanded, is_class_of_ours, is_ours, signature
from rembed_keras.config.recipes.statements import Binding, Macro, Reference
from rembed_keras.errors import RANGES, UserError, did_you_mean, is_within, shortened

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
OPEN = ("", "Any", "object")


def check_value(binding: Binding, given: Binding, resolve: Callable[[object], object]) -> None:
    """Checks what a parameter of this package is bound to.

    Args:
        binding: the binding; its names have been checked.
        given: where its value is written: the binding itself, or that of the macro that it uses.
        resolve: gives what a macro stands for.

    Raises:
        UserError: for a value of another kind than the parameter's, or out of its range.
    """
    known = signature(binding.target) if binding.parameter else None
    if known is None or binding.parameter not in known.annotations:
        return
    annotation = expanded(known.annotations[binding.parameter], known.module)
    if _fits(binding.value, annotation, resolve):
        return
    kinds = dict.fromkeys(_word(kind) for kind in _kinds(annotation))
    value = resolve(given.value)
    meant = did_you_mean(value, map(str, _choices_in(annotation))) if isinstance(value, str) else ""
    raise UserError(f"{given.place}: {given.key} is {shortened(value)}; it must be {' or '.join(kinds)}{meant}")


def _is_made(call, kind):
    """Whether a call gives what a type asks for, as far as the source says: classes say what they make."""
    name, path = _name(kind), getattr(kind, "path", "")
    is_class = call.target.rpartition(".")[2][:1].isupper()
    if name in (*PLAIN, *RANGES, *LISTS, *DICTS, CHOICES):
        return not is_class  # a function may give it
    if not (is_class and is_ours(call.target) and is_class_of_ours(path)):
        return True
    return name in (each.rpartition(".")[2] for each in (call.target, *bases(call.target)))


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
    if is_class_of_ours(getattr(kind, "path", "")):
        return f"a {name}, made by a reference with ()"
    return "a dict" if name in DICTS else "a reference, with @"


def _fits(value, annotation, resolve):
    value = resolve(value)
    return any(_is(value, kind, resolve) for kind in _kinds(annotation))


def _is(value, kind, resolve):
    name, arguments = _name(kind), _arguments(kind)
    if name in OPEN:
        return True
    if isinstance(value, Reference):
        return _is_made(value, kind) if value.is_call else name not in (*PLAIN, *RANGES, *LISTS, *DICTS, CHOICES)
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
