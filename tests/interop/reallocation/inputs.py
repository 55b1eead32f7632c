"""Padded rows of random tokens with two segments."""

import numpy as np


def rows_of_text(vocabulary=60, length=9):
    ids = np.random.default_rng(3).integers(1, vocabulary, (4, length)).astype("int32")
    ids[0, -3:] = 0
    return {"token_ids": ids, "segment_ids": (ids * 7 % 2).astype("int32"), "padding_mask": (ids > 0).astype("int32")}
