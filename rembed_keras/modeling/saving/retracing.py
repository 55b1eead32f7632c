"""Compiled steps of a model whose layers were changed since: they are made again."""

from typing import Any


class Retraced:
    """Makes the steps of `fit`, `evaluate` and `predict` again after layers were quantized or added.

    Keras keeps them until `compile` or the model's own `quantize`, and they compute what they were compiled for: a
    model whose encoder was changed would go on, without a word, with the weights that it had. A mixin that stands
    before the model's class.
    """

    _made_of: dict[str, tuple] | None = None

    def make_train_function(self, force=False):
        """Keras's."""
        return super().make_train_function(force or self._is_changed_for("train"))  # type: ignore[misc] # the model's

    def make_test_function(self, force=False):
        """Keras's."""
        return super().make_test_function(force or self._is_changed_for("test"))  # type: ignore[misc] # the model's

    def make_predict_function(self, force=False):
        """Keras's."""
        return super().make_predict_function(force or self._is_changed_for("predict"))  # type: ignore[misc] # the model's

    def _is_changed_for(self, step):
        model: Any = self
        weights = tuple((weight.path, str(weight.dtype), tuple(weight.shape)) for weight in model.weights)
        if self._made_of is None:
            object.__setattr__(self, "_made_of", {})  # no part of the model that Keras tracks
        made_of: Any = self._made_of
        former, made_of[step] = made_of.get(step, weights), weights
        return former != weights
