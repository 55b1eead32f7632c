"""One input embedding for both, as in ELECTRA. Source: Clark et al. 2020, section 3.2."""

from dataclasses import replace

from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.stack import block_of, has_position_table, input_embedding_of
from rembed_keras.modeling.generator_sharing.not_shared import NotShared


class SharedEmbeddings(NotShared):
    """The generator reads the encoder's token, position and segment tables, and trains them too."""

    name = "embeddings"

    def check(self, encoder, generator):
        kind = input_embedding_of(encoder)
        if kind.width(encoder) != kind.width(generator):
            of = type(kind).__name__
            raise UserError(f"input embedding {of} is as wide as its blocks: sharing {self.name!r} needs a scale of 1")
        if has_position_table(generator) and not has_position_table(encoder):  # layers of the encoder alone know them
            raise UserError(
                f"sharing {self.name!r} has the generator read the encoder's tables, which have no positions, and the "
                "attention of its layers knows none: give it more generator_layers, or take sharing 'none'"
            )

    def arguments(self, encoder, generator):
        is_frozen = encoder.get("freeze_input_embedding", False) or not encoder.get("trainable", True)
        return {**generator, "freeze_input_embedding": is_frozen}

    def entries(self, encoder, generator, sequence_length):
        kept, entries = super().entries(encoder, generator, sequence_length)
        kind = input_embedding_of(encoder)
        tables = {entry.name for entry in kind.entries(encoder, block_of(encoder), has_position_table(encoder))}
        read = [replace(entry, shapes=()) if entry.name in tables else entry for entry in entries]
        return kept, [entry for entry in read if entry.shapes or entry.flops or entry.activations]

    def parts(self, encoder, generator):
        return replace(super().parts(encoder, generator), embeddings=encoder.parts.embeddings)
