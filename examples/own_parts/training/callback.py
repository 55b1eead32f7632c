"""A callback with a state that survives a kill: training stops when the loss has not fallen for a while."""

import math

import keras


class StopAtPlateau(keras.callbacks.Callback):
    """Ends a training after `patience` steps without a lower mean loss.

    >>> StopAtPlateau(patience=3).get_state()
    {'best': None, 'waited': 0}
    """

    def __init__(self, patience: int = 1000):
        super().__init__()
        self.patience, self.best, self.waited = patience, math.inf, 0

    def on_train_batch_end(self, batch, logs=None):
        is_lower = float(logs["loss"]) < self.best
        self.best = min(self.best, float(logs["loss"]))
        self.waited = 0 if is_lower else self.waited + 1
        if self.waited >= self.patience:  # or another callback would be overruled
            self.model.stop_training = True

    def get_state(self):
        return {"best": None if math.isinf(self.best) else self.best, "waited": self.waited}

    def set_state(self, state):
        self.best, self.waited = math.inf if state["best"] is None else state["best"], state["waited"]
