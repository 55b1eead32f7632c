"""The platform that a step is traced for, which need not be the one that traces it, and Keras's attention on it."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_target: ContextVar[str | None] = ContextVar("platform that a step is traced for", default=None)


@contextlib.contextmanager
def tracing_for(platform: str) -> Iterator[None]:
    """While open, what is traced is going to be compiled for a platform that may not be here.

    Args:
        platform: as JAX calls it, "cpu", "cuda" or "tpu".

    >>> import keras
    >>> with tracing_for("tpu"):
    ...     platform_traced_for() == ("tpu" if keras.config.backend() == "jax" else "cpu")
    True
    """
    token = _target.set(platform)
    try:
        yield
    finally:
        _target.reset(token)


def is_on_gpu() -> bool:
    """Whether a step will run on a GPU, of JAX."""
    return platform_traced_for() not in ("cpu", "tpu")


def platform_traced_for() -> str:
    """The platform that a step will run on, as JAX calls it; "cpu" for all of TensorFlow, which has no kernels."""
    import keras  # only here: recipes are counted without a framework

    if keras.config.backend() != "jax":
        return "cpu"
    import jax

    return _target.get() or jax.default_backend()


def keras_attention(query, key, value, mask):
    """Keras's softmax attention of [B, Q, H, K] under a mask bool [B, Q, S], which nothing is dropped of.

    On a GPU Keras hands it to cuDNN in 16 bits, which with a mask takes even lengths alone.
    """
    from keras import ops

    mask = mask[:, None]
    if not is_on_gpu():
        return ops.dot_product_attention(query, key, value, mask=mask)
    count = query.shape[1]
    more, spare = count % 2, key.shape[1] % 2
    query = ops.pad(query, [[0, 0], [0, more], [0, 0], [0, 0]])
    key, value = (ops.pad(each, [[0, 0], [0, spare], [0, 0], [0, 0]]) for each in (key, value))
    mask = ops.pad(mask, [[0, 0], [0, 0], [0, more], [0, spare]])
    return ops.dot_product_attention(query, key, value, mask=mask)[:, :count]
