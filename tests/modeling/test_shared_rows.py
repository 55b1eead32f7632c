"""Rows that the devices of a distribution of JAX cannot share evenly, in Keras's loops."""

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier
from rembed_keras.modeling.texts import shared_rows
from rembed_keras.training.distributed.strategies import place
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

pytestmark = pytest.mark.skipif(keras.config.backend() != "jax", reason="distributions are JAX's")
INPUTS = make_inputs([[FIRST], [SECOND], [FIRST]], 8)
LABELS = np.array([0, 1, 0])


def rows(count):
    return {key: value[:count] for key, value in INPUTS.items()}


@pytest.fixture(scope="module")
def spread():
    """A classifier on two devices, and the strategy that it was made under."""
    placement = place("data_parallel", batch_size=2)
    with placement.scope():
        model = Classifier(make_encoder(num_layers=1), 2)
        model.compile(keras.optimizers.SGD(0.0))
    return model, placement


@pytest.mark.parametrize("batch_size", [2, 4, None])
def test_predictions_are_those_of_one_device(spread, batch_size):
    model, placement = spread
    with placement.scope():
        found = model.predict(INPUTS, batch_size, verbose=0)
        states = model.encoder.predict(INPUTS, batch_size, verbose=0)["sequence_output"]
    alone = Classifier.from_config(model.get_config())
    alone.set_weights(model.get_weights())
    np.testing.assert_allclose(found, alone.predict(INPUTS, verbose=0), rtol=0, atol=1e-6)
    wanted = alone.encoder.predict(INPUTS, verbose=0)["sequence_output"]
    np.testing.assert_allclose(states, wanted, rtol=0, atol=1e-5)


def test_batches_of_no_size_are_of_one_that_devices_share(monkeypatch):
    monkeypatch.setattr(shared_rows, "devices_of_batch", lambda: 6)
    sizes = []
    found = shared_rows.on_shared_rows(lambda x, size: sizes.append(size) or x["token_ids"], INPUTS, None)
    assert sizes == [36] and found.shape == INPUTS["token_ids"].shape


def test_what_learns_from_rows_or_scores_them_is_refused_before_the_first_step(spread):
    model, placement = spread
    left = "3 rows in batches of 2 end in one of 1, which 2 devices cannot share evenly: leave 1 out, or add 1"
    with placement.scope():
        for refused, said in (
            (lambda: model.fit(INPUTS, LABELS, 2), left),
            (lambda: model.evaluate(INPUTS, LABELS, 2), left),
            (lambda: model.fit(rows(2), LABELS[:2], 2, validation_data=(INPUTS, LABELS)), left),
            (lambda: model.fit(rows(2), LABELS[:2], 2, validation_split=0.5), "1 rows in batches of 2 end in one of 1"),
            (lambda: model.fit(rows(2), LABELS[:2], 3), "batch_size is 3, which 2 devices cannot share evenly"),
            (lambda: model.predict(INPUTS, 3), "batch_size is 3, which 2 devices cannot share evenly"),
            (lambda: model.train_on_batch(INPUTS, LABELS), "the batch is one of 3, which 2 devices"),
            (lambda: model.test_on_batch(INPUTS, LABELS), "the batch is one of 3, which 2 devices"),
        ):
            with pytest.raises(UserError, match=said):
                refused()
        assert int(model.optimizer.iterations.value) == 0
        history = model.fit(rows(2), LABELS[:2], 2, validation_data=(rows(2), LABELS[:2]), verbose=0).history
        scores = model.evaluate(rows(2), LABELS[:2], 2, verbose=0, return_dict=True)
    assert history["val_loss"] == pytest.approx([scores["loss"]])
