"""Text becomes batches: tokenizer, corpus, mixture and masking, each a function of (seed, step)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
