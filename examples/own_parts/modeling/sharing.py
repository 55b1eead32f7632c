"""A sharing of the encoder and its generator: one table, which the generator alone trains."""

from dataclasses import replace

import keras
from keras import ops

from rembed_keras.modeling import Encoder
from rembed_keras.modeling.generator_sharing import SharedEmbeddings


class Untrained(keras.layers.Layer):
    """An encoder's input embedding, through which no gradient goes. Inputs and output are those of that layer."""

    def __init__(self, embeddings):
        super().__init__(name="untrained", dtype=embeddings.dtype_policy)
        self.embeddings, self.token = embeddings, embeddings.token

    def compute_output_shape(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        return self.embeddings.compute_output_shape(token_ids_shape)

    def call(self, token_ids, segment_ids, padding_mask, training=None):
        return ops.stop_gradient(self.embeddings(token_ids, segment_ids, padding_mask, training=training))


@keras.saving.register_keras_serializable(package="own_parts")
class GeneratorTrained(SharedEmbeddings):
    """Detection reads the tables of the generator and does not train them: `GradientDisentangled` without differences.

    Source: He et al. 2021 (DeBERTaV3), section 3.2, where both tasks pull at one table.

    >>> GeneratorTrained().get_config()
    {}
    """

    name = "generator_trained"

    def reader(self, encoder, generator):
        parts = replace(encoder.parts, embeddings=Untrained(encoder.parts.embeddings))
        return Encoder(parts=parts, **encoder.arguments, name="reader", dtype=encoder.dtype_policy)
