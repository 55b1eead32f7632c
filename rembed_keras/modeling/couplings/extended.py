"""The input table with more columns beside it, as in MobileBERT.

Source: Sun et al. 2020, the released code: its head is as wide as its blocks, its table a quarter.
"""

from rembed_keras.errors import UserError
from rembed_keras.modeling.couplings.coupled import Coupled


class Extended(Coupled):
    """Words are scored with the input table and, beside it, columns of the output's own.

    >>> Extended().widths(128, 512)
    {'columns': 384}
    """

    name = "extended"
    takes_input_cutoffs = False

    def check_widths(self, input_dim, output_dim):
        if output_dim <= input_dim:
            raise UserError(
                f"coupling {self.name!r} adds columns to the input table, but output_embedding_dim is {output_dim} and "
                f"input_embedding_dim {input_dim}"
            )

    def widths(self, input_dim, output_dim):
        return {"columns": output_dim - input_dim}

    def scoring(self, features, token_table, own):
        from keras import ops

        ((_, shared),) = token_table.scoring(features)
        ((_, columns),) = own["columns"].scoring(features)
        return [(features, ops.concatenate([shared, columns], axis=-1))]  # [V, E_in] and [V, E_out - E_in]

    def rows(self, token_table, own):
        import numpy as np

        return np.concatenate([token_table, own["columns"]], axis=1)
