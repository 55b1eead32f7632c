"""What a name in a recipe stands for, read from the source without importing it.

A misspelt parameter should be told at once, before a framework is loaded and a corpus prepared. So the functions and
classes of this package are looked up in its source files: through re-exports, to the parameters and their defaults.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

PACKAGE = __package__.split(".")[0]
ROOT = Path(__file__).parent.parent  # of the package


@dataclass(frozen=True)
class Signature:
    """A function's or class's parameters.

    Attributes:
        module: where it is defined.
        parameters: names, without `self`.
        defaults: values of the parameters that have a literal one.
        annotations: of the parameters that have one.
        aliases: names that its module gives to types and other things.
    """

    module: str
    parameters: tuple[str, ...]
    defaults: dict
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    aliases: dict[str, ast.expr] = field(default_factory=dict)


def is_ours(path: str) -> bool:
    """Whether a dotted path leads into this package."""
    return path.split(".")[0] == PACKAGE


def signature(path: str) -> Signature | None:
    """The signature of what a dotted path leads to, for example "rembed_keras.modeling.Encoder".

    Returns:
        None if the package has no such function or class.
    """
    found = _definition(path)
    if found is None:
        return None
    module, node = found
    return _signature(module, node, skip=0) if isinstance(node, ast.FunctionDef) else _constructor(module, node)


def static_method(path: str, name: str) -> str | None:
    """The dotted path of the function that a class of this package, or its base, has as a static method.

    >>> static_method("rembed_keras.modeling.LateMaskedLM", "ledger_entries")
    'rembed_keras.modeling.objectives.late_masked_lm_cost.late_masked_lm_entries'
    """
    found = _definition(path)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    module, node = found[0], found[1]
    for member in node.body:
        if isinstance(member, ast.Assign) and isinstance(member.value, ast.Call):
            names = [target.id for target in member.targets if isinstance(target, ast.Name)]
            (argument,) = member.value.args or (None,)
            if (
                names == [name]
                and isinstance(argument, ast.Name)
                and (origin := _definition(f"{module}.{argument.id}"))
            ):
                return f"{origin[0]}.{origin[1].name}"
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return next((method for base in bases if (method := static_method(f"{module}.{base}", name))), None)


def bases(path: str) -> Iterator[str]:
    """The dotted paths of what a class of this package is derived from, those of other packages too.

    >>> list(bases("rembed_keras.training.Muon"))
    ['keras.optimizers.Muon']
    """
    found = _definition(path) if is_ours(path) else None
    if found is None or not isinstance(found[1], ast.ClassDef):
        return
    module = found[0]
    for base in found[1].bases:
        name = ast.unparse(base)
        origin = _definition(f"{module}.{name}")
        target = f"{origin[0]}.{origin[1].name}" if origin else _imported_name(module, name)
        yield target
        yield from bases(target)


def _imported_name(module: str, name: str) -> str:
    """The dotted path of a name that a module imports from another package."""
    first, dot, rest = name.partition(".")
    for node in _parse(module).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == first:
                    return f"{_source(module, node)}.{alias.name}{dot}{rest}"
    return name


def _definition(path: str) -> tuple[str, ast.FunctionDef | ast.ClassDef] | None:
    """The module and the definition of a function or class that a dotted path leads to, through imports."""
    module, _, name = path.rpartition(".")
    tree = _parse(module)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name and is_ours(_source(module, node)):
                    return _definition(f"{_source(module, node)}.{alias.name}")
    return None


def names_in(module: str) -> list[str]:
    """The functions and classes that a module of this package has or shows."""
    return [name for name in _names(module) if not name.startswith("_")]


def _names(module: str) -> Iterator[str]:
    tree = _parse(module)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom) and is_ours(_source(module, node)):
            yield from (alias.asname or alias.name for alias in node.names)


def _source(module: str, node: ast.ImportFrom) -> str:
    """The module that names are imported from; stubs of packages name it relative to themselves."""
    return f"{module}.{node.module}" if node.level else node.module or ""


def _constructor(module, node):
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return _signature(module, member, skip=1)
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return signature(f"{module}.{bases[0]}") if bases else Signature(module, (), {})


def _signature(module, function, skip):
    positional = [*function.args.posonlyargs, *function.args.args]
    with_defaults = positional[len(positional) - len(function.args.defaults) :]
    pairs = [*zip(with_defaults, function.args.defaults, strict=True)]
    pairs += [pair for pair in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if pair[1]]
    defaults = {}
    for argument, value in pairs:
        try:
            defaults[argument.arg] = ast.literal_eval(value)
        except ValueError:
            continue  # computed when it is called: not for a reader to know
    arguments = [*positional, *function.args.kwonlyargs][skip:]
    annotations = {argument.arg: argument.annotation for argument in arguments if argument.annotation}
    aliases = {
        node.targets[0].id: node.value
        for node in _parse(module).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return Signature(module, tuple(argument.arg for argument in arguments), defaults, annotations, aliases)


@lru_cache
def _parse(module):
    path = ROOT.parent.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.pyi", path / "__init__.py"):
        if file.exists():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None
