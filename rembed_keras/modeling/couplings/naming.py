"""A coupling as recipes, models and their configurations say it: by a word, if it is one of ours."""

from typing import Any, Literal, TypeAlias

from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.modeling import couplings
from rembed_keras.modeling.choices import Part, chosen, described

Coupling: TypeAlias = Literal["decoupled", "coupled", "extended", "gdes"] | type | Part
WORDS = {
    kind.name: kind
    for kind in (couplings.Coupled, couplings.Decoupled, couplings.Extended, couplings.GradientDisentangled)
}


def coupling_of(value: Any) -> Any:
    """The kind of coupling that a value stands for: a word, a class, an object, or what `told` gives.

    Raises:
        UserError: for what is none of these.

    >>> coupling_of("gdes").name, coupling_of(couplings.Coupled).name
    ('gdes', 'coupled')
    """
    if isinstance(value, str) and value not in WORDS:
        raise UserError(f"coupling is {value!r}; it can be one of {', '.join(WORDS)}{did_you_mean(value, WORDS)}")
    return chosen("coupling", value, couplings, WORDS)


def told(value: Any) -> str | dict:
    """A coupling as a configuration says it.

    >>> told(couplings.Extended())
    'extended'
    """
    kind = coupling_of(value)
    return kind.name if WORDS.get(kind.name) is type(kind) else described(kind)
