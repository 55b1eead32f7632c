"""A generator with parameters of its own."""

from rembed_keras.modeling.cost import Config, Entry
from rembed_keras.modeling.encoder_cost import encoder_entries
from rembed_keras.modeling.saving.arguments import arguments_of


class NotShared:
    """The encoder and its generator share nothing.

    A kind of sharing has these methods and attributes.

    Attributes:
        name: what it is called in recipes, of ours.
    """

    name = "none"

    def check(self, encoder: Config, generator: Config) -> None:
        """Checks that a generator can share with an encoder, from the arguments of both.

        Raises:
            UserError: if it cannot.
        """

    def arguments(self, encoder: Config, generator: Config) -> Config:
        """The arguments of a generator beside an encoder, from those of both."""
        return generator

    def entries(self, encoder: Config, generator: Config, sequence_length: int) -> tuple[list[Entry], list[Entry]]:
        """The ledger's entries of an encoder, and of what its generator brings, from the arguments of both."""
        return encoder_entries(encoder, sequence_length), encoder_entries(generator, sequence_length)

    def parts(self, encoder, generator: Config):
        """The layers of the generator, `Parts`.

        Args:
            encoder: an `Encoder`, which is kept.
            generator: the arguments of the generator.
        """
        from rembed_keras.modeling.parts import make_parts

        return make_parts(generator, encoder.dtype_policy, "generator_")

    def reader(self, encoder, generator):
        """The encoder as detection reads it: an `Encoder`, of it and of its generator.

        Where its layer of embeddings has a method `table`, [V, E_in], the encoder's own token table is no part of
        training, and has what that gives after `fit` and when the model is saved.
        """
        return encoder

    def get_config(self) -> dict:
        """The arguments that it was made with: those that it keeps under their names."""
        return arguments_of(self)

    @classmethod
    def from_config(cls, config: dict) -> "NotShared":
        """A kind of such arguments."""
        return cls(**config)
