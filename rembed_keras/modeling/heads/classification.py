"""Classification of a text, or of a pair of texts."""

import keras

from rembed_keras.errors import Count, Share
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.heads.task_model import TaskModel


@keras.saving.register_keras_serializable(package="rembed_keras")
class Classifier(TaskModel):
    """Labels a text, or a pair of texts: logits [B, num_classes] over the pooled first token.

    Args:
        encoder: an `Encoder`; keras-hub's name for it, `backbone`, will do.
        num_classes: number of labels.
        dropout: rate before the head, while training; 0.1 in the published model.
        name: the model's name.

    Inputs as the encoder's. Trained on labels int [B] with cross-entropy.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> ids = np.array([[2, 7, 3]])
    >>> inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1}
    >>> tuple(Classifier(encoder, num_classes=5)(inputs).shape)
    (1, 5)
    """

    def __init__(
        self,
        encoder: Encoder,
        num_classes: Count,
        dropout: Share = 0.1,
        name: str = "classifier",
    ):
        super().__init__(encoder, num_classes, dropout, name)
        self.num_classes = num_classes

    def get_config(self):
        return super().get_config() | {"num_classes": self.num_classes}
