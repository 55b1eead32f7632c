"""A profile of some steps: where their time goes, for TensorBoard's plug-in `profile`, which an extra installs."""

from pathlib import Path

import keras

from rembed_keras.training.loop.callbacks import StepClock, settle

WARM_UP = 5  # steps of a process before the profile, which compile and fill queues


class Profiler(keras.callbacks.Callback):
    """Profiles some steps of a training, once: a folder that has a profile keeps it.

    Args:
        clock: the step clock, which runs before this callback.
        steps: how many steps; fewer if the training ends before.
        folder: where TensorBoard looks for it.
    """

    def __init__(self, clock: StepClock, steps: int, folder: Path):
        super().__init__()
        self.folder, self.first = folder, clock.step + WARM_UP
        self.clock, self.last = clock, self.first + steps
        self.is_running = False

    def on_train_batch_end(self, batch, logs=None):
        if self.clock.step == self.first:
            settle(self.model)
            _starts[keras.config.backend()](str(self.folder))
            self.is_running = True
        elif self.clock.step == self.last:
            self._stop()

    def on_train_end(self, logs=None):
        self._stop()

    def _stop(self):
        if self.is_running:
            self.is_running = False
            settle(self.model)
            keras.ops.convert_to_numpy(self.model.optimizer.iterations)  # when the last step is done
            _stops[keras.config.backend()]()


def profilers(clock: StepClock, steps: int, folder: Path) -> list[Profiler]:
    """What profiles a training: nothing for no steps, and where there is a profile."""
    return [Profiler(clock, steps, folder)] if steps and not folder.exists() else []


def _start_tensorflow(folder):
    import tensorflow as tf

    tf.profiler.experimental.start(folder)


def _stop_tensorflow():
    import tensorflow as tf

    tf.profiler.experimental.stop()


def _start_jax(folder):
    import jax

    jax.profiler.start_trace(folder)


def _stop_jax():
    import jax

    jax.profiler.stop_trace()


_starts = {"tensorflow": _start_tensorflow, "jax": _start_jax}
_stops = {"tensorflow": _stop_tensorflow, "jax": _stop_jax}
