"""What a part of an encoder was made with, as its configuration says it; needs no framework."""

import functools
import inspect
from typing import Any

from rembed_keras.errors import UserError


def arguments_of(part: Any) -> dict:
    """The arguments that a part was made with, of a class that keeps each under its name.

    Raises:
        UserError: for one that it does not keep so: a model is made of what `get_config` says.

    >>> from rembed_keras.modeling.blocks import Bottleneck
    >>> arguments_of(Bottleneck(pairs=2))
    {'pairs': 2}
    """
    kind: Any = type(part)
    names = _names_of(kind)
    if lost := [name for name in names if not hasattr(part, name)]:
        raise UserError(f"{kind.__name__} takes {lost[0]} and has no get_config: give it one, or keep self.{lost[0]}")
    return {name: value for name, value in vars(part).items() if name in names}


@functools.cache
def _names_of(kind: type) -> list[str]:
    return [*inspect.signature(kind).parameters]
