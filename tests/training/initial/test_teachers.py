"""A teacher lies where the model is trained that asks it, whichever stage has opened it."""

import keras
import numpy as np

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.initial.teachers import with_teachers

SPREAD = {"tensorflow": "mirrored", "jax": "fully_sharded"}[keras.config.backend()]


def is_on_one_device(weight):
    if keras.config.backend() == "jax":
        return len(weight.value.sharding.device_set) == 1
    return not hasattr(weight.value, "values")  # of several replicas it has one each


def test_a_teacher_of_stages_under_different_strategies_is_opened_for_each(corpus, pretrained):
    asked = Teacher(str(pretrained))
    came = []
    for strategy in (SPREAD, SPREAD, "one_device"):
        with_teachers([MiniLM(asked)], corpus.tokenizer, 16, place(strategy, batch_size=4))
        came.append((asked.encoder, asked.sha256))
        assert all(is_on_one_device(weight) == (strategy == "one_device") for weight in asked.weights)
    (first, checksum), (second, _), (last, other) = came
    assert first is second and checksum == other
    for one, two in zip(first.weights, last.weights, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(two))
