"""Tagging: a label for every token."""

import keras
from keras import ops

from rembed_keras.errors import BelowOne, Count
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.heads.task_model import TaskModel
from rembed_keras.modeling.losses.row_weights import of_each
from rembed_keras.modeling.texts.feeding import Preprocessing


@keras.saving.register_keras_serializable(package="rembed_keras")
class Tagger(TaskModel):
    """Labels every token: logits [B, S, num_tags].

    Args:
        encoder: an `Encoder`; keras-hub's name for it, `backbone`, will do.
        num_tags: number of tags.
        dropout: rate before the head, while training.
        name: the model's name.

    Inputs as the encoder's. Trained on tags int [B, S] with cross-entropy; give `sample_weight` [B, S] to leave out
    padding and all pieces of a word but its first; that of rows, [B], is all their tokens'. Metrics then see single
    tokens, [B x S].
    """

    preprocessor_cls = Preprocessing("TaggerPreprocessor")
    reads = "sequence_output"
    number_of_outputs = "num_tags"
    labels_are = "a number for each token, padding too, as argmax of one-hot labels"

    def __init__(
        self,
        encoder: Encoder,
        num_tags: Count,
        dropout: BelowOne = 0.1,
        name: str = "tagger",
    ):
        super().__init__(encoder, num_tags, dropout, name)
        self.num_tags = num_tags

    def known_labels(self, x):
        return self.num_tags, "num_tags"

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Keras's, of single tokens: of rows it takes means first, where a token of a shorter batch counts more."""
        if sample_weight is None:
            return super().compute_metrics(x, y, y_pred, sample_weight)
        sample_weight = ops.reshape(of_each(sample_weight, y_pred[..., 0]), (-1,))  # [B, S] -> [B x S]
        is_one_hot = len(y.shape) == len(y_pred.shape) and y.shape[-1] != 1
        y = ops.reshape(y, (-1, y.shape[-1]) if is_one_hot else (-1,))
        y_pred = ops.reshape(y_pred, (-1, y_pred.shape[-1]))  # [B, S, num_tags] -> [B x S, num_tags]
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def get_config(self):
        return super().get_config() | {"num_tags": self.num_tags}
