"""Vectors of texts: what one first asks an encoder for.

These are methods, since keras-hub's user has one object that holds weights and preprocessor, and calls `predict` on it.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import keras
import numpy as np
from keras import ops

from rembed_keras.errors import UserError, check_counts, shortened
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.parts import padding_read
from rembed_keras.modeling.saving.retracing import Retraced
from rembed_keras.modeling.texts.feeding import HoldsPreprocessor
from rembed_keras.modeling.texts.lengths import can_cut, rounded_length
from rembed_keras.modeling.texts.strings import NO_TOKENIZER, is_one_text, listed

TextPooling: TypeAlias = Literal["mean", "first"]
MANY = 4  # batches from which on progress is shown


class ReadsTexts(HoldsPreprocessor):
    """A model that gives vectors of texts; it has an encoder, or is one."""

    readers: "_Readers | None" = None  # of an encoder

    def encode(
        self,
        texts: str | Sequence[str],
        pooling: TextPooling = "mean",
        layer: int | None = None,
        batch_size: int = 32,
        verbose: bool | str = "auto",
    ) -> np.ndarray:
        """Vectors of texts.

        Args:
            texts: N texts, or one. Those that are longer than the preprocessor's sequence length are truncated.
            pooling: "mean" of all tokens but padding, or the "first" token alone. Masked LM trains no token to stand
                for the whole text: take the mean unless a task was trained on the first.
            layer: which hidden states, from 0, the embeddings, to L, or from the end, -1; the encoder's output by
                default. Middle layers are often better than the last where nothing was fine-tuned.
            batch_size: texts at a time; they are sorted by length first, so that little padding is computed.
            verbose: whether to show progress; "auto" for more than a few batches.

        Returns:
            float32 [N, D], in the order of the texts; [1, D] of one text.

        Raises:
            UserError: without a preprocessor, for a layer that is not there, or another pooling.
        """
        encoder: Any = getattr(self, "encoder", self)
        preprocessor = self.preprocessor or getattr(encoder, "preprocessor", None)
        if preprocessor is None:
            raise UserError(NO_TOKENIZER)
        check_counts({"batch_size": batch_size})
        fold = getattr(self, "fold", None)
        if fold is not None:
            fold()  # of what pre-training moved, where the encoder's own table is computed
        reader = _reader(encoder, pooling, layer)
        rows = preprocessor.tokenized(listed(texts))
        order = np.argsort([len(row) for row in rows], kind="stable")[::-1]  # what takes most memory first
        vectors = np.zeros((len(rows), encoder.arguments["hidden_dim"]), np.float32)
        starts = range(0, len(rows), batch_size)
        shows = len(starts) >= MANY if verbose == "auto" else bool(verbose)
        progress = keras.utils.Progbar(len(starts), unit_name="batch") if shows else None
        longest = longest_row(encoder.arguments)
        around = 2 + padding_read(encoder)  # [CLS], [SEP] and what is read with [SEP]
        is_cut, whole = can_cut(encoder), min(preprocessor.sequence_length, longest)
        for number, start in enumerate(starts):
            chosen = order[start : start + batch_size]
            length = rounded_length(max(len(rows[i]) for i in chosen) + around, longest) if is_cut else whole
            filled = chosen if len(starts) == 1 else np.resize(chosen, batch_size)  # one shape for each length
            inputs = preprocessor.padded([rows[i] for i in filled], length)
            vectors[chosen] = np.asarray(reader.predict_on_batch(inputs), np.float32)[: len(chosen)]
            if progress is not None:
                progress.update(number + 1)
        return vectors

    def similarity(
        self,
        a: str | Sequence[str],
        b: str | Sequence[str],
        pooling: TextPooling = "mean",
        layer: int | None = None,
    ) -> float | np.ndarray:
        """Cosines of the vectors of texts.

        Args:
            a: N texts, or one.
            b: M texts, or one.
            pooling: as in `encode`.
            layer: as in `encode`.

        Returns:
            A number for two texts; float32 [N, M] for lists.
        """
        first, second = (listed(each) for each in (a, b))
        vectors = self.encode([*first, *second], pooling, layer)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        cosines = vectors[: len(first)] @ vectors[len(first) :].T
        return float(cosines[0, 0]) if is_one_text(a) and is_one_text(b) else cosines


class _Reader(Retraced, keras.Model):
    """A model of an encoder's layers."""


class _Readers:
    """Those of an encoder, so that a second call compiles nothing; gone when it is, and no part of it that is saved."""

    def __init__(self):
        self.models: dict[Any, keras.Model] = {}


def _reader(encoder, pooling, layer):
    """A model of an encoder's layers that gives the pooled states of one of them."""
    if pooling not in _POOLED:
        raise UserError(f"pooling is {pooling!r}; it can be one of {', '.join(_POOLED)}")
    count = encoder.num_layers
    if layer is not None and layer not in range(-count - 1, count + 1):
        raise UserError(f"layer is {shortened(layer)}; this encoder has layers 0 to {count}")
    if encoder.readers is None:
        encoder.readers = _Readers()
    readers = encoder.readers.models
    if (pooling, layer) not in readers:
        outputs = encoder.output
        states = outputs["sequence_output"] if layer is None else outputs["hidden_states"][layer]
        readers[pooling, layer] = _Reader(
            encoder.input, _POOLED[pooling](states, encoder.input["padding_mask"]), name="vectors"
        )
    return readers[pooling, layer]


def mean_token(output, padding_mask):
    """The mean over all tokens but padding: [B, S, D] of masks [B, S] -> float32 [B, D].

    >>> tokens = np.array([[[1.0], [3.0], [9.0]]])
    >>> float(mean_token(tokens, np.array([[1, 1, 0]]))[0, 0])
    2.0
    """
    weights = ops.cast(ops.not_equal(padding_mask, 0), "float32")[:, :, None]  # [B, S] -> [B, S, 1]
    total = ops.sum(ops.cast(output, "float32") * weights, axis=1)  # [B, S, D] -> [B, D]
    return total / ops.maximum(ops.sum(weights, axis=1), 1.0)


_POOLED = {"mean": mean_token, "first": lambda states, padding_mask: states[:, 0, :]}
