"""Texts as the encoder's inputs, and an encoder's answers for many of them.

Everything has one shape: rows are padded to the sequence length and the last batch to the batch size, so that a
compiled model is compiled once.
"""

from collections.abc import Sequence

import keras
import numpy as np

from rembed_keras.data.tokenizer import Tokenizer


def encode(texts: Sequence[str], tokenizer: Tokenizer, sequence_length: int) -> dict[str, np.ndarray]:
    """`[CLS] text [SEP]` of each text, cut or padded.

    Args:
        texts: B texts.
        tokenizer: the encoder's.
        sequence_length: S; of a longer text the beginning is kept.

    Returns:
        `token_ids`, `segment_ids`, `padding_mask`: int32 [B, S].
    """
    token_ids = np.full((len(texts), sequence_length), tokenizer.pad_id, np.int32)
    padding_mask = np.zeros_like(token_ids)
    for i, ids in enumerate(tokenizer.encode_batch(list(texts))):
        row = [tokenizer.cls_id, *ids[: sequence_length - 2], tokenizer.sep_id]
        token_ids[i, : len(row)] = row
        padding_mask[i, : len(row)] = 1
    return {"token_ids": token_ids, "segment_ids": np.zeros_like(token_ids), "padding_mask": padding_mask}


def predict(model: keras.Model, inputs: dict[str, np.ndarray], batch_size: int = 64):
    """What a model says about every row, as NumPy arrays.

    Args:
        model: a Keras model.
        inputs: arrays [N, ...] by input name.
        batch_size: rows at a time; the last batch is filled with copies of the last row.

    Returns:
        The model's outputs, [N, ...] each.
    """
    size = len(next(iter(inputs.values())))
    missing = -size % batch_size
    filled = {key: np.concatenate([value, np.repeat(value[-1:], missing, axis=0)]) for key, value in inputs.items()}
    outputs = model.predict(filled, batch_size=batch_size, verbose=0)
    return keras.tree.map_structure(lambda array: array[:size], outputs)
