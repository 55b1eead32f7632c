"""Extractive question answering: a span of the text."""

import keras
from keras import ops

from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.heads.task_model import TaskModel, has_rows
from rembed_keras.modeling.layers.rows import check_positions
from rembed_keras.modeling.texts.feeding import Preprocessing


@keras.saving.register_keras_serializable(package="rembed_keras")
class SpanExtractor(TaskModel):
    """Finds an answer in a text: logits [B, 2, S] of its first and its last token.

    Args:
        encoder: an `Encoder`; keras-hub's name for it, `backbone`, will do.
        name: the model's name.

    Inputs as the encoder's; padding can't be chosen. Trained on positions int [B, 2] with cross-entropy.
    """

    preprocessor_cls = Preprocessing("SpanPreprocessor")
    reads = "sequence_output"
    labels_are = "the positions of two tokens for each text, the first and the last of its answer"

    def __init__(self, encoder: Encoder, name: str = "span_extractor"):
        super().__init__(encoder, 2, 0.0, name)

    def arrange(self, scores, inputs):
        padding = ops.cast(ops.logical_not(inputs["padding_mask"]), scores.dtype)[:, None, :]  # [B, 1, S]
        return ops.transpose(scores, (0, 2, 1)) - 1e9 * padding  # [B, S, 2] -> [B, 2, S]

    def known_labels(self, x):
        return (x["token_ids"].shape[1], "the length of a row") if has_rows(x) else None

    def check_labels(self, x, y, sample_weight):
        """See `TaskModel`; answers in padding are refused too."""
        super().check_labels(x, y, sample_weight)
        if self.learns_classes and has_rows(x):
            check_positions(y, x.get("padding_mask"), sample_weight)

    def get_config(self):
        return {key: value for key, value in super().get_config().items() if key != "dropout"}
