"""A table that stays frozen, whatever a model around it is set to."""

from typing import Any

import keras


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
