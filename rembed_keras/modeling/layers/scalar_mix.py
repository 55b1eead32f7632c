"""A learned mix of all hidden states."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="rembed_keras")
class ScalarMix(keras.layers.Layer):
    """A weighted sum of layers, with one learned weight each and a learned scale.

    Args:
        num_states: how many there are, L + 1 with the projected embeddings.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call argument: a list of arrays of one shape. Returns one of that shape; their mean, before anything is learned.
    Source: Peters et al. 2018, equation 1; used on encoders of many layers in Chadha and others' BERMo.

    >>> float(ScalarMix(2)([np.array([1.0]), np.array([3.0])])[0])
    2.0
    """

    def __init__(self, num_states, name=None, dtype=None, **kwargs):
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.num_states = num_states

    def build(self, states_shape=None):
        self.weight = self.add_weight(shape=(self.num_states,), initializer="zeros", name="weight")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def compute_output_shape(self, states_shape):
        return states_shape[0]

    def call(self, states):
        shares = ops.softmax(self.weight) * self.scale
        return sum(ops.cast(shares[i], state.dtype) * state for i, state in enumerate(states))
