"""A coupling as recipes, models and their configurations say it: by a word, if it is one of ours."""

from typing import Literal, TypeAlias

from rembed_keras.modeling import couplings
from rembed_keras.modeling.choices import Part, Words

Coupling: TypeAlias = Literal["decoupled", "coupled", "extended", "gdes"] | type | Part
KINDS = (couplings.Decoupled, couplings.Coupled, couplings.Extended, couplings.GradientDisentangled)
COUPLINGS = Words("coupling", couplings, KINDS)
