"""Pre-training objectives: the loss, what is dropped, and how a batch becomes a step."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
