"""One table for both ends, as in BERT; with a width under the encoder's, as in ALBERT."""

from rembed_keras.errors import UserError
from rembed_keras.modeling.couplings.decoupled import Decoupled


class Coupled(Decoupled):
    """Words are scored with the input table, whose bands and gradient are those of both ends.

    Attributes:
        takes_input_cutoffs: whether the input table may be in bands.

    >>> Coupled().check(128, 768)
    Traceback (most recent call last):
    rembed_keras.errors.UserError: coupling 'coupled' shares one table of one width, but output_embedding_dim is 768 \
and input_embedding_dim 128
    """

    name = "coupled"
    reads_input = True
    takes_input_cutoffs = True

    def check(self, input_dim, output_dim, output_cutoffs=(), input_cutoffs=()):
        self.check_widths(input_dim, output_dim)
        if output_cutoffs:
            raise UserError(
                f"coupling {self.name!r} scores with the input's bands: give output_cutoffs to 'decoupled' only"
            )
        if input_cutoffs and not self.takes_input_cutoffs:
            raise UserError(f"coupling {self.name!r} needs an input embedding without cutoffs")

    def check_widths(self, input_dim: int, output_dim: int) -> None:
        """Checks both widths.

        Raises:
            UserError: if they are not equal.
        """
        if output_dim != input_dim:
            raise UserError(
                f"coupling {self.name!r} shares one table of one width, but output_embedding_dim is {output_dim} "
                f"and input_embedding_dim {input_dim}"
            )

    def widths(self, input_dim, output_dim):
        return {}

    def bands(self, output_cutoffs, input_cutoffs):
        return input_cutoffs

    def scoring(self, features, token_table, own):
        return token_table.scoring(features)

    def rows(self, token_table, own):
        return token_table
