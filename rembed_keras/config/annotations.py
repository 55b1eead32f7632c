"""What a value in a recipe may be: what the annotation of the parameter says that it is bound to.

A number where a text belongs would be found late, by whatever library it reaches, in words that no recipe has. So
values are held against annotations when a recipe is read. What an annotation leaves open stays open.
"""

import ast
from collections.abc import Callable

from rembed_keras.config.bindings import Binding, Macro, Reference
from rembed_keras.config.signatures import Signature, signature
from rembed_keras.errors import RANGES, UserError, is_within, shortened

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
    annotation = known.annotations.get(binding.parameter) if known else None
    if annotation is None or _fits(binding.value, annotation, known, resolve):
        return
    kinds = dict.fromkeys(_word(kind) for kind in _kinds(annotation, known))
    value = shortened(resolve(given.value))
    raise UserError(f"{given.place}: {given.key} is {value}; it must be {' or '.join(kinds)}")


def _kinds(annotation, known: Signature | None) -> list[ast.expr]:
    """The members of a union, names of types in the module replaced by what they stand for."""
    if isinstance(annotation, ast.BinOp):
        return [*_kinds(annotation.left, known), *_kinds(annotation.right, known)]
    if isinstance(annotation, ast.Name) and known and annotation.id in known.aliases:
        return _kinds(known.aliases[annotation.id], known)
    return [annotation]


def _name(kind):
    """The name of a type, "" for what is more than a name."""
    if isinstance(kind, ast.Constant):
        return "None" if kind.value is None else ""
    kind = kind.value if isinstance(kind, ast.Subscript) else kind
    return kind.id if isinstance(kind, ast.Name) else ""


def _word(kind):
    name = _name(kind)
    if name in RANGES or name in PLAIN:
        return RANGES[name][0] if name in RANGES else PLAIN[name][0]
    if name in LISTS:
        return ", each ".join(["a list", *(_word(part) for part in _parts(kind)[:1])])
    return "a dict" if name in DICTS else "a reference, with @"


def _fits(value, annotation, known, resolve):
    value = resolve(value)
    return any(_is(value, kind, known, resolve) for kind in _kinds(annotation, known))


def _is(value, kind, known, resolve):
    name, parts = _name(kind), _parts(kind)
    if name in ("", "Any", "object"):
        return True
    if isinstance(value, Reference):
        return value.is_call or name not in (*PLAIN, *RANGES, *LISTS, *DICTS)
    if isinstance(value, Macro):
        return True  # of nothing that is defined, which is told elsewhere
    if name in RANGES:
        return is_within(value, name)
    if name in PLAIN:
        return isinstance(value, PLAIN[name][1]) and (name == "bool" or not isinstance(value, bool))
    if name in LISTS and isinstance(value, list | tuple):
        return all(_fits(item, parts[0], known, resolve) for item in value if len(parts) == 1)
    if name in DICTS and isinstance(value, dict):
        pairs = [pair for item in value.items() for pair in zip(item, parts, strict=False)]
        return all(_fits(item, part, known, resolve) for item, part in pairs)
    return False


def _parts(kind):
    """What stands in the brackets of a type."""
    if not isinstance(kind, ast.Subscript):
        return []
    return kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
