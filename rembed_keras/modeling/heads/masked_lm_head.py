"""The head of masked language modeling, dropped after pre-training.

It is the place for capacity that costs nothing after pre-training: a dense layer to E_out, a norm, and an output
embedding as wide as one likes.
"""

import keras

from rembed_keras.modeling.couplings.naming import COUPLINGS
from rembed_keras.modeling.layers.activation import activation_function
from rembed_keras.modeling.layers.embeddings import OutputEmbedding
from rembed_keras.modeling.layers.sublayer import pick
from rembed_keras.modeling.layers.tables import initializer
from rembed_keras.modeling.saving.cloning import made_with_its_model


@keras.saving.register_keras_serializable(package="rembed_keras")
class MaskedLMHead(keras.layers.Layer):
    """Scores the vocabulary at the masked positions, and nowhere else.

    Args:
        token_table: the encoder's.
        output_embedding_dim: E_out.
        coupling: "decoupled", "coupled", "extended", "gdes" or a kind of your own; see `modeling.couplings`.
        output_cutoffs: where the bands of an output table of its own begin; none by default.
        activation: "gelu", "gelu_tanh" or "relu".
        layer_norm_epsilon: the norm's epsilon.
        name: the layer's name.
        dtype: dtype or policy of the layer.

    Call arguments: `hidden` [B, S, D] and `mask_positions` int [B, P]. Returns logits [B, P, V] in float32.
    Source: RemBERT's `cls.predictions`: dense D to E_out, activation, norm, table with bias.

    >>> from rembed_keras.modeling.layers.tables import LookupTable
    >>> head = MaskedLMHead(LookupTable(100, 4), output_embedding_dim=24)
    >>> tuple(head(np.zeros((2, 5, 8), "float32"), np.array([[1, 2], [0, 4]])).shape)
    (2, 2, 100)
    """

    get_config = made_with_its_model

    def __init__(
        self,
        token_table,
        output_embedding_dim,
        coupling="decoupled",
        output_cutoffs=(),
        activation="gelu",
        layer_norm_epsilon=1e-12,
        name=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.dense = keras.layers.Dense(
            output_embedding_dim,
            kernel_initializer=initializer(),
            name="dense",
            dtype=dtype,
        )
        self.activation = activation_function(activation)
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, name="norm", dtype=dtype)
        self.output_embedding = OutputEmbedding(
            token_table,
            output_embedding_dim,
            COUPLINGS.kind(coupling),
            output_cutoffs,
            name="output_embedding",
            dtype=dtype,
        )

    def build(self, hidden_shape, mask_positions_shape=None):
        self.dense.build(hidden_shape)
        feature_shape = (*hidden_shape[:-1], self.dense.units)
        self.norm.build(feature_shape)
        self.output_embedding.build(feature_shape)

    def compute_output_spec(self, hidden, mask_positions, training=None):
        return keras.KerasTensor(
            (*mask_positions.shape, self.output_embedding.vocabulary_size),
            dtype="float32",
        )

    def call(self, hidden, mask_positions, training=None):
        features = self.features(pick(hidden, mask_positions), training)
        return self.output_embedding(features)  # [B, P, E_out] -> [B, P, V]

    def features(self, picked, training=None):
        """What the output embedding scores: [B, P, D] of the predicted tokens -> [B, P, E_out]."""
        return self.norm(self.activation(self.dense(picked, training=training)))
