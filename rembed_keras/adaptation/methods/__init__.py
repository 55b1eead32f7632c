"""Fine-tuning methods: which of an encoder's parameters learn a task, and what is added or reinitialized for it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
