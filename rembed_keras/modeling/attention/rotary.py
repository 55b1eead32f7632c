"""Rotary positions: queries and keys are rotated by angles that grow with the position."""

import math

from keras import ops


def rotate(x, positions, base=10_000.0):
    """Turns pairs of features by angles that grow with a token's position: rotary positions.

    Args:
        x: [B, S, H, K], K even; feature i is turned together with feature i + K / 2.
        positions: int [B, S].
        base: the slowest pair turns once in 2 pi times about this many tokens.

    Returns:
        As x. The product of two tokens' features depends on their positions by the difference alone.

    Source: Su et al. 2021.

    >>> x = np.ones((1, 2, 1, 4), "float32")
    >>> bool(np.allclose(rotate(x, np.array([[0, 1]]))[0, 0], x[0, 0]))
    True
    """
    half = x.shape[-1] // 2
    speeds = ops.exp(ops.arange(half, dtype="float32") * (-math.log(base) / half))  # [K / 2]
    angles = ops.cast(positions, "float32")[:, :, None, None] * speeds  # [B, S, 1, K / 2]
    cosine, sine = ops.cast(ops.cos(angles), x.dtype), ops.cast(ops.sin(angles), x.dtype)
    left, right = x[..., :half], x[..., half:]
    return ops.concatenate([left * cosine - right * sine, right * cosine + left * sine], axis=-1)
