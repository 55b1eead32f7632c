"""Studies: arms, seeds, measures and hypotheses; what their runs came to, and a verdict for each hypothesis."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
