"""Rows of several documents: who may attend to whom, and where a token is in its own document.

Both are operations of their own, so that a model's summary has a line for each instead of one for every step of them.
"""

import keras
from keras import ops


def attention_mask(padding_mask):
    """Who may attend to whom in packed and padded rows.

    Args:
        padding_mask: int or bool [B, S]; 0 for padding, documents numbered 1, 2, 3, ...

    Returns:
        bool [B, S, S]: query i may look at key j when both are of one document. Padding is never looked at; a
        padding query looks at every real key, as in BERT, so that no softmax is empty.

    >>> np.asarray(attention_mask(np.array([[1, 2, 0]]))).astype(int).tolist()
    [[[1, 0, 0], [0, 1, 0], [1, 1, 0]]]
    """
    return AttentionMask()(padding_mask)


def document_positions(padding_mask):
    """Position of each token within its own document, from the documents' numbers.

    Args:
        padding_mask: int or bool [B, S]; 0 for padding, documents of a packed row numbered 1, 2, 3, ... from the left.

    Returns:
        int [B, S]: a token's index in the row less the lengths of the documents before its own. With an ordinary
        0/1 mask that is simply the index.

    >>> np.asarray(document_positions(np.array([[1, 1, 2, 2, 2, 0]]))).tolist()
    [[0, 1, 0, 1, 2, 5]]
    """
    return DocumentPositions()(padding_mask)


@keras.saving.register_keras_serializable(package="rembed_keras")
class AttentionMask(keras.Operation):
    """`attention_mask` in a model."""

    def call(self, padding_mask):
        padding_mask = ops.cast(padding_mask, "int32")
        query, key = padding_mask[:, :, None], padding_mask[:, None, :]
        return ops.logical_and(key > 0, ops.logical_or(ops.equal(query, key), ops.equal(query, 0)))  # [B, S, S]

    def compute_output_spec(self, padding_mask):
        return keras.KerasTensor((*padding_mask.shape, padding_mask.shape[-1]), "bool")


@keras.saving.register_keras_serializable(package="rembed_keras")
class DocumentPositions(keras.Operation):
    """`document_positions` in a model."""

    def call(self, padding_mask):
        padding_mask = ops.cast(padding_mask, "int32")
        own, other = padding_mask[:, :, None], padding_mask[:, None, :]
        before = ops.logical_and(other > 0, other < own)  # [B, S, S]
        index = ops.cumsum(ops.ones_like(padding_mask, dtype="int32"), axis=1) - 1
        return index - ops.sum(ops.cast(before, "int32"), axis=-1)

    def compute_output_spec(self, padding_mask):
        return keras.KerasTensor(padding_mask.shape, "int32")
