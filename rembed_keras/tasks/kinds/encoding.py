"""Examples as the encoder's inputs, and a model's outputs for many of them.

Encoded rows have one length, and the last batch is padded to the batch size, so that a model is compiled once; many
rows are sorted and cut to a few lengths. Truncated tokens are counted, so that they can be reported beside a score.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError
from rembed_keras.modeling.parts import padding_read
from rembed_keras.modeling.texts.lengths import rounded_length, row_lengths, token_axes
from rembed_keras.tasks.kinds.examples import Labelled

FEW = 7  # batches, for which no second length is worth its compilation


@dataclass(frozen=True)
class Encoded:
    """Examples as N rows of one length. Every example has a row, in the order of the examples; some have several.

    Attributes:
        inputs: `token_ids`, `segment_ids`, `padding_mask`: int32 [N, S].
        targets: [N, ...] as the head's loss takes them; None for unlabeled examples.
        weights: float32 [N, S], 1 where a token's target counts and 0 elsewhere; None where rows have one target each.
        rows: int32 [N], the index of the example that a row belongs to.
        truncated: how many examples were truncated.
        lost: how many tokens truncation removed in all.
    """

    inputs: dict[str, np.ndarray]
    targets: np.ndarray | None
    weights: np.ndarray | None
    rows: np.ndarray
    truncated: int
    lost: int

    def shortfalls(self) -> dict[str, int]:
        """How many examples are not read whole, by what is the matter with them, as a verb and what follows it."""
        if self.weights is not None:
            return {"have words that are cut": self.truncated}
        return {f"are cut to {self.length} tokens": self.truncated}

    @property
    def length(self) -> int:
        """S, the length of a row."""
        return next(iter(self.inputs.values())).shape[1]

    def checksum(self) -> str:
        """Checksum of what a model learns of the examples, in hexadecimal digits."""
        digest = hashlib.sha256()
        for column in keras.tree.flatten([self.inputs, self.targets, self.weights]):
            digest.update(b"" if column is None else np.asarray(column).tobytes())
        return digest.hexdigest()


def encode(texts: Sequence[str], tokenizer: AnyTokenizer, sequence_length: int) -> dict[str, np.ndarray]:
    """`[CLS] text [SEP]` of each text, truncated or padded.

    Args:
        texts: B texts.
        tokenizer: the encoder's.
        sequence_length: S; longer texts are truncated at the end.

    Returns:
        `token_ids`, `segment_ids`, `padding_mask`: int32 [B, S].
    """
    kept = [ids[: sequence_length - 2] for ids in tokenizer.encode_batch(list(texts))]
    return fill_rows(kept, [None] * len(kept), tokenizer, sequence_length)


def encode_pairs(
    examples: Sequence[Labelled],
    tokenizer: AnyTokenizer,
    sequence_length: int,
    targets: np.ndarray | None = None,
    num_segments: int = 2,
) -> Encoded:
    """`[CLS] text [SEP]` or `[CLS] text [SEP] pair [SEP]` of each example, a row each.

    A text that is too long is truncated at the end. A pair that is too long is truncated longest first: token by token
    from the end of the longer text, of the second if they are equal.

    Args:
        examples: N texts or pairs, or some of both.
        tokenizer: the encoder's.
        sequence_length: S, 5 or more for pairs, 3 or more for texts alone.
        targets: labels int [N] or numbers float [N]; None for unlabeled examples.
        num_segments: 2 for segment 0 up to the first [SEP] and 1 after it; 1 for an encoder that has segment 0 only.

    Raises:
        UserError: for a sequence length under that.

    Source: Devlin et al. 2019, section 3; truncation as in BERT's release.
    """
    are_pairs = any(example.pair is not None for example in examples)
    if sequence_length < (5 if are_pairs else 3):
        needs = "a pair of texts needs 5" if are_pairs else "a text needs 3"
        raise UserError(f"the sequence length is {sequence_length}; {needs} or more")
    firsts = tokenizer.encode_batch([example.text for example in examples])
    pairs = iter(tokenizer.encode_batch([example.pair for example in examples if example.pair is not None]))
    seconds = [None if example.pair is None else next(pairs) for example in examples]
    excess = np.zeros(len(examples), np.int64)
    for i, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        room = sequence_length - (2 if second is None else 3)
        excess[i] = max(0, len(first) + len(second or ()) - room)
        second_room = 0 if second is None else max(room // 2, room - len(first))
        if second is not None:
            seconds[i] = second[:second_room]
        firsts[i] = first[: room - min(second_room, len(second or ()))]
    return Encoded(
        inputs=fill_rows(firsts, seconds, tokenizer, sequence_length, num_segments),
        targets=targets,
        weights=None,
        rows=np.arange(len(examples), dtype=np.int32),
        truncated=int((excess > 0).sum()),
        lost=int(excess.sum()),
    )


def fill_rows(
    firsts: Sequence[Sequence[int]],
    seconds: Sequence[Sequence[int] | None],
    tokenizer: AnyTokenizer,
    sequence_length: int,
    num_segments: int = 2,
) -> dict[str, np.ndarray]:
    """`[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]` of truncated ids, padded.

    Args:
        firsts: N rows of ids.
        seconds: N rows of ids; None for a row without a second text.
        tokenizer: the encoder's, for the ids of the special pieces.
        sequence_length: S.
        num_segments: as in `encode_pairs`.

    Returns:
        `token_ids`, `segment_ids`, `padding_mask`: int32 [N, S].
    """
    token_ids = np.full((len(firsts), sequence_length), tokenizer.pad_id, np.int32)
    segment_ids, padding_mask = np.zeros_like(token_ids), np.zeros_like(token_ids)
    for i, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        row = [tokenizer.cls_id, *first, tokenizer.sep_id]
        if second is not None:
            segment_ids[i, len(row) : len(row) + len(second) + 1] = num_segments > 1
            row += [*second, tokenizer.sep_id]
        token_ids[i, : len(row)] = row
        padding_mask[i, : len(row)] = 1
    return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask}


def predict(model: keras.Model, inputs: dict[str, np.ndarray], batch_size: int = 64):
    """A model's outputs for every row, as NumPy arrays.

    Many rows are sorted by their length, and a batch is as long as its longest row, rounded up to one of a few lengths.

    Args:
        model: a Keras model.
        inputs: arrays [N, ...] by input name.
        batch_size: rows per batch; the last batch is padded with copies of its last row.

    Returns:
        The model's outputs, [N, ...] each; of padding that was not computed, 0.
    """
    size = len(next(iter(inputs.values())))
    axes = token_axes(model) if size > FEW * batch_size and "padding_mask" in inputs else None
    lengths = np.zeros(size, int) if axes is None else row_lengths(inputs["padding_mask"], padding_read(model))
    order = np.argsort(-lengths, kind="stable")  # what takes most memory first
    outputs = []
    for start in range(0, size, batch_size):  # `Model.predict` builds a pipeline, which costs a dozen batches
        rows = order[np.arange(start, start + batch_size).clip(max=size - 1)]
        if axes is None:
            outputs.append(model.predict_on_batch({key: value[rows] for key, value in inputs.items()}))
            continue
        longest = inputs["padding_mask"].shape[1]
        length = rounded_length(int(lengths[rows].max()), longest)
        part = model.predict_on_batch({key: value[rows, :length] for key, value in inputs.items()})
        filled = map(partial(_filled, spare=longest - length), keras.tree.flatten(part), axes)
        outputs.append(keras.tree.pack_sequence_as(part, [*filled]))

    def joined(*parts):
        found = np.concatenate(parts)[:size]
        in_order = np.empty_like(found)
        in_order[order] = found
        return in_order

    return keras.tree.map_structure(joined, *outputs)


def are_finite(outputs: Any) -> bool:
    """Whether a model's outputs are numbers; minus infinity among others is one, for it may be a mask."""
    return all(np.isfinite(np.max(each)) for each in keras.tree.flatten(outputs))


def _filled(values, axes, spare):
    """Values with zeros on their axes of tokens for as many as are not there."""
    values = np.asarray(values)
    return np.pad(values, [(0, spare if i in axes else 0) for i in range(values.ndim)])
