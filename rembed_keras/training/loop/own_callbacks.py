"""Callbacks of the user's: made for each training, called among ours, and saved with it if they have a state.

Between two steps callbacks run in this order: the step clock, the look for divergence, the user's as they are listed,
the log, the checkpoint, the progress line. So a user's callback knows that the step was taken, what it sets is in the
row and the checkpoint of that step, and where it sets `model.stop_training` that row and checkpoint are the last. Of
several processes each has its own callbacks, and where one of them ends the training it ends in all, at the same step.

A callback that should survive a kill has two methods: `get_state()`, which gives what JSON can say, is asked before the
first step and at every checkpoint; `set_state(state)` is handed the newest before the first step of a training that
resumes. Where batches change size `fit` begins again, with the same callbacks.
"""

import json
from collections.abc import Callable, Sequence

import keras
import numpy as np

from rembed_keras.errors import UserError, shortened
from rembed_keras.training.distributed.processes import Processes

BETWEEN_EPOCHS = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
)


class OwnCallbacks:
    """The user's callbacks of one training.

    Args:
        makers: callbacks' classes, or functions that make one each.

    Raises:
        UserError: for what makes no callback.
    """

    def __init__(self, makers: Sequence[Callable] = ()):
        self.callbacks = [_made(maker) for maker in makers]

    def together(self, processes: Processes) -> list[keras.callbacks.Callback]:
        """They, and what has all processes end a training that they end in one.

        Args:
            processes: who trains together.
        """
        return [*self.callbacks, _Agreement(processes)] if self.callbacks else []

    def state(self) -> list[dict]:
        """What a checkpoint keeps of them: the class of each, and the state of those that have one.

        Raises:
            UserError: for a state that JSON cannot say.
        """
        return [{"class": type(each).__name__, "state": _state_of(each)} for each in self.callbacks]

    def check(self) -> None:
        """Refuses a state that no checkpoint could say; asked when training has begun and no step was taken.

        Infinity, at which a best value begins, may be another value at the first checkpoint.

        Raises:
            UserError: for a state that JSON cannot say.
        """
        for each in self.callbacks:
            _state_of(each, allow_nan=True)

    def resume(self, saved: list[dict], are_new: bool = False) -> None:
        """Hands each of them its state of a checkpoint.

        Args:
            saved: the states.
            are_new: whether they are of a training that goes on from that of the checkpoint, and begin.

        Raises:
            UserError: for a checkpoint of other callbacks.
        """
        there, here = [each["class"] for each in saved], [type(each).__name__ for each in self.callbacks]
        if there != here:
            raise UserError(f"the checkpoint was saved with callbacks {there} and the recipe lists {here}")
        for callback, each in zip(self.callbacks, saved, strict=True):
            if hasattr(callback, "set_state") and not are_new:
                callback.set_state(each["state"])


class _Agreement(keras.callbacks.Callback):
    """Ends a training in all processes after the step at which it was ended in one, as by the clock of a machine."""

    def __init__(self, processes):
        super().__init__()
        self.processes = processes

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = any(self.processes.exchange(bool(self.model.stop_training)))


def _made(maker):
    if not callable(maker):
        raise UserError(f"callbacks has {shortened(maker)}: bind its class without (), each training makes its own")
    callback = maker()
    if not isinstance(callback, keras.callbacks.Callback):
        raise UserError(f"callbacks has {shortened(maker)}, which makes no keras.callbacks.Callback")
    is_called = type(callback).on_train_batch_end is not keras.callbacks.Callback.on_train_batch_end
    if isinstance(callback, BETWEEN_EPOCHS) and not is_called:
        raise UserError(
            f"{type(callback).__name__} acts between epochs, of which a training has one: set model.stop_training in "
            "on_train_batch_end of a callback, and give the optimizer a schedule of its learning rate"
        )
    return callback


def _state_of(callback, allow_nan=False):
    """The state of a callback as JSON says it."""
    state = callback.get_state() if hasattr(callback, "get_state") else None
    try:
        said = json.dumps(state, allow_nan=allow_nan, default=_plain)
        if _has_other_keys(state):
            raise TypeError("a key of a dictionary is no text, and would be one when it is read")
        return json.loads(said)
    except (TypeError, ValueError) as error:
        raise UserError(f"the state of {type(callback).__name__} is nothing that JSON can say: {error}") from None


def _has_other_keys(value):
    """Whether a dictionary in a state has keys that JSON makes text of."""
    if isinstance(value, dict):
        return any(not isinstance(key, str) or _has_other_keys(each) for key, each in value.items())
    return isinstance(value, list | tuple) and any(map(_has_other_keys, value))


def _plain(value):
    """A scalar of NumPy's as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{shortened(value)} is a {type(value).__name__}")
