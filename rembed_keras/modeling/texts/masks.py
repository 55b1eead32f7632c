"""What a masked language model puts where a text has [MASK]."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rembed_keras.errors import UserError, check_counts, shortened
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.parts import padding_read
from rembed_keras.modeling.texts.strings import NO_TOKENIZER, is_one_text, listed


class Fill(NamedTuple):
    """A piece that a model puts in the place of [MASK].

    Attributes:
        token: the piece as text.
        probability: that the model gives it.
    """

    token: str
    probability: float


class FillsMasks:
    """A model that gives logits [B, P, V] of masked tokens."""

    def fill_mask(self, texts: str | Sequence[str], top: int = 5) -> list:
        """The most probable pieces for each [MASK] of a text.

        Args:
            texts: a text with [MASK] in it once or more, or a list of such.
            top: how many pieces for each; all, if there are fewer.

        Returns:
            For a text with one [MASK] a list of `top` pairs `Fill(token, probability)`, best first; with several, a
            list of such lists, in the order of the text; for a list of texts, a list of what each gives. Special pieces
            and [UNK] are left out.

        Raises:
            UserError: without a preprocessor, for a text without [MASK], or one longer than the encoder reads.
        """
        check_counts({"top": top})
        model: Any = self
        if model.preprocessor is None:
            raise UserError(NO_TOKENIZER)
        tokenizer = model.preprocessor.tokenizer
        rows = [_row(text, tokenizer, longest_row(model.encoder.arguments)) for text in listed(texts)]
        is_text = ~tokenizer.model.is_special
        is_text[tokenizer.model.unk_id] = False
        answers = [self._fills(model, tokenizer, row, is_text, top) for row in rows]
        return answers[0] if is_one_text(texts) else answers

    def _fills(self, model, tokenizer, row, is_text, top):
        length = len(row) + 2 + padding_read(model.encoder)  # [CLS], [SEP] and what is read with [SEP]
        inputs = model.preprocessor.padded([row], min(length, longest_row(model.encoder.arguments)))
        places = np.flatnonzero(inputs["token_ids"][0] == tokenizer.model.mask_id)
        inputs |= {"mask_positions": places[None].astype(np.int32)}
        logits = np.asarray(model.predict_on_batch(inputs), np.float64)[0]  # [P, V]
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares = odds / odds.sum(axis=-1, keepdims=True)
        found, is_text = [], is_text[: shares.shape[1]]
        for share in shares:
            best = np.argsort(np.where(is_text, share[: len(is_text)], -1.0))[::-1][: min(top, is_text.sum())]
            found.append([Fill(tokenizer.shown(int(i)), float(share[i])) for i in best])
        return found[0] if len(found) == 1 else found


def _row(text, tokenizer, longest):
    ids = tokenizer.tokenize_masked(text)
    if tokenizer.model.mask_id not in ids:
        raise UserError(f"there is no [MASK] in {shortened(text)}")
    if len(ids) + 2 > longest:
        raise UserError(f"{shortened(text)} has {len(ids) + 2} tokens; the encoder reads {longest}")
    return ids
