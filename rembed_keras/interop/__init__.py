"""Weights in and out: Hugging Face folders, TensorFlow checkpoints, keras-hub presets, SavedModels."""

from rembed_keras.interop.convert import convert, write
from rembed_keras.interop.vocabulary import extend, trim

__all__ = ["convert", "extend", "trim", "write"]
