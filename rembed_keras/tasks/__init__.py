"""Labelled and parallel text: how it is read, encoded, scored, and compared with what needs no encoder."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
