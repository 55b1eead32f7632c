"""Classification of a text, or of a pair of texts."""

from typing import Literal, TypeAlias

import keras

from rembed_keras.errors import BelowOne, Count, UserError
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.heads.given_losses import is_binary
from rembed_keras.modeling.heads.task_model import TaskModel
from rembed_keras.modeling.texts.feeding import PLAIN_TEXT, Preprocessing
from rembed_keras.modeling.texts.vectors import mean_token

Pooling: TypeAlias = Literal["first", "mean"]


@keras.saving.register_keras_serializable(package="rembed_keras")
class Classifier(TaskModel):
    """Labels a text, or a pair of texts: logits [B, num_classes] over the pooled first token, or over the mean token.

    Args:
        encoder: an `Encoder`; keras-hub's name for it, `backbone`, will do.
        num_classes: number of labels.
        dropout: rate before the head, while training; 0.1 in the published model.
        name: the model's name.
        pooling: "first" reads the encoder's `pooled_output`, a dense tanh layer over the first token, as BERT does;
            "mean" the mean of `sequence_output` over all tokens but padding. Masked LM trains neither the pooler nor
            what the first token says, which long pre-training and many labels make up for and short ones do not.

    Raises:
        UserError: for another pooling, or a dropout that leaves nothing.

    Inputs as the encoder's. Trained on labels int [B] with cross-entropy.

    >>> from rembed_keras.modeling import Encoder
    >>> encoder = Encoder(100, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, input_embedding_dim=4)
    >>> ids = np.array([[2, 7, 3]])
    >>> inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1}
    >>> tuple(Classifier(encoder, num_classes=5)(inputs).shape)
    (1, 5)
    """

    preprocessor_cls = Preprocessing(PLAIN_TEXT)
    number_of_outputs = "num_classes"
    labels_are = "a number for each text, as argmax of one-hot labels"

    def __init__(
        self,
        encoder: Encoder,
        num_classes: Count,
        dropout: BelowOne = 0.1,
        name: str = "classifier",
        pooling: Pooling = "first",
    ):
        if pooling not in READS:
            raise UserError(f"pooling is {pooling!r}; it can be one of {', '.join(READS)}")
        self.pooling = pooling
        super().__init__(encoder, num_classes, dropout, name)
        self.num_classes = num_classes

    @property
    def reads(self) -> str:  # type: ignore[override]
        """Which of the encoder's outputs the head reads."""
        return READS[self.pooling]

    @property
    def takes_class_weight(self) -> bool:  # type: ignore[override]
        """Whether a text has one class, and not several labels, each of which a loss takes by itself."""
        return self.num_classes == 1 or not is_binary(getattr(self, "loss", None))

    def known_labels(self, x):
        return self.num_classes, "num_classes"

    def pool(self, output, inputs):
        return POOLED[self.pooling](output, inputs["padding_mask"])

    def get_config(self):
        return super().get_config() | {"num_classes": self.num_classes, "pooling": self.pooling}


READS = {"first": "pooled_output", "mean": "sequence_output"}
POOLED = {"first": lambda output, padding_mask: output, "mean": mean_token}
