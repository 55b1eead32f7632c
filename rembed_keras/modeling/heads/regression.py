"""Regression: one number for a text, or a pair of texts."""

import keras
from keras import ops

from rembed_keras.errors import BelowOne, UserError
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.heads.task_model import TaskModel
from rembed_keras.modeling.layers.rows import check_finite
from rembed_keras.modeling.texts.feeding import PLAIN_TEXT, Preprocessing


@keras.saving.register_keras_serializable(package="rembed_keras")
class Regressor(TaskModel):
    """Scores a text, or a pair of texts, with one number: output [B].

    Args:
        encoder: an `Encoder`; keras-hub's name for it, `backbone`, will do.
        dropout: rate before the head, while training.
        name: the model's name.

    Inputs as the encoder's. Trained on numbers [B], or [B, 1], with mean squared error. Losses and metrics given to
    `compile` see columns, [B, 1].
    """

    preprocessor_cls = Preprocessing(PLAIN_TEXT)
    own_metrics = ()
    symmetric_divergence = None  # type: ignore[assignment] # it predicts no distribution

    def __init__(
        self,
        encoder: Encoder,
        dropout: BelowOne = 0.1,
        name: str = "regressor",
    ):
        super().__init__(encoder, 1, dropout, name)

    def check_labels(self, x, y, sample_weight):
        """See `TakesTexts`; labels that are not finite are refused."""
        if getattr(self, "loss", None) is None:
            check_finite(y, sample_weight)

    def arrange(self, scores, inputs):
        return scores[:, 0]  # [B, 1] -> [B]

    def compared(self, values):
        return values[:, None] if len(values.shape) == 1 else values  # along the last axis Keras takes means

    def losses_of(self, y, y_pred):
        shape = tuple(y.shape)
        if len(shape) == 2 and shape[1] == 1:
            y = y[:, 0]  # [B, 1] -> [B]; a column would be taken from every row's score
        elif len(shape) != 1:
            raise UserError(f"{self.name} learns a number of each row, and its labels are of shape {shape}")
        return ops.square(ops.cast(y, y_pred.dtype) - y_pred)
