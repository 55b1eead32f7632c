"""An evaluator: how much the rows of the input table point the same way, as those of small models do."""

import numpy as np

from rembed_keras.training.loop.checkpoints import read


class Anisotropy:
    """Gives `anisotropy`, the mean cosine of two rows of the token table: 0 if they point everywhere, 1 if one way.

    Source: Ethayarajh 2019, section 3.2.
    """

    def evaluate(self, model, data) -> dict[str, float]:
        """Of the encoder's table, whatever it is trained on."""
        table = read(model.encoder.token_embedding.weights[0]).astype("float64")  # [V, E_in], of all processes
        units = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
        count = len(units)
        pairs = np.sum(np.sum(units, axis=0) ** 2) - count  # of different rows
        return {"anisotropy": float(pairs / (count * (count - 1)))}
