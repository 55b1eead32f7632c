"""Fine-tuning methods that choose which of an encoder's own parameters learn a task."""

from collections.abc import Sequence

import keras

from rembed_keras.adaptation.methods.method import Method, blocks_of, named
from rembed_keras.errors import UserError


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
class Biases(Method):
    """Trains biases, those of norms too: BitFit. Not for pre-norm blocks, which have none.

    Args:
        layers: numbers of the blocks whose biases are trained, from 0, -1 being the highest; by default all biases of
            the encoder, those outside of its blocks too.

    Source: Ben Zaken et al. 2022.
    """

    def __init__(self, layers: Sequence[int] | None = None):
        self.layers = None if layers is None else [*layers]

    def apply(self, model):
        chosen = blocks_of(model.encoder, self.layers)
        if not any(weight.name == "bias" for block in model.encoder.parts.blocks for weight in block.weights):
            raise UserError("Biases trains biases, and this encoder's blocks have none: take Norms or Lora")
        owners = [model.encoder] if self.layers is None else chosen
        return named([weight for owner in owners for weight in owner.weights], "bias", "beta")


@keras.saving.register_keras_serializable(package="rembed_keras")
class Blocks(Method):
    """Trains some of the blocks.

    Args:
        layers: numbers of the blocks, from 0; -1 is the highest. Blocks that share a sublayer train it for all.
        embeddings: whether to train what is below them, too: all tables, their norm and the projection.
        top: whether to train what is above them, too: the last norm, the mix of layers, and the pooler if it is read.
    """

    def __init__(self, layers: Sequence[int], embeddings: bool = False, top: bool = True):
        self.layers = [*layers]
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
