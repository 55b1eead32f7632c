"""A coupling: the input table, which the output reads without training it, and columns beside it."""

import keras
from keras import ops

from rembed_keras.modeling.couplings import Extended


@keras.saving.register_keras_serializable(package="own_parts")
class Detached(Extended):
    """As `Extended`, of which the columns alone are taught by the output; these are dropped after pre-training.

    >>> Detached().widths(64, 256)
    {'columns': 192}
    """

    name = "detached"

    def scoring(self, features, token_table, own):
        ((_, shared),) = token_table.scoring(features)
        ((_, columns),) = own["columns"].scoring(features)
        return [(features, ops.concatenate([ops.stop_gradient(shared), columns], axis=-1))]  # [V, E_out]
