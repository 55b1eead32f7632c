"""Fine-tuning methods that choose which of an encoder's own parameters learn a task."""

import itertools
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import keras
import numpy as np

from rembed_keras.adaptation.fisher import diagonal_fisher
from rembed_keras.adaptation.methods.method import Method, OfBlocks, blocks_of, listed, named
from rembed_keras.errors import Count, UserError, check_counts
from rembed_keras.modeling.blocks.stack import block_of
from rembed_keras.modeling.choices import is_ours
from rembed_keras.modeling.layers.adapters import quantized_weights
from rembed_keras.modeling.losses.measured import is_measured
from rembed_keras.modeling.saving.naming import layers_by_name

Units: TypeAlias = Literal["norms", "blocks"]
NO_BIASES = "Biases trains biases, and this encoder's blocks have none: take Norms or Lora"


@keras.saving.register_keras_serializable(package="rembed_keras")
class Everything(Method):
    """Trains all parameters, but for a token table with `freeze_input_embedding`; as if no method were given."""

    def apply(self, model):
        return model.encoder.weights


@keras.saving.register_keras_serializable(package="rembed_keras")
class HeadOnly(Method):
    """Trains the head and nothing of the encoder."""

    def apply(self, model):
        return []


@keras.saving.register_keras_serializable(package="rembed_keras")
class Norms(Method):
    """Trains the scales and biases of all norms."""

    def apply(self, model):
        return named(model.encoder.weights, "gamma", "beta")


@keras.saving.register_keras_serializable(package="rembed_keras")
class Biases(OfBlocks):
    """Trains biases, those of norms too: BitFit. Not for pre-norm blocks, which have none.

    Args:
        layers: numbers of the blocks whose biases are trained, from 0, -1 being the highest; by default all biases of
            the encoder, those outside of its blocks too.

    Source: Ben Zaken et al. 2022.
    """

    def __init__(self, layers: Sequence[int] | None = None):
        self.layers = listed(layers)

    def check(self, encoder):
        super().check(encoder)
        block = block_of(encoder)
        if is_ours(type(block)) and not block.has_biases:  # one of another's may bring some of its own
            raise UserError(NO_BIASES)

    def apply(self, model):
        chosen = blocks_of(model.encoder, self.layers)
        if not any(weight.name == "bias" for block in model.encoder.parts.blocks for weight in block.weights):
            raise UserError(NO_BIASES)
        owners = [model.encoder] if self.layers is None else chosen
        return named([weight for owner in owners for weight in owner.weights], "bias", "beta")


@keras.saving.register_keras_serializable(package="rembed_keras")
class Blocks(OfBlocks):
    """Trains some of the blocks; all by default, so that token vectors of languages without labels stay as they are.

    Args:
        layers: numbers of the blocks, from 0; -1 is the highest. Blocks that share a sublayer train it for all.
        embeddings: whether to train what is below them, too: all tables, their norm and the projection.
        top: whether to train what is above them, too: the last norm, the mix of layers, and the pooler if it is read.
    """

    def __init__(self, layers: Sequence[int] | None = None, embeddings: bool = False, top: bool = True):
        self.layers = listed(layers)
        self.embeddings = embeddings
        self.top = top

    def apply(self, model):
        parts = model.encoder.parts
        chosen = blocks_of(model.encoder, self.layers)
        if self.embeddings:
            chosen += [parts.embeddings, parts.projection]
        if self.top:
            chosen += [parts.norm, parts.mix, parts.pooler]
        return [weight for layer in chosen if layer is not None for weight in layer.weights]


@keras.saving.register_keras_serializable(package="rembed_keras")
class FisherChosen(Method):
    """Trains the norms or the blocks that a task's loss depends on most, by the diagonal Fisher information.

    What is compared is the mean over a unit's parameters, so that units of other sizes are compared fairly.

    Args:
        units: "norms" or "blocks".
        count: how many of them are trained.
        batches: of training data to choose by.
        chosen: the names of those that were chosen, as `settle` finds them and prints; None to let it choose.

    Raises:
        UserError: for other units, or counts that are not positive.

    Source: Lodha et al. 2023 for blocks; ValizadehAslani and Liang 2024 for norms.
    """

    def __init__(
        self, units: Units = "norms", count: Count = 1, batches: Count = 8, chosen: Sequence[str] | None = None
    ):
        if units not in get_args(Units):
            raise UserError(f"units of FisherChosen are {units!r}; they can be {' or '.join(get_args(Units))}")
        check_counts({"how many units FisherChosen trains": count, "batches that FisherChosen reads": batches})
        self.units = units
        self.count = count
        self.batches = batches
        self.chosen = None if chosen is None else [*chosen]

    def check(self, encoder):
        if self.units == "blocks":
            self._check_units([f"block_{i}" for i in range(encoder["num_layers"])])

    def check_model(self, model):
        self._units(model.encoder)

    def settle(self, model, batches):
        if self.chosen is not None:
            return self
        still = {id(weight) for weight in quantized_weights(model.encoder)}  # which have no gradient
        units = {
            name: [weight for weight in weights if id(weight) not in still and not is_measured(weight)]
            for name, weights in self._units(model.encoder).items()
        }
        variables = [*{id(each): each for weights in units.values() for each in weights}.values()]
        fisher = diagonal_fisher(model, itertools.islice(batches, self.batches), variables)
        found = {id(variable): diagonal for variable, diagonal in zip(variables, fisher, strict=True)}
        scores = {
            name: np.mean(np.concatenate([found[id(weight)].ravel() for weight in weights]))
            for name, weights in units.items()
        }
        chosen = sorted(scores, key=lambda name: -scores[name])[: self.count]
        return FisherChosen(self.units, self.count, self.batches, chosen)

    def apply(self, model):
        if self.chosen is None:
            raise UserError("FisherChosen chooses by training data: give `tune` what its `settle` returns")
        units = self._units(model.encoder)
        return [weight for name in self.chosen for weight in units[name]]

    def _units(self, encoder):
        """The weights of all that can be chosen, by name."""
        blocks = {f"block_{i}": block for i, block in enumerate(encoder.parts.blocks)}
        norms = {name: layer for name, layer in layers_by_name(encoder).items() if hasattr(layer, "gamma")}
        units = {name: layer.weights for name, layer in (blocks if self.units == "blocks" else norms).items()}
        self._check_units(units)
        return units

    def _check_units(self, names):
        """Checks how many are trained, and which, against the names of all that can be."""
        if self.count > len(names):
            raise UserError(f"FisherChosen is to train {self.count} {self.units}; this encoder has {len(names)}")
        unknown = next((name for name in self.chosen or () if name not in names), None)
        if unknown is not None:
            raise UserError(f"FisherChosen has chosen {unknown!r}, which this encoder has not")
