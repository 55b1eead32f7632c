"""Sinks: where a run is watched while it goes on; `sink` says what one is."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
