"""From gin files to a checked recipe, and from that to a run: parse, validate, bind."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
