"""What a name in a recipe stands for, read from the source without importing it.

A misspelt parameter should be reported at once, before a framework is loaded and a corpus prepared. So the functions
and classes of this package are looked up in its source files: through re-exports, to the parameters and their defaults.
"""

import ast
import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rembed_keras.errors import RANGES

PACKAGE = __package__.split(".")[0]
ROOT = Path(__file__).parent.parent.parent  # of the package


@dataclass(frozen=True)
class Signature:
    """A function's or class's parameters.

    Attributes:
        module: where it is defined.
        parameters: names, without `self`.
        defaults: values of the parameters that have a literal one.
        annotations: of the parameters that have one.
        required: names of the parameters without a default.
    """

    module: str
    parameters: tuple[str, ...]
    defaults: dict
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    required: tuple[str, ...] = ()


def is_ours(path: str) -> bool:
    """Whether a dotted path leads into this package."""
    return path.split(".")[0] == PACKAGE


def names_a_class(path: str) -> bool:
    """Whether a dotted path ends as those of classes do, in CamelCase."""
    return path.rpartition(".")[2][:1].isupper()


@cache
def signature(path: str) -> Signature | None:
    """The signature of what a dotted path leads to, for example "rembed_keras.modeling.Encoder".

    A class without a constructor of its own has that of the first of its bases, a dataclass its fields.

    Returns:
        None if the package has no such function or class.
    """
    found = definition(path)
    if found is None:
        return None
    module, node = found
    return _signature(module, node, skip=0) if isinstance(node, ast.FunctionDef) else _constructor(module, node)


@cache
def definition(path: str) -> tuple[str, ast.FunctionDef | ast.ClassDef] | None:
    """The module and the definition of a function or class that a dotted path leads to, through imports."""
    module, _, name = path.rpartition(".")
    tree = parse(module)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
    source = _imported_from(module, name)
    return definition(source) if source else None


@cache
def _imported_from(module: str, name: str) -> str | None:
    """Where a module of this package has a name from, if it imports it from this package."""
    tree = parse(module)
    for node in tree.body if tree else ():
        if isinstance(node, ast.ImportFrom) and is_ours(source_of(module, node)):
            for alias in node.names:
                found = f"{source_of(module, node)}.{alias.name}"
                if (alias.asname or alias.name) == name and found != f"{module}.{name}":
                    return found
    return None


@cache
def expanded(annotation: ast.expr, module: str) -> ast.expr:
    """An annotation of a module whose names for types are replaced by what they stand for.

    Only what is assigned in this package is replaced; the kinds of numbers of `errors` stay.
    """
    return _Expansion(module).visit(copy.deepcopy(annotation))


class _Expansion(ast.NodeTransformer):
    def __init__(self, module):
        self.module = module

    def visit_Name(self, node):  # `ast` calls it so
        if node.id in RANGES:
            return node
        module, name = self.module, node.id
        while (source := _imported_from(module, name)) is not None:
            module, _, name = source.rpartition(".")
        stands_for = _assigned(module, name)
        node.path = f"{module}.{name}"  # for whoever wants to know more of the class
        return node if stands_for is None else expanded(stands_for, module)


def _assigned(module, name):
    """What a module assigns to a name; None if it does not."""
    tree = parse(module)
    for node in tree.body if tree else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(targets[0], ast.Name) and targets[0].id == name:
            return node.value
    return None


def names_in(module: str) -> list[str]:
    """The functions and classes that a module of this package has or shows."""
    return [name for name in _names(module) if not name.startswith("_")]


def _names(module: str) -> Iterator[str]:
    tree = parse(module)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom) and is_ours(source_of(module, node)):
            yield from (alias.asname or alias.name for alias in node.names)


def source_of(module: str, node: ast.ImportFrom) -> str:
    """The module that names are imported from; stubs of packages name it relative to themselves."""
    return f"{module}.{node.module}" if node.level else node.module or ""


def _constructor(module, node):
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return _signature(module, member, skip=1)
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    inherited = signature(f"{module}.{bases[0]}") if bases else Signature(module, (), {})
    if inherited is None or not any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return inherited
    return _with_fields(inherited, module, node)


def _with_fields(inherited, module, node):
    """The constructor of a dataclass: the fields of its base, and its own."""
    members = (each for each in node.body if isinstance(each, ast.AnnAssign))
    fields = {each.target.id: each for each in members if isinstance(each.target, ast.Name)}
    defaults = inherited.defaults | _literals((name, each.value) for name, each in fields.items() if each.value)
    annotations = inherited.annotations | {name: each.annotation for name, each in fields.items()}
    required = [name for name in inherited.required if name not in fields]
    required += [name for name, each in fields.items() if each.value is None]
    names = dict.fromkeys((*inherited.parameters, *fields))
    return Signature(module, (*names,), defaults, annotations, (*required,))


def _signature(module, function, skip):
    positional = [*function.args.posonlyargs, *function.args.args]
    with_defaults = positional[len(positional) - len(function.args.defaults) :]
    pairs = [*zip(with_defaults, function.args.defaults, strict=True)]
    pairs += [pair for pair in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if pair[1]]
    defaults = _literals((argument.arg, value) for argument, value in pairs)
    arguments = [*positional, *function.args.kwonlyargs][skip:]
    annotations = {argument.arg: argument.annotation for argument in arguments if argument.annotation}
    optional = {argument.arg for argument, _ in pairs}
    names = tuple(argument.arg for argument in arguments)
    return Signature(module, names, defaults, annotations, tuple(name for name in names if name not in optional))


def _literals(pairs) -> dict:
    """The values of expressions by name, without those that are computed when they are called."""
    values = {}
    for name, expression in pairs:
        with contextlib.suppress(ValueError):
            values[name] = ast.literal_eval(expression)
    return values


@cache
def parse(module: str) -> ast.Module | None:
    """The source of a module of this package; of a package what it shows. None if there is no such module."""
    path = ROOT.parent.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.pyi", path / "__init__.py"):
        if file.exists():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None
