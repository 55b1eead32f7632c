"""Kinds of couplings: what the output embedding has to do with the input embedding, the paper's question.

A kind is a small object that owns no variables. It says which tables the output has of its own, which are dropped after
pre-training, and what words are scored with. Your own is a class with what `Decoupled` has.
"""

from rembed_keras.modeling.couplings.coupled import Coupled
from rembed_keras.modeling.couplings.decoupled import Decoupled
from rembed_keras.modeling.couplings.extended import Extended
from rembed_keras.modeling.couplings.gradient_disentangled import GradientDisentangled

__all__ = ["Coupled", "Decoupled", "Extended", "GradientDisentangled"]
