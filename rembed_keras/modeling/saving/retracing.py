"""Compiled steps of a model whose layers were changed since: they are made again. Quantization is such a change."""

import re
import warnings
import weakref
from pathlib import Path
from typing import Any

import keras

from rembed_keras import compat
from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.layers.adapters import hosted_by
from rembed_keras.modeling.layers.sublayer import HOSTING, MODES, changes_on, check_mode

ADDED = re.compile(r"(.*/(?:changes|after|beside)/([^/]+))/vars")  # where files of weights have what sublayers host

QUANTIZABLE = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)


class Retraced:
    """Makes the steps of `fit`, `evaluate` and `predict` again after layers were quantized or added.

    Keras keeps them until `compile` or the model's own `quantize`, and they compute what they were compiled for: a
    model whose encoder was changed would go on, without a word, with the weights that it had. A mixin that stands
    before the model's class.
    """

    _made_of: dict[str, tuple] | None = None
    _axes: dict[str, list] | None = None
    _trained: tuple[weakref.ref, list[int]] | None = None  # the optimizer, and the weights that it trains

    def quantize(self, mode: str | None = None, config: Any = None, filters: Any = None, **options) -> None:
        """Keras's, and of projections that host what fine-tuning added, which Keras leaves aside since they have parts.

        What can host nothing in that mode stays as it is, with a warning.

        Args:
            mode: "int8", "int4" or "float8", as in Keras.
            config: as in Keras.
            filters: as in Keras.
            options: Keras's other ones.

        Raises:
            UserError: for another mode, which no file of a model could say, or int8 of what computes in float16;
                nothing is quantized then.
        """
        wanted = getattr(config, "mode", None) if mode is None else mode
        if wanted not in MODES:
            raise UserError(f"quantize takes the modes {', '.join(MODES)}, and not {shortened(wanted)}")
        for layer in compat.layers_of(self):
            if isinstance(layer, QUANTIZABLE) and layer.quantization_mode is None and _is_chosen(layer, filters):
                check_mode(layer, wanted)
        given = {key: each for key, each in {"config": config, "filters": filters}.items() if each is not None}
        super().quantize(mode, **given, **options)  # type: ignore[misc] # the model's
        given.pop("filters", None)
        hosts = [each for each in compat.layers_of(self) if changes_on(each) and each.quantization_mode is None]
        chosen = [layer for layer in hosts if _is_chosen(layer, filters)]
        if chosen and wanted not in HOSTING:
            warnings.warn(
                f"{len(chosen)} projections with {changes_on(chosen[0])[0].name} and the like stay as they are, which "
                f"{wanted} leaves no room for: take {' or '.join(HOSTING)}",
                stacklevel=2,
            )
            return
        for layer in chosen:
            layer.quantize(mode, **given, **options)

    def make_train_function(self, force=False):
        """Keras's.

        Raises:
            UserError: if the optimizer has trained other weights than are to be trained now.
        """
        self.check_optimizer()
        if getattr(self, "train_function", None) is None:
            begin_lora(self)
        return super().make_train_function(force or self._is_changed_for("train"))  # type: ignore[misc] # the model's

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **options) -> None:
        """Keras's, after which Keras's LoRA can learn; see `begin_lora`.

        Args:
            filepath: as in Keras.
            skip_mismatch: as in Keras.
            options: Keras's other ones.

        Raises:
            UserError: for a file with layers that fine-tuning added and this model has not, which Keras leaves out.
        """
        if not skip_mismatch:
            _check_added(self, Path(filepath))
        super().load_weights(filepath, skip_mismatch=skip_mismatch, **options)  # type: ignore[misc] # the model's
        begin_lora(self)

    def make_test_function(self, force=False):
        """Keras's."""
        return super().make_test_function(force or self._is_changed_for("test"))  # type: ignore[misc] # the model's

    def make_predict_function(self, force=False):
        """Keras's."""
        return super().make_predict_function(force or self._is_changed_for("predict"))  # type: ignore[misc] # the model's

    def note_labels(self, step: str, *labels: Any) -> None:
        """Has a step made again for labels, or weights of them, that have other axes than those before.

        Of several numbers of axes TensorFlow would make one step, which knows none.

        Args:
            step: "train" or "test".
            labels: what the step is given of them.
        """
        if keras.config.backend() == "tensorflow":
            axes = [[size == 1 for size in getattr(each, "shape", ())[1:]] for each in labels]
            object.__setattr__(self, "_axes", {**(self._axes or {}), step: axes})

    def check_optimizer(self) -> None:
        """Notes which weights the optimizer has a state for, as it is first used or read from a file.

        Raises:
            UserError: if others are to be trained now.
        """
        model: Any = self
        if model.optimizer is None:
            return
        weights = [id(weight) for weight in model.trainable_variables]  # of living ones: the optimizer holds them
        if self._trained is not None and self._trained[0]() is model.optimizer and self._trained[1] != weights:
            raise UserError(
                f"the optimizer has trained {len(self._trained[1])} weights, and the {len(weights)} that are to be "
                "trained now are others, since layers were added, quantized, frozen or thawed: compile again "
                "with a new optimizer"
            )
        object.__setattr__(self, "_trained", (weakref.ref(model.optimizer), weights))

    def _is_changed_for(self, step):
        model: Any = self
        weights = [(weight.path, str(weight.dtype), tuple(weight.shape)) for weight in model.weights]
        parts = (weights, (self._axes or {}).get(step))
        if self._made_of is None:
            object.__setattr__(self, "_made_of", {})  # no part of the model that Keras tracks
        made_of: Any = self._made_of
        former, made_of[step] = made_of.get(step, parts), parts
        return former != parts


def begin_lora(model) -> None:
    """Draws a first factor for Keras's LoRA where both are zeros, as in a model read from a file, which has it folded.

    Of two matrices of zeros neither would learn: the gradient of each is a product with the other.
    """
    for layer in compat.layers_of(model):
        if getattr(layer, "lora_enabled", False):
            left, right = (weight for weight in layer.weights if weight.name.startswith("lora_"))
            if not any(keras.ops.any(weight != 0) for weight in (left, right)):
                left.assign(keras.initializers.HeUniform()(left.shape, left.dtype))  # as Keras begins


def _check_added(model, path):
    """Refuses a file of weights that has more added layers than a model."""
    if not path.name.endswith(".weights.h5") or not path.is_file():
        return
    import h5py

    names: list[str] = []
    with h5py.File(path) as file:
        file.visit(names.append)
    found = {match[1]: match[2] for match in map(ADDED.fullmatch, names) if match}
    if len(found) > len(hosted_by(getattr(model, "encoder", model))):
        raise UserError(
            f"{path} has what fine-tuning added, as {min(found.values())}, and {model.name} has no place for it: apply "
            "the same methods first, by tune, or keep models in .keras files, which say it"
        )


def _is_chosen(layer, filters):
    """Whether Keras's filters of layers to quantize let one through."""
    if filters is None or callable(filters):
        return filters is None or filters(layer)
    patterns = [filters] if isinstance(filters, str) else filters
    return any(re.search(pattern, layer.name) for pattern in patterns)
