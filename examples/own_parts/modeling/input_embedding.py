"""An input embedding: positions are waves that nobody trains, so that rows may be of any length."""

import keras
import numpy as np
from keras import ops

from rembed_keras.modeling.documents import document_positions
from rembed_keras.modeling.input_embeddings import Summed
from rembed_keras.modeling.input_embeddings.summed import table_arguments
from rembed_keras.modeling.layers.embeddings import InputEmbedding


class SinusoidalEmbedding(InputEmbedding):
    """As `InputEmbedding`, of tables of tokens and of segments. Inputs int [B, S] each; returns [B, S, E_in]."""

    def finish(self, embedded, segment_ids, padding_mask, training=None):
        width = embedded.shape[-1]
        rates = np.power(1e4, -np.arange(0, width, 2) / width)  # [E_in / 2], radians a position
        positions = ops.cast(document_positions(padding_mask), "float32")
        angles = positions[:, :, None] * ops.cast(rates, "float32")  # [B, S] -> [B, S, E_in / 2]
        waves = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)[..., :width]
        rows = ops.cast(embedded, "float32") * width**0.5 + waves
        return super().finish(rows, segment_ids, padding_mask, training=training)


@keras.saving.register_keras_serializable(package="own_parts")
class Sinusoidal(Summed):
    """Token rows times the root of their width, plus sines and cosines. Source: Vaswani et al. 2017, section 3.5.

    >>> Sinusoidal().has_positions(is_needed=True)
    False
    """

    def has_positions(self, is_needed):
        return False

    def layer(self, config, block, has_positions, name, dtype=None):
        epsilon = config["layer_norm_epsilon"]
        norm = {"layer_norm_epsilon": epsilon, "has_bias": block.has_biases, "has_norm": block.norms_embeddings}
        return SinusoidalEmbedding(**table_arguments(config, has_positions), **norm, name=name, dtype=dtype)
