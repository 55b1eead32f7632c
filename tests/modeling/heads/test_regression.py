"""Regressors compiled with a user's own losses and metrics."""

import numpy as np
import pytest

from rembed_keras.modeling import Regressor
from tests.modeling.forward import forward
from tests.modeling.heads.test_task_model import INPUTS, WEIGHTS
from tests.modeling.test_encoder import make_encoder


@pytest.mark.any_backend
def test_losses_and_metrics_that_a_user_compiles_see_rows():
    model = Regressor(make_encoder(num_layers=1), dropout=0.0)
    model.compile("sgd", loss="mse", metrics=["mae"], weighted_metrics=["mse"], run_eagerly=True)
    y = np.array([0.5, -1.0, 2.0, 3.0], "float32")
    found = model.evaluate(INPUTS, y, batch_size=3, sample_weight=WEIGHTS, verbose=0, return_dict=True)
    away = forward(model, INPUTS) - y
    assert found["loss"] == pytest.approx(np.mean(WEIGHTS * away**2), rel=1e-4)
    assert found["mae"] == pytest.approx(np.mean(abs(away)), rel=1e-4)
    assert found["mse"] == pytest.approx(np.average(away**2, weights=WEIGHTS), rel=1e-4)
