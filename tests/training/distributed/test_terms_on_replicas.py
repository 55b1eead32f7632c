"""Every loss term takes the step of one device on two replicas, or two devices of a mesh."""

import grain
import keras
import numpy as np
import pytest

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM, RDrop, SupervisedContrast
from rembed_keras.modeling import Classifier, MaskedLM
from rembed_keras.modeling.layers.draws import Dropout
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer
from tests.modeling.test_encoder import make_encoder
from tests.training.distributed.test_strategies_of_a_step import make_batch

SPREAD = "mirrored" if keras.config.backend() == "tensorflow" else "data_parallel"


def mini_lm(teacher):
    model = MaskedLM(make_encoder(num_layers=1), 20, micro_batches=2 if SPREAD == "mirrored" else 1)
    return model, [MiniLM(teacher, weight={0: 3.0, 1: 2.0})]


def contrast(teacher):
    return Classifier(make_encoder(num_layers=1), 3, dropout=0.0), [SupervisedContrast(weight=2.0)]


def r_drop(teacher):
    return Classifier(make_encoder(num_layers=1), 3, dropout=0.5), [RDrop(weight=2.0)]


def masked_r_drop(teacher):
    return MaskedLM(make_encoder(num_layers=1, dropout=0.1), 20), [RDrop(weight=2.0)]


def train(make, strategy):
    placement = place(strategy, batch_size=4)
    x, y, weights = make_batch()
    teacher = Teacher(make_encoder(num_layers=2)) if SPREAD == "data_parallel" else None  # made outside of the strategy
    with placement.scope():
        model, terms = make(teacher or Teacher(make_encoder(num_layers=2)))
        model.use_terms(terms)
        rng = np.random.default_rng(3)
        for weight in [*model.weights, *model.teacher_variables]:
            weight.assign(rng.normal(0, 0.3, weight.shape))
        how = {"jit_compile": placement.jit_compile}
        if SPREAD == "mirrored" and (strategy, make) != (SPREAD, mini_lm):  # two eager steps are quicker than a graph
            how = {"jit_compile": False, "run_eagerly": True}
        model.compile(optimizer=TrainingOptimizer(keras.optimizers.SGD(1.0, momentum=0.9), clip_norm=0.5), **how)
        if isinstance(model, Classifier):
            batch = {key: x[key] for key in model.input}, np.array([0, 1, 0, 0], "int32")
        else:
            batch = x, y, weights
        batches = placement.feed(grain.MapDataset.source([batch]).repeat(2).to_iter_dataset())
        logs = model.fit(batches, steps_per_epoch=2, shuffle=False, verbose=0).history
    return logs, [np.asarray(keras.ops.convert_to_numpy(weight.value)) for weight in model.weights], terms[0].name


@pytest.mark.parametrize("make", [mini_lm, contrast, r_drop, masked_r_drop])
def test_two_replicas_take_the_step_of_one_device(make, monkeypatch):
    def call(self, inputs, training=False):  # dropout that its seed decides, however rows are spread
        if not training or not self.rate:
            return inputs
        return inputs * (1 + 0.2 * keras.ops.sin(keras.ops.sum(keras.ops.cast(self.seed_generator.next(), "float32"))))

    monkeypatch.setattr(Dropout, "call", call)
    came = []
    for strategy in (SPREAD, "one_device"):
        keras.utils.set_random_seed(5)
        came.append(train(make, strategy))
    (logs, weights, name), (whole, expected, _) = came
    assert whole[name][-1] > 1e-4
    for key in whole:
        np.testing.assert_allclose(logs[key], whole[key], rtol=1e-4, err_msg=key)
    for ours, theirs in zip(weights, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-5)
