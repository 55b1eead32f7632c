"""A fine-tuning method: a gain for each feature of some projections, folded into their matrices afterwards."""

from collections.abc import Sequence

import keras

from rembed_keras.adaptation.methods import Method
from rembed_keras.adaptation.methods.method import blocks_of
from rembed_keras.modeling.layers.adapters import insert_changes
from rembed_keras.modeling.layers.sublayer import ProjectionChange


@keras.saving.register_keras_serializable(package="own_parts")
class Gain(ProjectionChange):
    """Multiplies a projection's outputs by a learned gain [O], 1 at first."""

    def __init__(self, name: str = "gain", trainable: bool = True, dtype: str | keras.DTypePolicy | None = None):
        super().__init__(name=name, trainable=trainable, dtype=dtype)

    def build(self, inputs_shape, outputs_shape):
        self.gain = self.add_weight(shape=(outputs_shape[-1],), initializer="ones", name="gain")

    def call(self, inputs, outputs):
        return outputs * self.gain  # [..., O]

    def fold(self, kernel, bias):
        return kernel * self.gain, None if bias is None else bias * self.gain

    def clear(self):
        self.gain.assign(keras.ops.ones(self.gain.shape))

    def get_config(self):  # Keras finds the arguments by itself only where none is a policy
        return super().get_config()


@keras.saving.register_keras_serializable(package="own_parts")
class Gains(Method):
    """Trains gains on keys, values and the feed-forward pair's inner features. Source: Liu et al. 2022, (IA)^3.

    >>> Gains()
    Gains(targets=['key', 'value', 'up'])
    """

    adds = True

    def __init__(self, targets: Sequence[str] = ("key", "value", "up")):
        self.targets = [*targets]

    def apply(self, model):
        return insert_changes(blocks_of(model.encoder, None), self.targets, lambda dtype: Gain(dtype=dtype))
