"""Two tables of any two widths, as in RemBERT. Source: Chung et al. 2021."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rembed_keras.modeling.saving.arguments import arguments_of

if TYPE_CHECKING:
    import numpy as np


class Decoupled:
    """The output has a table of its own, as wide as one likes.

    A kind of coupling has these methods and attributes.

    Attributes:
        name: what it is called in the paths of variables, and, of ours, in recipes.
        reads_input: whether words are scored with the input table too.

    >>> Decoupled().widths(128, 768)
    {'table': 768}
    """

    name = "decoupled"
    reads_input = False

    def check(
        self, input_dim: int, output_dim: int, output_cutoffs: Sequence[int] = (), input_cutoffs: Sequence[int] = ()
    ) -> None:
        """Checks that two widths can be coupled so.

        Args:
            input_dim: E_in.
            output_dim: E_out.
            output_cutoffs: where the bands of an output table begin.
            input_cutoffs: where the input table's begin.

        Raises:
            UserError: if they cannot.
        """

    def widths(self, input_dim: int, output_dim: int) -> dict[str, int]:
        """The widths of the tables that the output has of its own, by their names; none where it has none."""
        return {"table": output_dim}

    def bands(self, output_cutoffs: Sequence[int], input_cutoffs: Sequence[int]) -> Sequence[int]:
        """Where the bands begin of what words are scored with."""
        return output_cutoffs

    def tables(self, token_table, output_dim: int, output_cutoffs: Sequence[int] = (), dtype=None) -> dict[str, Any]:
        """Layers of the tables that it has of its own, by their names, of `widths`."""
        from rembed_keras.modeling.layers.tables import make_table

        bands = self.bands(output_cutoffs, ())
        return {
            name: make_table(token_table.input_dim, width, bands, name=name, dtype=dtype)
            for name, width in self.widths(token_table.output_dim, output_dim).items()
        }

    def scoring(self, features, token_table, own: Mapping[str, Any]) -> list:
        """What features [..., E_out] are multiplied with to score all words: pairs of features and rows [V, E].

        Args:
            features: of the head.
            token_table: the input table's layer; None if `reads_input` is false.
            own: layers of its own, those of `tables`; see `LookupTable.scoring`.
        """
        return own["table"].scoring(features)

    def rows(self, token_table: "np.ndarray", own: Mapping[str, "np.ndarray"]) -> "np.ndarray":
        """What words are scored with, [N, E_out], of rows [N, E] of the input table and of those of its own."""
        return own["table"]

    def get_config(self) -> dict:
        """The arguments that it was made with: those that it keeps under their names."""
        return arguments_of(self)

    @classmethod
    def from_config(cls, config: dict) -> "Decoupled":
        """A kind of such arguments."""
        return cls(**config)
