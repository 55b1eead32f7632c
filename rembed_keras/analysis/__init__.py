"""What an encoder costs and where: ledgers that need no model to be built."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
