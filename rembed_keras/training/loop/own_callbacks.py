"""Callbacks of the user's: made for each training, called among ours, and saved with it if they have a state.

Between two steps callbacks run in this order: the step clock, the look for divergence, the user's as they are listed,
the log, the checkpoint, the progress line. So a user's callback knows that the step was taken, what it sets is in the
row and the checkpoint of that step, and where it sets `model.stop_training` that row and checkpoint are the last.

A callback that should survive a kill has two methods: `get_state()`, which gives what JSON can say, is asked at every
checkpoint; `set_state(state)` is handed the newest before the first step of a training that resumes.
"""

import json
from collections.abc import Callable, Sequence

import keras

from rembed_keras.errors import UserError, shortened


class OwnCallbacks:
    """The user's callbacks of one training.

    Args:
        makers: callbacks' classes, or functions that make one each.

    Raises:
        UserError: for what makes no callback.
    """

    def __init__(self, makers: Sequence[Callable] = ()):
        self.callbacks = [_made(maker) for maker in makers]

    def state(self) -> list[dict]:
        """What a checkpoint keeps of them: the class of each, and the state of those that have one.

        Raises:
            UserError: for a state that JSON cannot say.
        """
        return [{"class": type(each).__name__, "state": _state_of(each)} for each in self.callbacks]

    def resume(self, saved: list[dict]) -> None:
        """Hands each of them its state of a checkpoint.

        Raises:
            UserError: for a checkpoint of other callbacks.
        """
        there, here = [each["class"] for each in saved], [type(each).__name__ for each in self.callbacks]
        if there != here:
            raise UserError(f"the checkpoint was saved with callbacks {there} and the recipe lists {here}")
        for callback, each in zip(self.callbacks, saved, strict=True):
            if hasattr(callback, "set_state"):
                callback.set_state(each["state"])


def _made(maker):
    if not callable(maker):
        raise UserError(f"callbacks has {shortened(maker)}: bind its class without (), each training makes its own")
    callback = maker()
    if not isinstance(callback, keras.callbacks.Callback):
        raise UserError(f"callbacks has {shortened(maker)}, which makes no keras.callbacks.Callback")
    return callback


def _state_of(callback):
    state = callback.get_state() if hasattr(callback, "get_state") else None
    try:
        json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"the state of {type(callback).__name__} is nothing that JSON can say: {error}") from None
    return state
