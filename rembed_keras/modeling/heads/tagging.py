"""Tagging: a label for every token."""

import keras

from rembed_keras.errors import Count, Share
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.heads.task_model import TaskModel


@keras.saving.register_keras_serializable(package="rembed_keras")
class Tagger(TaskModel):
    """Labels every token: logits [B, S, num_tags].

    Args:
        encoder: an `Encoder`.
        num_tags: number of tags.
        dropout: rate before the head, while training.
        name: the model's name.
        backbone: what keras-hub calls the encoder; one of the two is given.

    Inputs as the encoder's. Trained on tags int [B, S] with cross-entropy; give `sample_weight` [B, S] to leave out
    padding and all pieces of a word but its first.
    """

    reads = "sequence_output"

    def __init__(
        self,
        encoder: Encoder | None = None,
        num_tags: Count | None = None,
        dropout: Share = 0.1,
        name: str = "tagger",
        backbone: Encoder | None = None,
    ):
        super().__init__(encoder, num_tags, dropout, name, backbone)
        self.num_tags = num_tags

    def get_config(self):
        return super().get_config() | {"num_tags": self.num_tags}
