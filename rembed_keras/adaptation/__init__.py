"""How a pre-trained encoder is adapted to a task: fine-tuning methods, and what each costs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
