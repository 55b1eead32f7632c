"""A table that stays frozen, whatever a model around it is set to, and layers that are thawed in a frozen encoder."""

from typing import Any

import keras

from rembed_keras import compat
from rembed_keras.modeling.layers.adapters import hosted_by


class KeepsTableFrozen:
    """An encoder, or a model of one, whose `freeze_input_embedding` outlasts `trainable = True`.

    Keras's setter thaws all layers, as after a first stage in which the encoder was frozen. A mixin that stands before
    the model's class.
    """

    @property
    def trainable(self) -> bool:
        """Keras's."""
        return super().trainable  # type: ignore[misc] # the model's

    @trainable.setter
    def trainable(self, value):
        keras.Model.trainable.fset(self, value)
        encoder: Any = getattr(self, "encoder", self)
        if encoder.arguments["freeze_input_embedding"]:
            encoder.token_embedding.trainable = False


def is_frozen(encoder) -> bool:
    """Whether no layer of an encoder's own is trained: one that was thawed in a frozen encoder is, in a model of it.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> encoder.trainable = False
    >>> is_frozen(encoder)
    True
    >>> encoder.parts.blocks[-1].trainable = True
    >>> is_frozen(encoder)
    False
    """
    if encoder.trainable:
        return False
    added = {id(part) for layer in hosted_by(encoder) for part in compat.layers_of(layer)}
    own = [layer for layer in compat.layers_of(encoder, include_self=False) if id(layer) not in added]
    return not any(layer.trainable and any(weight.trainable for weight in layer.weights) for layer in own)
