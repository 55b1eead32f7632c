"""Evaluators: what is measured of a model while it pre-trains; `evaluator` says what one must have."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
