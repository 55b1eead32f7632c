"""Kinds of sharing between an encoder and the generator of replaced-token detection.

A kind is a small object that owns no variables. It says which layers the generator has, what the encoder reads while it
detects, and what both cost. Your own is a class with what `NotShared` has.
"""

from rembed_keras.modeling.generator_sharing.embeddings import SharedEmbeddings
from rembed_keras.modeling.generator_sharing.gradient_disentangled import GradientDisentangled
from rembed_keras.modeling.generator_sharing.not_shared import NotShared

__all__ = ["GradientDisentangled", "NotShared", "SharedEmbeddings"]
