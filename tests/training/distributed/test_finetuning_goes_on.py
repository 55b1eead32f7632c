"""Fine-tuning that was stopped between two steps goes on under another strategy: what it keeps means the same there."""

import keras
import pytest

from rembed_keras.modeling import Classifier
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.loop import restoring
from tests.training.pretraining import make_encoder


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_what_a_checkpoint_keeps_of_an_open_interval_has_one_order_under_every_strategy():
    names = []
    for strategy in ("one_device", "mirrored"):
        with place(strategy, batch_size=8).scope():
            model = Classifier(make_encoder(), 2)
            model.compile(jit_compile=False)
        names.append([variable.name for variable in restoring.running_of(model)])
    assert names[0] == names[1] == ["seed_generator_state", "total", "count"]
    assert restoring.running_of(model)[-2:] == model.loss_mean.variables  # the loss that is logged
