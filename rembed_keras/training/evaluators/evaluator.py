"""What an evaluator is, and what it is given: it brings numbers of a model every EVAL_EVERY steps of pre-training.

An evaluator, ours or your own, is any object with

* `evaluate(model, data)`, which returns scalars by name, or tables, `analysis.reports.tables.Table`. `model` is the
  objective that is trained, with its `encoder` as it would be kept now; `data` an `EvaluationData`. Names are those of
  the curves: what is called as training calls it is drawn over training's, and what has a slash is of a part, such as
  `loss/de`, and is left out of the progress line. Tables are shown by sinks and on the run's page.
* `needs_held_out`, True if it reads held-out text: a recipe that holds none out is then refused when it is read.
* `check(model)`, if it suits not every objective: raises a `UserError` for one that it does not suit, whose weights may
  be blank. It is asked before text is prepared.

Under a strategy of several replicas or processes all of them evaluate, at the same steps, and the first one's scalars
count. An evaluator has no state that a checkpoint would hold, and whatever it draws from the model's generators of
random numbers or adds to its metrics is undone: training goes on as if it had not been.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import grain
import keras
import numpy as np

from rembed_keras.analysis.reports.tables import Table
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.training.distributed.meshes import whole
from rembed_keras.training.distributed.strategies import Placement


class Evaluator(Protocol):
    """Brings scalars, or tables, of a model that is being pre-trained."""

    def evaluate(self, model: keras.Model, data: "EvaluationData") -> Mapping[str, float | Table]:
        """Scalars and tables of a model, by name; they must not depend on anything but its weights."""


class EvaluationData:
    """What evaluators of one training are given besides the model.

    Args:
        batches: the `Mixture` that is trained on; it knows the corpus, its tokenizer and what is held out.
        placement: where the model lives.
    """

    def __init__(self, batches: Mixture, placement: Placement):
        self.batches, self.placement = batches, placement
        self._made: dict[int, tuple[object, Any]] = {}  # with its owner, whose id another had once that is gone

    def once(self, owner: object, make: Callable[[], Any]) -> Any:
        """What `make` gives, made at an evaluator's first evaluation of a training and kept to the training's end.

        Args:
            owner: the evaluator.
            make: called without arguments.
        """
        if id(owner) not in self._made:
            self._made[id(owner)] = owner, make()
        return self._made[id(owner)][1]

    def metrics(self, model: keras.Model, rows: tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]) -> dict:
        """The objective's own metrics over some rows, without dropout: `loss`, `accuracy`, `loss/<language>`, others.

        Args:
            model: the objective.
            rows: (x, y, sample_weight) of N rows, as `Mixture.held_out` gives them; they are taken as many at once as
                training computes, a batch or a micro-batch, and the last are padded by rows of zeros. These count
                nothing, but in the loss of an activity regularizer, which is a mean over all rows.
        """
        size = self.batches.batch_size // getattr(model, "micro_batches", 1)
        padding = -len(rows[1]) % size

        def batch(index):
            return keras.tree.map_structure(lambda column: column[index * size : (index + 1) * size], padded)

        padded = keras.tree.map_structure(
            lambda column: np.pad(column, [(0, padding), *[(0, 0)] * (column.ndim - 1)]), rows
        )
        count = len(padded[1]) // size
        batches = grain.MapDataset.range(count).map(batch).to_iter_dataset(grain.ReadOptions(1, 2))
        model.evaluate(self.placement.feed(batches), steps=count, verbose=0)
        # what `evaluate` returns of several workers is one step's loss
        means = {key: float(value) for key, value in model.get_metrics_result().items()}
        return {key: value for key, value in means.items() if not ("/" in key and math.isnan(value))}


class Forward:
    """A model's outputs for batches that every process has whole, wherever its variables live.

    Keras's own `predict` would have each replica take all rows, and its outputs one after another.

    Args:
        model: a model without dropout's randomness: it is called as for inference.
    """

    def __init__(self, model: keras.Model):
        self.model = model
        self._function = _compiled[keras.config.backend()](model)

    def predict_on_batch(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """The model's output for a batch."""
        return whole(self._function(inputs))


def _tensorflow(model):
    import tensorflow as tf

    function = tf.function(lambda inputs: model(inputs, training=False))
    return lambda inputs: function(keras.tree.map_structure(tf.convert_to_tensor, inputs))  # of arrays it traces each


def _jax(model):
    import jax

    @jax.jit
    def outputs(trained, others, inputs):
        return model.stateless_call(trained, others, inputs, training=False)[0]

    def call(inputs):
        values = (
            [each.value for each in group] for group in (model.trainable_variables, model.non_trainable_variables)
        )
        return outputs(*values, inputs)

    return call


_compiled = {"tensorflow": _tensorflow, "jax": _jax}
