"""Pre-train multilingual encoders, and know what every part of them costs.

The names of `__init__.pyi` are imported when they are first asked for, so that what needs no framework loads none.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
