"""What is known of the devices of this process: the most memory it held, and what their maker says they can do."""

import resource
import sys
from functools import lru_cache

import keras

from rembed_keras.analysis.programs.chips import CHIPS, GPU_FLOPS

MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes


def peak_host_memory() -> int:
    """The most bytes of the machine's memory that this process held.

    >>> peak_host_memory() > 10**6
    True
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT


def peak_memory() -> int:
    """The most bytes that this process held: of its first accelerator, or of the machine where there is none."""
    peak = _peaks[keras.config.backend()]()
    return peak_host_memory() if peak is None else peak


@lru_cache
def published_flops() -> float | None:
    """FLOPs a second that the maker states for one device of this process, of products in bfloat16, dense.

    Returns:
        None for a device whose number is not known here, such as a CPU.
    """
    kind = _kinds[keras.config.backend()]()
    known = {chip.kind: chip.flops for chip in CHIPS} | GPU_FLOPS
    return known.get(kind.removeprefix("NVIDIA ")) if kind else None


def _tensorflow_gpu():
    import tensorflow as tf

    return next(iter(tf.config.list_physical_devices("GPU")), None)


def _tensorflow_kind():
    import tensorflow as tf

    gpu = _tensorflow_gpu()
    return tf.config.experimental.get_device_details(gpu).get("device_name", "") if gpu else ""


def _tensorflow_peak():
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"] if _tensorflow_gpu() else None


def _jax_kind():
    import jax

    return jax.local_devices()[0].device_kind


def _jax_peak():
    import jax

    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


_kinds = {"tensorflow": _tensorflow_kind, "jax": _jax_kind}
_peaks = {"tensorflow": _tensorflow_peak, "jax": _jax_peak}
