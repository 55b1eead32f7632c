"""A table for the generator, and a table of differences for detection. Source: He et al. 2021 (DeBERTaV3), section 3.2.

What the generator wants of a word's vector and what detection wants pull in different directions. Here detection reads
the generator's table without training it, and trains what it adds.
"""

from dataclasses import replace

from rembed_keras.errors import UserError
from rembed_keras.modeling.generator_sharing.not_shared import NotShared


class GradientDisentangled(NotShared):
    """The encoder reads the generator's token table, without its gradient, plus a table of differences.

    The encoder's own table has the sum after `fit`, and when the model is saved or its heads are dropped.
    """

    name = "gdes"

    def check(self, encoder, generator):
        if encoder.get("input_cutoffs"):
            raise UserError(f"sharing {self.name!r} needs an input embedding without cutoffs")
        if encoder.get("freeze_input_embedding"):
            raise UserError(f"sharing {self.name!r} trains the input embedding: leave freeze_input_embedding out")
        if not encoder.get("trainable", True):
            raise UserError(f"sharing {self.name!r} trains the encoder: leave trainable=False out")

    def entries(self, encoder, generator, sequence_length):
        (table, *others), entries = super().entries(encoder, generator, sequence_length)
        difference = replace(table, name="difference of the input embeddings")
        return [replace(table, is_trained=False), *others], [*entries, difference]

    def reader(self, encoder, generator):
        from rembed_keras.modeling.encoder import Encoder
        from rembed_keras.modeling.generator_sharing.disentangled_layer import DisentangledEmbedding

        embeddings = DisentangledEmbedding(encoder.parts.embeddings, generator.token_embedding, name="disentangled")
        parts = replace(encoder.parts, embeddings=embeddings)
        return Encoder(parts=parts, **encoder.arguments, name="reader", dtype=encoder.dtype_policy)
