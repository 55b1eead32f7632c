"""Which kernel attends: one place decides, when a step is traced, by the platform that it is traced for.

A kernel reads who may attend to whom from the number of each token's document and the size of a window, so that neither
scores nor masks of all pairs of tokens ever lie in memory.

| platform | `attention.Global` | `attention.Local` |
|---|---|---|
| TPU, JAX | splash attention, segment ids | splash attention, segment ids and its own window |
| GPU, JAX | a mask of all pairs; in 16 bits Keras hands it to cuDNN, which keeps no scores | blocks of half a window |
| CPU; TensorFlow | a mask of all pairs | blocks of half a window, cut from such a mask |

On a GPU cuDNN took as long as JAX's own flash attention, tuned, at 512 tokens a row and less at 2,048:
`benchmarks/results/attention.md`. Kernels do not drop attention probabilities: training with dropout has masks, on any
platform.
"""

from collections.abc import Callable
from functools import partial

import keras
from keras import ops

from rembed_keras.modeling.attention import kernels
from rembed_keras.modeling.attention.full import softmax_attention
from rembed_keras.modeling.attention.local import attend_in_blocks
from rembed_keras.modeling.attention.platforms import platform_traced_for
from rembed_keras.modeling.layers.sublayer import pick
from rembed_keras.modeling.replicas import on_own_rows, row_groups

SHORT = 128  # tokens of a row, up to which no kernel is worth its call


def kernel_for(kind, hidden, documents, at, is_dropping: bool) -> Callable | None:
    """What attends in the place of a softmax over all pairs of tokens; None where that is best, or all there is.

    Args:
        kind: of attention; one that `takes_kernels`.
        hidden: [B, S, D], what is attended to.
        documents: int [B, S], the number of each token's document, 0 for padding; None where it is not known.
        at: int [B, P], the only tokens to compute, or None.
        is_dropping: whether attention probabilities are dropped.

    Returns:
        A function of query [B, Q, H, K], key and value [B, S, H, K] and positions int [B, S], which gives
        [B, Q, H, K]; Q is P if `at` says which tokens are wanted. What it gives for padding is no more than finite.
    """
    platform = platform_traced_for()
    has_kernel = platform == "tpu" or (platform != "cpu" and kind.window is not None)
    if not has_kernel or documents is None or is_dropping or not kind.takes_kernels or kind.kernel == "dense":
        return None
    batch, length = hidden.shape[:2]
    documents = ops.cast(documents, "int32")
    groups, _ = row_groups(batch)
    spread = keras.distribution.distribution()
    if (
        length is None
        or length <= SHORT
        or (groups == 1 and spread is not None and spread.device_mesh.devices.size > 1)
    ):
        return None
    if at is not None and kind.window is not None:
        return lambda query, key, value, positions: _picked(query, key, value, documents, positions, at, kind.window)
    attend: Callable = kernels.splash_attention if platform == "tpu" else attend_in_blocks

    def kernel(query, key, value, positions):
        rows = query, key, value, pick(documents, at), documents
        return on_own_rows(partial(attend, window=kind.window), *rows)

    return kernel


def _picked(query, key, value, documents, positions, at, window):
    """Softmax attention of some tokens [B, P, H, K] to those in their window, by a mask [B, P, S]."""
    own, other = pick(documents, at)[:, :, None], documents[:, None, :]
    mask = ops.logical_and(other > 0, ops.logical_or(ops.equal(own, other), ops.equal(own, 0)))
    near = ops.abs(pick(positions, at)[:, :, None] - positions[:, None, :]) <= window // 2
    itself = ops.equal(at[:, :, None], ops.arange(documents.shape[1], dtype="int32"))
    mask = ops.logical_or(ops.logical_and(mask, near), itself)
    return softmax_attention(query, key, value, mask, drop=None)
