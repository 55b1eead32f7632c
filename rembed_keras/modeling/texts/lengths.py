"""How long rows are, and rows without the padding that a model need not compute."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from rembed_keras import compat
from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.parts import padding_read


def row_lengths(padding_mask: np.ndarray, padding: int = 0) -> np.ndarray:
    """Tokens of each row up to the last that is no padding: int [N, S] -> int [N].

    Args:
        padding_mask: [N, S].
        padding: how many tokens of padding are counted along, where there are as many.

    >>> row_lengths(np.array([[1, 1, 0, 0], [1, 1, 1, 1]])).tolist()
    [2, 4]
    """
    is_token = padding_mask > 0
    longest = is_token.shape[1]
    lengths = np.where(is_token.any(axis=1), longest - np.argmax(is_token[:, ::-1], axis=1), 0)
    return np.minimum(lengths + padding, longest)


def rounded_length(length: int, longest: int) -> int:
    """The least of a few lengths, for each of which a model is compiled, that holds a row.

    They are powers of two from 16 on, those half again as long from 48 on, and the longest.

    >>> [rounded_length(length, 100) for length in (3, 17, 33, 50, 65, 97)]
    [16, 32, 48, 64, 96, 100]
    """
    power = max(16, 1 << max(length - 1, 0).bit_length())
    half_again = power * 3 // 4
    return min(half_again if 48 <= half_again >= length else power, longest)


def can_cut(model: keras.Model) -> bool:
    """Whether a model computes the same of rows without their padding, but for what `padding_read` counts.

    It may not where a token's output depends on the queries of all tokens, padding too, as in Nyström attention.
    """
    kinds = [layer.kind for layer in compat.layers_of(model) if isinstance(getattr(layer, "kind", None), Global)]
    return bool(kinds) and not any(kind.needs_all_queries for kind in kinds)


def token_axes(model: keras.Model) -> list[tuple[int, ...]] | None:
    """The axes of tokens, those of no fixed length, of each of a model's outputs; None if its rows cannot be cut."""
    outputs = getattr(model, "output", None)
    if outputs is None or not can_cut(model):
        return None
    return [tuple(i for i, n in enumerate(each.shape) if i and n is None) for each in keras.tree.flatten(outputs)]


def cut_to(length: int, inputs: Mapping[str, np.ndarray], *others: Any) -> tuple:
    """The first tokens of rows; of targets and weights too, where both have a token's each.

    Args:
        length: how many tokens are left.
        inputs: an encoder's, [N, S] each; the positions of masked tokens [N, P] stay, and what is theirs.
        others: targets and weights, or the former alone, or neither.

    >>> rows = {"token_ids": np.array([[2, 7, 3, 0]])}
    >>> cut_to(3, rows, np.array([1]))[0]["token_ids"].tolist()
    [[2, 7, 3]]
    """
    are_of_tokens = "mask_positions" not in inputs and len(others) > 1 and np.ndim(others[1]) > 1
    inputs = {name: column if name == "mask_positions" else column[:, :length] for name, column in inputs.items()}
    return inputs, *(column[:, :length] if are_of_tokens else column for column in others)


def without_padding(model: keras.Model, inputs: Mapping[str, np.ndarray], *others: Any) -> tuple:
    """Rows without the padding behind the longest of them, rounded up to one of a few lengths.

    Of slots for masked tokens as many are left as the row with most of them fills: late masking has the encoder read so
    many tokens less.

    Args:
        model: what is to read them.
        inputs: its, [N, S] each.
        others: as in `cut_to`.

    Returns:
        Inputs and others; all as they are for a model whose outputs depend on the padding.
    """
    if not can_cut(model):
        return inputs, *others
    mask = inputs["padding_mask"]
    longest = int(row_lengths(mask, padding_read(model)).max(initial=0))
    return _without_slots(*cut_to(rounded_length(longest, mask.shape[1]), inputs, *others))


def _without_slots(inputs, *others):
    """Inputs, targets and weights without the slots for masked tokens that are empty in all rows."""
    if "mask_positions" not in inputs:
        return inputs, *others
    positions = inputs["mask_positions"]
    filled = max(1, int((positions > 0).sum(axis=1).max(initial=0)))  # token 0 is never masked
    inputs = {**inputs, "mask_positions": positions[:, :filled]}
    return inputs, *(each if each is None else each[:, :filled] for each in others)
