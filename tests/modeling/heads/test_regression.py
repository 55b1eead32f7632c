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


@pytest.mark.any_backend
def test_a_column_of_pandas_is_taken_as_an_array():
    class Column:
        """What is taken of `pandas.Series`, which has one axis for good."""

        shape, dtype = (4,), np.dtype("float32")

        def to_numpy(self):
            return np.array([0.5, -1.0, 2.0, 3.0], "float32")

        def __array__(self, dtype=None, copy=None):
            return self.to_numpy()

        def __len__(self):
            return 4

    model = Regressor(make_encoder(num_layers=1), dropout=0.0)
    model.compile("sgd", metrics=["mae"], run_eagerly=True)
    found, wanted = (model.evaluate(INPUTS, y, verbose=0) for y in (Column(), Column().to_numpy()))
    assert found == wanted


@pytest.mark.any_backend
@pytest.mark.parametrize("loss", [None, "mse"])
def test_labels_that_weigh_nothing_count_in_no_loss_and_no_weighted_metric(loss):
    model = Regressor(make_encoder(num_layers=1), dropout=0.0)
    model.compile("sgd", loss=loss, metrics=["mse"], weighted_metrics=["mae"], run_eagerly=True)
    y, weights = np.array([0.5, -1.0, 2.0, np.nan], "float32"), np.array([1.0, 0.0, 2.0, 0.0], "float32")
    found = model.test_on_batch(INPUTS, y, sample_weight=weights, return_dict=True)
    away = (forward(model, INPUTS) - y)[[0, 2]]
    assert found["loss"] == pytest.approx(weights[[0, 2]] @ away**2 / (3 if loss is None else 4), rel=1e-4)
    assert found["mae"] == pytest.approx(weights[[0, 2]] @ abs(away) / 3, rel=1e-4)
    assert np.isnan(found["mse"])
