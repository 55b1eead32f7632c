"""A model whose loop over data fails has its weights."""

import keras
import numpy as np
import pytest

from rembed_keras.modeling import Classifier
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = {key: np.tile(value, (3, 1)) for key, value in make_inputs([[FIRST], [SECOND]], 8).items()}
LABELS = np.array([0, 2, 1, 0, 2, 1])
LOOPS = ("fit", "evaluate", "predict")


class StoppedError(RuntimeError):
    """Whatever stops a loop: a full memory, or a user."""


class Stopping(keras.callbacks.Callback):
    """Stops a loop after a batch."""

    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.batch:
            raise StoppedError

    on_test_batch_end = on_predict_batch_end = on_train_batch_end


def looped(model, loop, **options):
    labels = () if loop == "predict" else (LABELS,)
    return getattr(model, loop)(INPUTS, *labels, batch_size=2, verbose=0, **options)


def make_model():
    keras.utils.set_random_seed(3)
    model = Classifier(make_encoder(dropout=0.0), 3, dropout=0.0)
    model.compile(keras.optimizers.Adam(1e-2))
    return model


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_is_stopped_leaves_what_its_steps_did(loop):
    model, whole = make_model(), make_model()
    if loop == "fit":
        whole.fit({key: rows[:4] for key, rows in INPUTS.items()}, LABELS[:4], batch_size=2, shuffle=False, verbose=0)
    options = {"shuffle": False} if loop == "fit" else {}
    with pytest.raises(StoppedError):
        looped(model, loop, callbacks=[Stopping(1)], **options)
    np.testing.assert_array_equal(looped(model, "predict"), looped(whole, "predict"))
    assert int(model.optimizer.iterations) == (2 if loop == "fit" else 0)
    looped(model, "fit")


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_whose_first_step_fails_leaves_all_as_it_was(loop, monkeypatch):
    model = make_model()
    before = looped(model, "predict")
    step = {"fit": "train", "evaluate": "test", "predict": "predict"}[loop]

    def full(*_):
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(model, f"make_{step}_function", lambda: setattr(model, f"{step}_function", full))
        with pytest.raises(StoppedError):
            looped(model, loop)
    setattr(model, f"{step}_function", None)
    np.testing.assert_array_equal(looped(model, "predict"), before)
    looped(model, "fit")
    assert int(model.optimizer.iterations) == 3


def test_an_encoder_that_is_stopped_has_its_weights():
    encoder = make_encoder()
    before = encoder.predict(INPUTS, verbose=0)["pooled_output"]
    with pytest.raises(StoppedError):
        encoder.predict(INPUTS, batch_size=2, verbose=0, callbacks=[Stopping(0)])
    np.testing.assert_array_equal(encoder.predict(INPUTS, verbose=0)["pooled_output"], before)
