"""An input embedding that reads another's table and adds what it trains itself."""

import keras
from keras import ops

from rembed_keras.errors import UserError
from rembed_keras.modeling.layers.embeddings import InputEmbedding
from rembed_keras.modeling.layers.rows import BEYOND, check_rows
from rembed_keras.modeling.layers.tables import LookupTable
from rembed_keras.modeling.saving.filling import is_blank


class DisentangledEmbedding(keras.layers.Layer):
    """An encoder's input embedding that reads tokens of another's table, without its gradient, plus a difference.

    The other's table begins as the encoder's and the difference as zeros, so that nothing changes at first.

    Args:
        embeddings: the encoder's `InputEmbedding`, whose positions, segments and norm are used.
        shared: the token table of the other, of the same shape.
        name: the layer's name.

    Call arguments as `InputEmbedding`'s. Returns [B, S, E_in] in its dtype; the sum is taken in that of the tables, and
    so is rounded once, as in the encoder that has it folded in.
    """

    def __init__(self, embeddings, shared, name=None):
        super().__init__(name=name, dtype=embeddings.variable_dtype)
        token = embeddings.token
        if not isinstance(token, LookupTable) or token.quantization_mode is not None:
            raise UserError("sharing 'gdes' needs an input embedding without cutoffs that is not quantized")
        if not token.trainable:  # by hand; what arguments say was checked before
            raise UserError("sharing 'gdes' trains the input embedding: leave freeze_input_embedding out")
        if type(embeddings).call is not InputEmbedding.call:
            name = type(embeddings).__name__
            raise UserError(f"sharing 'gdes' leaves out the call of {name}: let its finish do what is done with rows")
        self.embeddings, self.token, self.shared = embeddings, token, shared
        zeros = {"embeddings_initializer": "zeros", "dtype": self.dtype_policy}
        self.difference = LookupTable(token.input_dim, token.output_dim, name="difference", **zeros)
        if not is_blank():
            shared.embeddings.assign(ops.copy(token.embeddings))  # JAX would have both hold one array

    def build(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        self.difference.build()

    def compute_output_shape(self, token_ids_shape, segment_ids_shape=None, padding_mask_shape=None):
        return self.embeddings.compute_output_shape(token_ids_shape)

    def call(self, token_ids, segment_ids, padding_mask, training=None):
        check_rows(token_ids, self.token.input_dim, BEYOND["token"])
        rows = ops.take(self.shared.embeddings, ops.cast(token_ids, "int32"), axis=0)  # [B, S] -> [B, S, E_in]
        rows = ops.cast(ops.stop_gradient(rows) + self.difference(token_ids), self.embeddings.compute_dtype)
        return self.embeddings.finish(rows, segment_ids, padding_mask, training=training)

    def table(self):
        """What it reads of all tokens, [V, E_in]."""
        return self.shared.embeddings + self.difference.embeddings
