"""Every objective takes the step of one device on two replicas that hold unequal numbers of predictions."""

import keras
import numpy as np
import pytest

from rembed_keras.modeling import MaskedLM, ReplacedTokenDetection, Sum
from rembed_keras.modeling.layers import draws
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer
from tests.modeling.test_encoder import make_encoder
from tests.training.distributed.test_strategies_of_a_step import make_batch

DETECTION = {"generator_layers": 1, "generator_scale": 0.5}


def make_sum(micro_batches):
    makers = [lambda encoder: MaskedLM(encoder, 20), lambda encoder: ReplacedTokenDetection(encoder, 20, **DETECTION)]
    return Sum(make_encoder(num_layers=1), makers, [1.0, {0: 0.5, 1: 2.0}], micro_batches)


def make_disentangled(micro_batches):
    encoder = make_encoder(num_layers=1)
    return ReplacedTokenDetection(encoder, 20, sharing="gdes", micro_batches=micro_batches, **DETECTION)


def make_regularized(micro_batches):
    encoder = make_encoder(num_layers=1)
    encoder.parts.projection.activity_regularizer = keras.regularizers.L2(0.1)
    encoder.parts.projection.kernel.regularizer = keras.regularizers.L2(0.1)
    return MaskedLM(encoder, 20, micro_batches=micro_batches)


def train(make, strategy, micro_batches):
    placement = place(strategy, batch_size=4)
    with placement.scope():
        model = make(micro_batches)
        model.track_groups(["de", "en"])
        rng = np.random.default_rng(3)
        for weight in model.weights:
            weight.assign(rng.normal(0, 0.3, weight.shape))
        # two eager steps are quicker than a graph, which test_strategies_of_a_step.py has
        optimizer = TrainingOptimizer(keras.optimizers.SGD(1.0, momentum=0.9), clip_norm=0.5)
        model.compile(optimizer=optimizer, jit_compile=False, run_eagerly=True)
        batches = placement.feed([make_batch()] * 2)
        logs = model.fit(batches, steps_per_epoch=2, shuffle=False, verbose=0).history
    model.fold()
    return logs, [np.asarray(keras.ops.convert_to_numpy(weight.value)) for weight in model.weights]


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
@pytest.mark.parametrize("make", [make_sum, make_disentangled, make_regularized])
def test_two_replicas_take_the_step_of_one_device(make, monkeypatch):
    monkeypatch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))
    (logs, weights), (whole, expected) = train(make, "mirrored", 2), train(make, "one_device", 1)
    assert logs.keys() == whole.keys()
    for name in whole:
        np.testing.assert_allclose(logs[name], whole[name], rtol=1e-4, err_msg=name)
    for ours, theirs in zip(weights, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-5)
