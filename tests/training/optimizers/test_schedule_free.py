"""Schedule-free AdamW, held against its paper's algorithm in NumPy."""

import keras
import numpy as np
import pytest

from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer

RATE, BETA_1, BETA_2, WARMUP, STEPS = 0.1, 0.9, 0.99, 3, 6


def gradient_of(weight):
    return weight - np.array([2.0, -1.0, 0.5], "float32")


def by_the_paper(weight):
    """The weights that gradients are taken at, step by step."""
    z = x = y = weight.astype("float64")
    velocity, found = np.zeros(3), []
    for step in range(1, STEPS + 1):
        gradient = gradient_of(y)
        velocity = BETA_2 * velocity + (1 - BETA_2) * gradient**2
        rate = RATE * min(step / WARMUP, 1.0)
        z = z - rate * gradient / (np.sqrt(velocity / (1 - BETA_2**step)) + 1e-8)
        x = (1 - 1 / step) * x + z / step
        y = (1 - BETA_1) * z + BETA_1 * x
        found.append(y)
    return found


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_weights_are_those_of_the_paper(dtype):
    start = np.array([1.0, 2.0, -0.5], "float32")
    weight = keras.Variable(start, dtype=dtype, name="kernel")
    inner = keras.optimizers.ScheduleFreeAdamW(RATE, beta_1=BETA_1, beta_2=BETA_2, warmup_steps=WARMUP)
    optimizer = TrainingOptimizer(inner, clip_norm=None)
    optimizer.build([weight])
    trained = optimizer.variables[-1] if dtype == "bfloat16" else weight  # float32 copies
    for expected in by_the_paper(start):
        now = keras.ops.convert_to_numpy(trained)
        optimizer.apply([keras.ops.convert_to_tensor(gradient_of(now))], [weight])
        np.testing.assert_allclose(keras.ops.convert_to_numpy(trained), expected, rtol=2e-5)
