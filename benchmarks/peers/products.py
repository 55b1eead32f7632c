"""The best rate of float32 matrix products that any of the libraries reaches here: what steps are held against."""

import time

import numpy as np
import tensorflow as tf
import torch

SIDES = (1024, 2048, 4096)
REPEATS = 6


def rates() -> dict[str, float]:
    """FLOPs a second of square products, the best of sizes and repeats, by library."""
    compiled = tf.function(tf.matmul, jit_compile=True)
    products = {
        "numpy": (np.asarray, np.matmul),
        "torch": (torch.tensor, torch.matmul),
        "tensorflow": (tf.constant, tf.function(tf.matmul)),
        "xla": (tf.constant, compiled),
    }
    best = dict.fromkeys(products, 0.0)
    for side in SIDES:
        pair = np.random.default_rng(0).normal(size=(2, side, side)).astype("float32")
        for name, (convert, product) in products.items():
            left, right = (convert(each) for each in pair)
            for _ in range(REPEATS):
                start = time.perf_counter()
                float(product(left, right)[0, 0])
                best[name] = max(best[name], 2 * side**3 / (time.perf_counter() - start))
    return best
