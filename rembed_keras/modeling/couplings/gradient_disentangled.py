"""The input table, untouched by the output's gradient, plus a table of differences.

What scoring wants of a word's vector and what reading wants pull in different directions; here each pulls at its own
table, and the output still begins where the input is.

Source: He et al. 2021 (DeBERTaV3), section 3.2, where generator and discriminator take the place of output and input.
"""

from rembed_keras.modeling.couplings.coupled import Coupled


class GradientDisentangled(Coupled):
    """Words are scored with the input table, whose gradient stays out, plus a table of differences that starts at 0.

    >>> GradientDisentangled().widths(128, 128)
    {'difference': 128}
    """

    name = "gdes"
    takes_input_cutoffs = False

    def widths(self, input_dim, output_dim):
        return {"difference": output_dim}

    def tables(self, token_table, output_dim, output_cutoffs=(), dtype=None):
        from rembed_keras.modeling.layers.tables import LookupTable

        zeros = {"embeddings_initializer": "zeros", "dtype": dtype}
        return {"difference": LookupTable(token_table.input_dim, output_dim, name="difference", **zeros)}

    def scoring(self, features, token_table, own):
        from keras import ops

        ((_, shared),) = token_table.scoring(features)
        ((_, difference),) = own["difference"].scoring(features)
        return [(features, ops.stop_gradient(shared) + difference)]

    def rows(self, token_table, own):
        import numpy as np

        return np.add(token_table, own["difference"])
