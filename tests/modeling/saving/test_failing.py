"""A model whose loop over data fails has its weights."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM
from rembed_keras.modeling import Classifier
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = {key: np.tile(value, (3, 1)) for key, value in make_inputs([[FIRST], [SECOND]], 8).items()}
LABELS = np.array([0, 2, 1, 0, 2, 1])
LOOPS = {"evaluate": "test", "predict": "predict", "fit": "train"}  # what makes the step of each


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
    model = Classifier(make_encoder(num_layers=1, dropout=0.0), 3, dropout=0.0)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    return model


def test_a_loop_that_is_stopped_leaves_what_its_steps_did():
    model = make_model()
    before = looped(model, "predict")
    for loop in ("evaluate", "predict"):
        with pytest.raises(StoppedError):
            looped(model, loop, callbacks=[Stopping(1)])
        np.testing.assert_array_equal(looped(model, "predict"), before)
    assert int(model.optimizer.iterations) == 0
    start = model.get_weights()
    with pytest.raises(StoppedError):
        looped(model, "fit", callbacks=[Stopping(1)], shuffle=False)
    stopped = looped(model, "predict")
    assert int(model.optimizer.iterations) == 2 and not np.array_equal(stopped, before)
    looped(model, "fit")
    model.set_weights(start)
    fresh = keras.optimizers.SGD(0.1, momentum=0.9)
    fresh.build(model.trainable_variables)
    for variable, value in zip(model.optimizer.variables, fresh.variables, strict=True):
        variable.assign(value)
    model.fit({key: rows[:4] for key, rows in INPUTS.items()}, LABELS[:4], batch_size=2, shuffle=False, verbose=0)
    np.testing.assert_array_equal(stopped, looped(model, "predict"))


def test_a_loop_whose_first_step_fails_leaves_all_as_it_was(monkeypatch):
    model, teacher = make_model(), Teacher(make_encoder(num_layers=1))
    model.use_terms([MiniLM(teacher)])  # whose weights are handed to every step
    before, taught = looped(model, "predict"), [weight.numpy() for weight in teacher.weights]

    def full(*_):
        raise StoppedError

    for loop, step in LOOPS.items():
        with monkeypatch.context() as patch:
            patch.setattr(model, f"make_{step}_function", lambda step=step: setattr(model, f"{step}_function", full))
            with pytest.raises(StoppedError):
                looped(model, loop)
        setattr(model, f"{step}_function", None)
        for weight, value in zip(teacher.weights, taught, strict=True):
            np.testing.assert_array_equal(weight.numpy(), value)
        np.testing.assert_array_equal(looped(model, "predict"), before)
    model.use_terms([])
    model.optimizer.build(model.trainable_variables)
    model.trainable_variables[-1].assign(model.optimizer.momentums[-1].value)  # on JAX one array, as `use_ema` leaves
    looped(model, "fit")
    assert int(model.optimizer.iterations) == 3


def test_an_encoder_that_is_stopped_has_its_weights():
    encoder = make_encoder(num_layers=1)
    before = encoder.predict(INPUTS, batch_size=2, verbose=0)["pooled_output"]
    with pytest.raises(StoppedError):
        encoder.predict(INPUTS, batch_size=2, verbose=0, callbacks=[Stopping(0)])
    np.testing.assert_array_equal(encoder.predict(INPUTS, batch_size=2, verbose=0)["pooled_output"], before)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_weights_that_are_means_after_training_stay_beside_whatever_is_called_next(is_stopped):
    """On JAX Keras gives weights and means one array, which a step or the encoder's `predict` would take from both."""
    model = make_model()
    model.compile(keras.optimizers.SGD(0.1, use_ema=True))
    if is_stopped:
        with pytest.raises(StoppedError):
            looped(model, "fit", callbacks=[Stopping(1)])
    else:
        looped(model, "fit")
    looped(model.encoder, "predict")
    states = [keras.ops.convert_to_numpy(each) for each in (*model.weights, *model.optimizer.variables)]
    assert all(np.isfinite(state).all() for state in states)
    model.train_on_batch(INPUTS, LABELS)
