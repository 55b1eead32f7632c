"""A kind of sharing as recipes, models and their configurations say it: by a word, if it is one of ours."""

from typing import Literal, TypeAlias

from rembed_keras.modeling import generator_sharing
from rembed_keras.modeling.choices import Part, Words

Sharing: TypeAlias = Literal["none", "embeddings", "gdes"] | type | Part
KINDS = (generator_sharing.NotShared, generator_sharing.SharedEmbeddings, generator_sharing.GradientDisentangled)
SHARING = Words("sharing", generator_sharing, KINDS)
