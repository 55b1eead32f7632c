"""Texts with masked tokens, for pre-training in a notebook."""

import zlib

import keras
import keras_hub
import numpy as np

from rembed_keras.data.pipeline.masking import mask_rows
from rembed_keras.data.tokenizers.protocol import check_words
from rembed_keras.errors import Count, Seed, Share, UserError, check_counts
from rembed_keras.preprocessing.texts import INPUTS, TextPreprocessor, read_in_graph, weights_of_rows
from rembed_keras.preprocessing.tokenizer import Tokenizer

X = (*INPUTS, "mask_positions")


@keras.saving.register_keras_serializable(package="rembed_keras")
class MaskedLMPreprocessor(TextPreprocessor, keras_hub.models.MaskedLMPreprocessor):
    """`[CLS] text [SEP]` with masked tokens, and these tokens as labels, for `MaskedLM` and the other objectives.

    Which tokens of a text are masked is a function of `seed` and the text alone: the same in every epoch, batch size,
    container and on every backend. Pre-training in earnest, with new masks in each epoch and rows packed full, is what
    `Mixture` and the recipes do.

    Args:
        tokenizer: a `Tokenizer`.
        sequence_length: S; longer texts are truncated at the end. By default as in `TextClassifierPreprocessor`.
        num_segments: as in `TextClassifierPreprocessor`.
        mask_rate: share of a text's tokens that are predicted, one at least.
        whole_word: whether to mask whole words.
        seed: of the masks.
        name: the layer's name.

    Call arguments: texts. Returns `(x, y, sample_weight)`: a dict of `token_ids`, `segment_ids` and `padding_mask`
    int32 [B, S] and `mask_positions` int32 [B, P]; the masked tokens' ids int32 [B, P]; weights
    float32 [B, P], 0 for empty slots and 1, or the text's `sample_weight`, for others.

    Raises:
        UserError: for a rate out of range, labels, which it makes itself, or whole words of a tokenizer that does not
            tell them apart.

    >>> tokenizer = Tokenizer.train(["the encoder is kept and the head is dropped"] * 20, vocabulary_size=20)
    >>> x, y, sample_weight = MaskedLMPreprocessor(tokenizer, sequence_length=20, mask_rate=0.1)(["the head is kept"])
    >>> y.shape, bool((x["token_ids"] == tokenizer.model.cls_id).any())
    ((1, 2), True)
    """

    settings = (*TextPreprocessor.settings, "mask_rate", "whole_word", "seed")

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: Count | None = None,
        num_segments: Count = 2,
        mask_rate: Share = 0.15,
        whole_word: bool = False,
        seed: Seed = 0,
        name: str | None = None,
    ):
        check_counts({"seed": seed}, "Seed")
        if not 0 < mask_rate < 1:
            raise UserError(f"mask_rate is {mask_rate!r}; it must be greater than 0 and less than 1")
        TextPreprocessor.__init__(self, tokenizer, sequence_length, num_segments, name)
        self.mask_rate, self.whole_word, self.seed = mask_rate, whole_word, seed

    @property
    def num_predictions(self) -> int:
        """P, slots for predictions in a row."""
        return max(1, round(self.mask_rate * self.sequence_length))

    def call(self, x, y=None, sample_weight=None):
        if y is not None:
            raise UserError("MaskedLMPreprocessor makes labels of the texts: leave y out")
        return super().call(x, y, sample_weight)

    def arrays(self, x, y, sample_weight):
        if self.whole_word:
            check_words(self.tokenizer.model)
        rows = self.tokenized(x)
        inputs = self.padded(rows, self.sequence_length)
        slots = (len(rows), self.num_predictions)
        positions, ids, weights = np.zeros(slots, np.int32), np.zeros(slots, np.int32), np.zeros(slots, np.float32)
        for i, row in enumerate(rows):
            count = min(self.num_predictions, max(1, round(self.mask_rate * len(row))))
            rng = np.random.default_rng((self.seed, zlib.crc32(np.array(row, np.int32).tobytes())))
            one = inputs["token_ids"][i : i + 1]
            masked = mask_rows(one, count, rng, self.tokenizer.model, self.whole_word)
            inputs["token_ids"][i] = masked["token_ids"][0]
            positions[i, :count] = masked["mask_positions"][0]
            ids[i, :count] = masked["mask_ids"][0]
            weights[i, :count] = masked["mask_weights"][0]
        of_rows = weights_of_rows(sample_weight, len(rows))
        if of_rows is not None:
            weights *= of_rows[:, None]  # [B, P]
        return inputs | {"mask_positions": positions}, ids, weights

    def _in_graph(self, x, y, sample_weight):
        def read(texts, *of_rows):
            inputs, ids, weights = self.arrays(texts, None, *(of_rows or [None]))
            return [*(inputs[name] for name in X), ids, weights]

        texts, *others = x if isinstance(x, tuple) else (x,)
        if others:
            raise UserError(f"there are {1 + len(others)} lists in a tuple; a row has one text")
        slots = self.num_predictions
        results = [("int32", self.sequence_length)] * len(INPUTS) + [("int32", slots)] * 2 + [("float32", slots)]
        parts = [texts, *([] if sample_weight is None else [sample_weight])]
        *found, ids, weights = read_in_graph(read, parts, results)
        return dict(zip(X, found, strict=True)), ids, weights
