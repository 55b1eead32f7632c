"""Kinds of input embeddings: which tables and layers are below the blocks, how wide, and what they cost.

A kind is a small object that owns no variables and makes the layer that does. Your own is a class with what `Summed`
has.
"""

from rembed_keras.modeling.input_embeddings.projected import Projected
from rembed_keras.modeling.input_embeddings.summed import Summed
from rembed_keras.modeling.input_embeddings.trigrams import Trigrams

__all__ = ["Projected", "Summed", "Trigrams"]
