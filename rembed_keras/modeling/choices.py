"""Parts that an encoder is made of: given as a class, an object, or in the words of a configuration.

Such parts, kinds of blocks and of attention, own no variables: they say what to build and what it costs. Ours import no
framework until they build; those of others are found as Keras finds registered classes.
"""

from collections.abc import Mapping, Sequence
from functools import cache
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
    config = part.get_config()
    if not is_ours(kind):
        from keras import saving

        config = _unshared(saving.serialize_keras_object(config))
    return with_class(kind, config)


def with_class(kind: type, config: Any) -> dict:
    """A configuration and the class that it is of, in the form that Keras serializes objects in.

    Args:
        kind: the class.
        config: what its `get_config` gives, as JSON says it.
    """
    name = kind.__name__
    registered = f"{OURS}{name}"
    if not is_ours(kind):
        from keras import saving

        registered = saving.get_registered_name(kind)
    return {"module": kind.__module__, "class_name": name, "config": config, "registered_name": registered}


def _unshared(config):
    """What Keras made of arguments, without numbers of objects, which come again once an object is gone."""
    if isinstance(config, Mapping):
        return {key: _unshared(value) for key, value in config.items() if key != "shared_object_id"}
    return [_unshared(value) for value in config] if isinstance(config, list | tuple) else config


def computed(part: Any) -> tuple[str, dict]:
    """What a part computes: its name, wherever its class stands, and its arguments but for the kernel of attention.

    >>> from rembed_keras.modeling.attention import Global
    >>> computed(Global(kernel="dense")) == computed(Global())
    True
    """
    said = described(part)
    unread = ("kernel",) if is_ours(type(part)) else ()
    return said["registered_name"], {key: value for key, value in said["config"].items() if key not in unread}


def chosen(parameter: str, value: Any, room: ModuleType, usual: type, former: Mapping[str, type]) -> Any:
    """The part that a value stands for.

    Args:
        parameter: what the value is given as, for messages.
        value: an object, its class, a former name, or what `described` gives.
        room: the package that shows ours.
        usual: a class with all that such a part must have.
        former: classes by the names that they had in version 0.1.

    Raises:
        UserError: for what is none of these.
    """
    if isinstance(value, str):
        if value not in former:
            known = ", ".join(room.__all__)
            raise UserError(f"{parameter} is {value!r}; it can be one of {known}{did_you_mean(value, room.__all__)}")
        return former[value]()
    if isinstance(value, Mapping):
        return _deserialized(parameter, value, room)
    if isinstance(value, type):
        value = _of_class(parameter, value)
    if not hasattr(value, "get_config"):
        raise UserError(f"{parameter} is {shortened(value)}; it can be one of {', '.join(room.__all__)}")
    lacking = [name for name in _public_names(usual) if not hasattr(value, name)]
    if lacking:
        raise UserError(
            f"{parameter} is {type(value).__name__}, which has no {' and no '.join(lacking[:2])}: it can be one of "
            f"{', '.join(room.__all__)}, or a class with what {usual.__name__} has"
        )
    return value


def _of_class(parameter, kind):
    """An object of a class that was given without arguments."""
    try:
        return kind()
    except TypeError:
        raise UserError(f"{parameter} is {kind.__name__}, which needs arguments: give an object of it") from None


@cache
def _public_names(kind):
    """What a class has."""
    return [name for name in dir(kind) if not name.startswith("_")]


class Words:
    """Kinds of a parameter that have a word each, by which recipes and configurations call them.

    Args:
        parameter: what a value is given as, for messages.
        room: the package that shows ours.
        kinds: ours, with their words as `name`; the first has all that such a kind must have.

    >>> from rembed_keras.modeling import couplings
    >>> words = Words("coupling", couplings, (couplings.Decoupled, couplings.Coupled, couplings.Extended))
    >>> words.kind("extended").name, words.told(couplings.Coupled)
    ('extended', 'coupled')
    """

    def __init__(self, parameter: str, room: ModuleType, kinds: Sequence[type[Any]]):
        self.parameter, self.room, self.usual = parameter, room, kinds[0]
        self.kinds = {kind.name: kind for kind in kinds}

    def kind(self, value: Any) -> Any:
        """The kind that a value stands for: a word, a class, an object, or what `told` gives.

        Raises:
            UserError: for what is none of these.
        """
        if isinstance(value, str) and value not in self.kinds:
            known = f"{', '.join(self.kinds)}{did_you_mean(value, self.kinds)}"
            raise UserError(f"{self.parameter} is {value!r}; it can be one of {known}")
        return chosen(self.parameter, value, self.room, self.usual, self.kinds)

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
