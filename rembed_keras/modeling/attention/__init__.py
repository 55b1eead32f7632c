"""Kinds of attention: who attends to whom, and what that costs.

A kind is a small object that owns no variables, so a recipe makes it with `()`. An encoder takes one for all layers, or
a list that is repeated over them. Your own is a class with what `Global` has.
"""

from rembed_keras.modeling.attention.disentangled import Disentangled
from rembed_keras.modeling.attention.full import Global
from rembed_keras.modeling.attention.local import Local
from rembed_keras.modeling.attention.nystrom import Nystrom

__all__ = ["Disentangled", "Global", "Local", "Nystrom"]
