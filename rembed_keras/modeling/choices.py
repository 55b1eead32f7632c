"""Parts that an encoder is made of: given as a class, an object, or in the words of a configuration.

Such parts, kinds of blocks and of attention, own no variables: they say what to build and what it costs. Ours import no
framework until they build; those of others are found as Keras finds registered classes.
"""

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from rembed_keras.errors import UserError, did_you_mean, shortened

OURS = "rembed_keras>"


class Part(Protocol):
    """A kind of block, of attention, of coupling."""

    def get_config(self) -> dict:
        """The arguments that it was made with."""


Choice: TypeAlias = type | Part | Mapping[str, Any] | str  # of a part; see `chosen`


def described(part: Any) -> dict:
    """A part as a configuration says it, in the form that Keras serializes objects in.

    >>> from rembed_keras.modeling.attention import Global
    >>> described(Global())["registered_name"], described(Global())["config"]
    ('rembed_keras>Global', {'rotary_base': 10000.0})
    """
    kind = type(part)
    if not is_ours(kind):
        import keras

        return keras.saving.serialize_keras_object(part)
    name = kind.__name__
    return {
        "module": kind.__module__,
        "class_name": name,
        "config": part.get_config(),
        "registered_name": f"{OURS}{name}",
    }


def chosen(parameter: str, value: Any, room: ModuleType, former: Mapping[str, type]) -> Any:
    """The part that a value stands for.

    Args:
        parameter: what the value is given as, for messages.
        value: an object, its class, a former name, or what `described` gives.
        room: the package that shows ours.
        former: classes by the names that they had in version 0.1.

    Raises:
        UserError: for what is none of these.
    """
    if isinstance(value, str):
        if value not in former:
            known = ", ".join(room.__all__)
            raise UserError(f"{parameter} is {value!r}; it can be one of {known}{did_you_mean(value, room.__all__)}")
        return former[value]()
    if isinstance(value, type):
        return value()
    if isinstance(value, Mapping):
        return _deserialized(parameter, value, room)
    if not hasattr(value, "get_config"):
        raise UserError(f"{parameter} is {shortened(value)}; it can be one of {', '.join(room.__all__)}")
    return value


class Words:
    """Kinds of a parameter that have a word each, by which recipes and configurations call them.

    Args:
        parameter: what a value is given as, for messages.
        room: the package that shows ours.
        kinds: ours, with their words as `name`.

    >>> from rembed_keras.modeling import couplings
    >>> words = Words("coupling", couplings, (couplings.Coupled, couplings.Extended))
    >>> words.kind("extended").name, words.told(couplings.Coupled)
    ('extended', 'coupled')
    """

    def __init__(self, parameter: str, room: ModuleType, kinds: Iterable[type[Any]]):
        self.parameter, self.room = parameter, room
        self.kinds = {kind.name: kind for kind in kinds}

    def kind(self, value: Any) -> Any:
        """The kind that a value stands for: a word, a class, an object, or what `told` gives.

        Raises:
            UserError: for what is none of these.
        """
        if isinstance(value, str) and value not in self.kinds:
            known = f"{', '.join(self.kinds)}{did_you_mean(value, self.kinds)}"
            raise UserError(f"{self.parameter} is {value!r}; it can be one of {known}")
        return chosen(self.parameter, value, self.room, self.kinds)

    def told(self, value: Any) -> str | dict:
        """A value as a configuration says it: one of ours by its word."""
        kind = self.kind(value)
        return kind.name if self.kinds.get(kind.name) is type(kind) else described(kind)


def _deserialized(parameter, config, room):
    name, registered = config.get("class_name"), config.get("registered_name")
    if registered == f"{OURS}{name}" and name in room.__all__:
        try:
            return getattr(room, name).from_config(config.get("config") or {})
        except TypeError:
            raise UserError(f"{parameter} is {shortened(config)}, which describes no {name}") from None
    from rembed_keras.modeling.saving.configuration import made

    return made(dict(config), object)


def is_ours(kind: type) -> bool:
    """Whether a class is one of this package's."""
    return kind.__module__.split(".")[0] == "rembed_keras"
