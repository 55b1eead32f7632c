"""The only file that leans on private parts of Keras, keras-hub, TensorFlow, JAX and gin.

An upgrade may change any of them without a word, so each is a small function that says where it was seen, and
tests/test_compat.py has a canary for each, which fails when the private thing is no longer what it was. Nothing is
imported here before a function needs it.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def gin_evaluates_by(evaluate: Callable[[list[str], str, Callable[[], Any]], Any]) -> Iterator[None]:
    """While open, gin asks `evaluate(scopes, selector, call)` for what it takes `@scopes/selector()` to be.

    gin evaluates a reference when it copies the arguments that hold it. Seen in gin-config 0.5.0:
    `gin.config.ConfigurableReference.__deepcopy__`.
    """
    import gin

    reference = gin.config.ConfigurableReference
    usual = reference.__deepcopy__

    def through(self, memo):
        if not self.evaluate:
            return usual(self, memo)
        return evaluate(self.scopes, self.selector, lambda: usual(self, memo))

    reference.__deepcopy__ = through
    try:
        yield
    finally:
        reference.__deepcopy__ = usual
