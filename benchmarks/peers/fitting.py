"""Keras's own loop on JAX, as recipes run it: `train_on_batch` would give a model its state back after each step."""

from collections.abc import Callable, Sequence

import keras


class Fitting(keras.callbacks.Callback):
    """Trains a compiled model.

    Args:
        model: which.
        arrange: makes x, y and weights of one of `shapes.batches`.
    """

    def __init__(self, model: keras.Model, arrange: Callable):
        super().__init__()
        self.trained, self.arrange = model, arrange

    def fit(self, batches: Sequence[dict], note: Callable) -> None:
        """Takes a step of each batch, and notes the loss after it."""
        self.note = note
        data = (self.arrange(batch) for batch in batches)
        keras.Model.fit(self.trained, data, steps_per_epoch=len(batches), shuffle=False, verbose=0, callbacks=[self])

    def on_train_batch_end(self, batch, logs=None):
        self.note(logs["loss"])
