"""What a recipe binds, and what one binding may say: names that are there, and nothing that a recipe has no use for.

A recipe may come from a stranger. It can name functions and classes of this package, parts of models and of learning
that Keras and keras-hub have, and what is in packages that the user trusts; nothing else of theirs, such as a function
of a module that one of their modules has imported.
"""

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar, cast

from rembed_keras.config.recipes.classes import bases
from rembed_keras.config.recipes.signatures import is_ours, names_in, signature
from rembed_keras.errors import UserError, did_you_mean, shortened

# what owns variables must be built inside a strategy's scope, by the stage that opens it: rooms of this package and of
# Keras that do, and every class of ours that has one of theirs among its bases
OWNERS = (
    "rembed_keras.modeling.",
    "keras.callbacks.",
    "keras.layers.",
    "keras.models.",
    "keras.optimizers.",
    "keras_hub.",
)
OWN_NOTHING = (
    "keras.optimizers.schedules.",
    "rembed_keras.modeling.attention.",
    "rembed_keras.modeling.blocks.",
    "rembed_keras.modeling.couplings.",
    "rembed_keras.modeling.generator_sharing.",
    "rembed_keras.modeling.input_embeddings.",
)
# what a recipe may name of others' packages: parts of models and of learning, and nothing that reads or writes files
OTHERS = re.compile(
    r"keras\.activations\.(?!deserialize$|serialize$|get$)[a-z]\w*"
    r"|keras\.callbacks\.(LambdaCallback|TerminateOnNaN)"
    r"|keras\.(constraints|initializers|losses|metrics|optimizers|optimizers\.schedules|regularizers)\.[A-Z]\w*"
    r"|keras\.layers\.(?!Lambda$|TFSMLayer$|TorchModuleWrapper$|JaxLayer$|FlaxLayer$)[A-Z]\w*"
    r"|keras_hub\.layers\.[A-Z]\w*"
)
BETWEEN_EPOCHS = re.compile(r"keras\.callbacks\.(EarlyStopping|LearningRateScheduler|ReduceLROnPlateau)")

Value = TypeVar("Value")
Key: TypeAlias = tuple[str, str, str]  # of what is bound: scope, target and parameter


@dataclass(frozen=True)
class Reference:
    """`@scope/module.name`, or with `()` what calling it gives.

    Attributes:
        scope: scopes from outside in, joined by "/"; empty if none.
        selector: as it is written, for example "modeling.Encoder".
        target: the dotted path it stands for.
        is_call: whether it is called.
    """

    scope: str
    selector: str
    target: str
    is_call: bool

    def __repr__(self):
        return f"@{self.scope}{'/' * bool(self.scope)}{self.selector}{'()' * self.is_call}"


@dataclass(frozen=True)
class Macro:
    """`%NAME`."""

    name: str

    def __repr__(self):
        return f"%{self.name}"


@dataclass(frozen=True)
class Binding:
    """`scope/module.name.parameter = value`, or `NAME = value` for a macro.

    Attributes:
        scope: as in `Reference`.
        selector: as it is written; of a macro, its name.
        target: the dotted path; of a macro, empty.
        parameter: the parameter's name; of a macro, empty.
        value: literals, `Reference` and `Macro`, perhaps in lists, tuples and dicts.
        place: where it stands, "file:line".
        comment: what its line says of it after "#".
    """

    scope: str
    selector: str
    target: str
    parameter: str
    value: object
    place: str
    comment: str = ""

    @property
    def bound(self) -> Key:
        """What is bound, as one file may write it in other words than another: scope, target and parameter."""
        return (self.scope, self.target, self.parameter) if self.parameter else ("", self.key, "")

    @property
    def file(self) -> str:
        """The file that it stands in, or the command line."""
        return re.sub(r":\d+$", "", self.place)

    @property
    def key(self) -> str:
        """What is bound, as it is written."""
        prefix = f"{self.scope}/" if self.scope else ""
        return f"{prefix}{self.selector}.{self.parameter}" if self.parameter else f"{prefix}{self.selector}"

    def text(self, has_comment: bool = True) -> str:
        """The binding as gin reads it."""
        return f"{self.key} = {self.value!r}" + (f"  # {self.comment}" if self.comment and has_comment else "")


def check_binding(binding: Binding, trusted: tuple[str, ...] = ()) -> None:
    """Checks the names and values of one binding.

    Args:
        binding: the binding.
        trusted: packages beside this one of which it may name anything.

    Raises:
        UserError: if there is no such function or class in this package, it has no such parameter, what owns variables
            is called instead of referred to, a name in another package is none that a recipe may use or has a use for,
            or a value is none that a recipe can say.
    """
    for value in _literals_in(binding.value):
        if isinstance(value, bytes | complex) or value is ... or (isinstance(value, str) and not _is_text(value)):
            raise UserError(f"{binding.place}: {binding.key} is {shortened(value)}, which is neither a number nor text")
    for target, selector in targets_of(binding):
        if not is_ours(target):
            _check_of_others(binding, target, trusted)
            continue
        known = signature(target)
        if known is None:
            module, _, name = target.rpartition(".")
            raise UserError(f"{binding.place}: there is no {selector}{did_you_mean(name, names_in(module))}")
        if target == binding.target and binding.parameter and binding.parameter not in known.parameters:
            meant = did_you_mean(binding.parameter, known.parameters)
            raise UserError(f"{binding.place}: {selector} has no parameter {binding.parameter}{meant}")
    for reference in references_in(binding.value):
        if reference.is_call and owns_variables(reference.target):
            raise UserError(f"{binding.place}: bind @{reference.selector} without (): the stage builds it in its place")


def check_finite(binding: Binding) -> None:
    """Checks that a recipe's file can have what is bound: gin writes no infinite number that it reads again.

    Raises:
        UserError: for a number that is not finite.
    """
    for value in _literals_in(binding.value):
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{binding.place}: {binding.key} is {shortened(binding.value)}; it must be finite")


def _check_of_others(binding, target, trusted):
    """Checks a name in another package."""
    if BETWEEN_EPOCHS.fullmatch(target):
        raise UserError(
            f"{binding.place}: {target} acts between epochs, of which a training has one: set model.stop_training in "
            "on_train_batch_end of a callback of your own, and give the optimizer a schedule of its learning rate"
        )
    top = target.split(".")[0]
    if top not in trusted and not OTHERS.fullmatch(target):
        raise UserError(f"{binding.place}: a recipe may not name {target}; if you trust it, add --allow-import {top}")


def owns_variables(target: str) -> bool:
    """Whether what a dotted path leads to is, or makes, a model, a layer, an optimizer or a callback."""
    return any(each.startswith(OWNERS) and not each.startswith(OWN_NOTHING) for each in (target, *bases(target)))


def targets_of(binding: Binding) -> Iterator[tuple[str, str]]:
    """Yields (target, selector) of what a binding binds and refers to."""
    if binding.parameter:
        yield binding.target, binding.selector
    for reference in references_in(binding.value):
        yield reference.target, reference.selector


def check_given(reference: Reference, names: Collection[str]) -> None:
    """Checks that what a reference stands for is given all that it has no default for.

    Args:
        reference: to a function or class.
        names: of the parameters that are given.

    Raises:
        UserError: for the first parameter that is lacking.
    """
    known = signature(reference.target)
    for name in known.required if known else ():
        if name not in names:
            raise UserError(f"{reference.selector} has no {name!r}: bind it in the recipe")


def references_in(value) -> Iterator[Reference]:
    """Yields the references that a value is made of, macros left aside."""
    if isinstance(value, Reference):
        yield value
    for item in items_of(value):
        yield from references_in(item)


def _literals_in(value) -> Iterator:
    """Yields the numbers and texts that a value is made of."""
    items = items_of(value)
    if not items:
        yield value
    for item in items:
        yield from _literals_in(item)


def _is_text(value):
    """Whether a file can be named or written with it."""
    try:
        return "\0" not in value and bool(value.encode("utf-8") or not value)
    except UnicodeEncodeError:
        return False


def items_of(value):
    """What a list, tuple or dict holds."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, list | tuple) else []


def in_macro(macro: Macro, value: Value) -> Value:
    """What a macro stands for; what it calls gin calls in a scope of the macro's name, whatever scope uses it."""
    if isinstance(value, Reference) and value.is_call and not value.scope:
        return cast("Value", replace(value, scope=macro.name))
    return value
