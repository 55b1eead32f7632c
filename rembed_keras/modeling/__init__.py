"""What is learned: the encoder that is kept, the heads that are dropped or swapped, and fine-tuning methods."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
