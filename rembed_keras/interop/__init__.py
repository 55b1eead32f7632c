"""Weights in and out: Hugging Face folders, TensorFlow checkpoints, keras-hub presets, SavedModels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
