"""Pre-trainings one after another in one folder: each goes on from the checkpoints of the one before."""

import functools

import keras
import pytest

from tests.training.pretraining import learn, rows


@pytest.mark.usefixtures("without_graphs")
def test_a_pretraining_after_another_takes_its_own_learning_rate(corpus, tmp_path):
    fallen = keras.optimizers.schedules.PolynomialDecay(0.5, 10)
    for steps, rate in ((1, 0.5), (2, 0.25), (3, fallen), (4, 0.125)):
        learn(tmp_path, corpus, steps=steps, log_every=1, optimizer=functools.partial(keras.optimizers.SGD, rate))
    assert [row["learning_rate"] for row in rows(tmp_path)] == [0.5, 0.25, pytest.approx(fallen(3)), 0.125]
