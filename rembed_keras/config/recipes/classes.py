"""What the classes of this package are derived from and have, read from the source without importing them."""

import ast
from collections.abc import Iterator

from rembed_keras.config.recipes.signatures import definition, expanded, is_ours, parse, signature, source_of

PLAIN_BASES = ("object", "Protocol", "typing.Protocol", "abc.ABC", "ABC")  # which bring no methods


def bases(path: str) -> Iterator[str]:
    """The dotted paths of what a class of this package is derived from, those of other packages too.

    >>> list(bases("rembed_keras.training.Muon"))
    ['keras.optimizers.Muon']
    """
    found = definition(path) if is_ours(path) else None
    if found is None or not isinstance(found[1], ast.ClassDef):
        return
    module = found[0]
    for base in found[1].bases:
        name = ast.unparse(base)
        base_found = definition(f"{module}.{name}")
        target = f"{base_found[0]}.{base_found[1].name}" if base_found else _imported_name(module, name)
        yield target
        yield from bases(target)


def is_class_of_ours(path: str) -> bool:
    """Whether a dotted path leads to a class of this package, of which another is no instance by what it can do alone.

    >>> is_class_of_ours("rembed_keras.tasks.kinds.task.Task"), is_class_of_ours("rembed_keras.modeling.choices.Part")
    (True, False)
    """
    found = definition(path) if is_ours(path) else None
    return found is not None and isinstance(found[1], ast.ClassDef) and not is_protocol(path)


def is_protocol(path: str) -> bool:
    """Whether a dotted path leads to a protocol of this package."""
    found = definition(path) if is_ours(path) else None
    return found is not None and "Protocol" in map(ast.unparse, getattr(found[1], "bases", ()))


def has_what(path: str, protocol: str) -> bool:
    """Whether a class of this package has the methods of a protocol of this package, as far as the source says.

    What is derived from other packages' classes may have them from there.

    >>> evaluator = "rembed_keras.training.evaluators.evaluator.Evaluator"
    >>> [has_what(path, evaluator) for path in ("rembed_keras.training.evaluators.HeldOutLoss", "rembed_keras.ledger")]
    [True, False]
    """
    line = [path, *bases(path)]
    found = {name for each in line if is_ours(each) for name in _methods(each)}
    return _methods(protocol).keys() <= found or not all(is_ours(each) or each in PLAIN_BASES for each in line)


def returned_by(protocol: str) -> ast.expr | None:
    """The annotation of what a protocol of this package gives when it is called; None for one that is not called."""
    found, call = definition(protocol), _methods(protocol).get("__call__")
    return expanded(call.returns, found[0]) if found and call and call.returns else None


def called_with(path: str, parameter: str) -> tuple[str, ...]:
    """The names of what a parameter's value is called with, as far as a protocol of this package annotates it.

    >>> called_with("rembed_keras.training.finetune", "optimizer")
    ('learning_rate',)
    >>> called_with("rembed_keras.training.pretrain", "optimizer")
    ()
    """
    known = signature(path)
    annotation = known.annotations.get(parameter) if known else None
    if known is None or not isinstance(annotation, ast.Name):
        return ()
    call = _methods(f"{known.module}.{annotation.id}").get("__call__")
    return tuple(argument.arg for argument in call.args.kwonlyargs) if call else ()


def static_method(path: str, name: str) -> str | None:
    """The dotted path of the function that a class of this package, or its base, has as a static method.

    >>> static_method("rembed_keras.modeling.LateMaskedLM", "ledger_entries")
    'rembed_keras.modeling.objectives.late_masked_lm_cost.late_masked_lm_entries'
    """
    found = definition(path)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    module, node = found[0], found[1]
    for member in node.body:
        if isinstance(member, ast.Assign) and isinstance(member.value, ast.Call):
            names = [target.id for target in member.targets if isinstance(target, ast.Name)]
            argument = next(iter(member.value.args), None)
            if names == [name] and isinstance(argument, ast.Name) and (given := definition(f"{module}.{argument.id}")):
                return f"{given[0]}.{given[1].name}"
    names = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return next((method for base in names if (method := static_method(f"{module}.{base}", name))), None)


def imported_path(path: str) -> str:
    """The dotted path of what a module of this package has from another package; of other things as it is.

    >>> imported_path("rembed_keras.training.optimizers.schedules.LearningRateSchedule")
    'keras.optimizers.schedules.LearningRateSchedule'
    """
    module, _, name = path.rpartition(".")
    found = _imported_name(module, name) if is_ours(path) else name
    return path if found == name else found


def _imported_name(module: str, name: str) -> str:
    """The dotted path of a name that a module imports from another package."""
    first, dot, rest = name.partition(".")
    tree = parse(module)
    for node in tree.body if tree else ():
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == first:
                    return f"{source_of(module, node)}.{alias.name}{dot}{rest}"
    return name


def _methods(path):
    """The functions in the body of a class of this package, by name; not those that stand for an attribute."""
    found = definition(path)
    functions = [each for each in found[1].body if isinstance(each, ast.FunctionDef)] if found else []
    return {each.name: each for each in functions if "property" not in map(ast.unparse, each.decorator_list)}
