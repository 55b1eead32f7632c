"""Weights in and out: Hugging Face folders, TensorFlow checkpoints, keras-hub presets, SavedModels."""

from rembed_keras.interop.convert import convert, write

__all__ = ["convert", "write"]
