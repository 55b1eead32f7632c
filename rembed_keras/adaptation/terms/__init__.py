"""Loss terms: what fine-tuning or pre-training adds to a model's own loss."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
