"""What the layers of an encoder know, from arrays of their hidden states alone: probes, similarity, over-smoothing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
