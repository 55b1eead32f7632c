"""A loss term: the encoder's hidden vectors are kept from growing or shrinking."""

from keras import ops

from rembed_keras.adaptation.terms import Term
from rembed_keras.errors import UserError


class UnitScale(Term):
    """The squared distance of hidden vectors' root mean squares from 1, a mean over the tokens of each row.

    The vectors are those that the last block reads: it may be computed for predicted tokens alone.

    >>> UnitScale(weight={0: 0.0, 100: 0.1}).name
    'unit_scale'
    """

    def __init__(self, weight: float | dict[int, float] = 0.1, name: str = "unit_scale"):
        super().__init__(weight, name)

    def check(self, model):
        if not model.reads_rows:
            raise UserError("UnitScale looks at all tokens of a row, and the encoder of this model does not read them")

    def loss(self, model, batch, outputs):
        note = model.reading.note.value  # what the encoder computed of the batch
        hidden = ops.cast(note["hidden_states"][-2], "float32")  # [B, S, D]
        is_token = ops.cast(note["inputs"]["padding_mask"] > 0, "float32")  # [B, S]
        scale = ops.sqrt(ops.mean(ops.square(hidden), axis=-1) + 1e-6)
        return ops.sum(ops.square(scale - 1.0) * is_token, axis=1) / ops.maximum(ops.sum(is_token, axis=1), 1.0)
