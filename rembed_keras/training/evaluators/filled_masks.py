"""What a model puts in the place of masks, in sentences of every language: how far it is, to be read."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rembed_keras.data.tokenizers.protocol import word_begins
from rembed_keras.errors import Count, UserError, check_counts

if TYPE_CHECKING:  # a recipe is checked without a framework
    from rembed_keras.analysis.reports.tables import Table
    from rembed_keras.training.evaluators.evaluator import EvaluationData


class FilledMasks:
    """A table, `filled_masks`: for held-out text of each language, what the model gives for a masked token.

    Rows and masks are those of the mixture's seed, the same at every evaluation and in every run of the seed. A whole
    row is read, and a few words of it are shown. A language of which no whole row is held out is left out.

    Args:
        sentences: how many of each language.
        top: how many of the most probable pieces are shown.
        context: how many tokens of its document are shown before and after the mask.

    Raises:
        UserError: for a number that is none.

    >>> FilledMasks(top=5).needs_held_out
    True
    """

    needs_held_out = True

    def __init__(self, sentences: Count = 1, top: Count = 3, context: Count = 8):
        check_counts({"sentences": sentences, "top": top, "context": context})
        self.sentences, self.top, self.context = sentences, top, context

    def check(self, model) -> None:
        """Refuses an objective without logits of masked tokens.

        Raises:
            UserError: in one line.
        """
        from rembed_keras.modeling.objectives.masked_tokens import MaskedTokenPrediction

        if not isinstance(model, MaskedTokenPrediction):
            raise UserError("FilledMasks needs logits of masked tokens: an objective such as MaskedLM")

    def evaluate(self, model, data: "EvaluationData") -> "dict[str, Table]":
        """The table.

        Raises:
            UserError: for an objective without logits of masked tokens.
        """
        from rembed_keras.analysis.reports.tables import Table
        from rembed_keras.training.evaluators.evaluator import Forward

        self.check(model)
        chosen, forward = data.once(self, lambda: (self._choose(data.batches), Forward(model)))
        logits = forward.predict_on_batch({name: chosen.inputs[name] for name in model.input})
        scores = np.asarray(logits, np.float64)[:, 0]  # [N, 1, V] -> [N, V]
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        tokenizer = data.batches.corpus.tokenizer
        is_text = np.pad(~tokenizer.is_special, (0, shares.shape[1] - tokenizer.vocabulary_size))
        rows = []
        for shown, share in zip(chosen.shown, shares, strict=True):
            best = np.argsort(np.where(is_text, share, -1.0), kind="stable")[::-1][: self.top]
            rows.append([*shown, ", ".join(f"{_written(tokenizer, i)} {share[i]:.0%}" for i in best)])
        return {"filled_masks": Table("Filled-in masks", ["language", "text", "masked", "model"], rows, words=4)}

    def _choose(self, mixture) -> "Chosen":
        languages, tokens = self._rows(mixture)
        tokenizer, generator = mixture.corpus.tokenizer, np.random.default_rng((mixture.seed, *b"filled masks"))
        places = np.array([_place(row, tokenizer, generator) for row in tokens], np.int32)
        index = np.arange(len(tokens))
        labels, masked = tokens[index, places], tokens.copy()
        masked[index, places] = tokenizer.mask_id
        slots = {"mask_positions": places[:, None], "mask_ids": labels[:, None]}
        batch = {"token_ids": masked, "mask_weights": np.ones((len(tokens), 1), np.float32)} | slots
        inputs, _, _ = mixture.batch_of(languages, tokens, batch)
        shown = []
        documents = inputs["padding_mask"]  # int [N, S]: those around the mask's own are not seen
        for language, row, document, place, label in zip(languages, tokens, documents, places, labels, strict=True):
            own = np.flatnonzero(document == document[place])
            before = tokenizer.decode(row[max(own[0], place - self.context) : place].tolist())
            after = tokenizer.decode(row[place + 1 : min(own[-1], place + self.context) + 1].tolist())
            shown.append((mixture.languages[language], f"{before} [MASK] {after}", _written(tokenizer, label)))
        return Chosen(inputs | {"mask_positions": places[:, None]}, shown)  # one slot: of logits one row is enough

    def _rows(self, mixture) -> tuple[np.ndarray, np.ndarray]:
        """The first held-out rows of each language, whatever its weight: their languages [N], and tokens [N, S]."""
        corpus, size = mixture.corpus, mixture.sequence_length
        places = [
            (number, language, row * size)
            for number, language in enumerate(mixture.languages)
            for row in range(min(self.sentences, corpus.num_held_out.get(language, 0) // size))
        ]
        tokens = [corpus.held_out(language, begin, size) for _, language, begin in places]
        return np.array([number for number, _, _ in places], np.int64), np.reshape(tokens, (-1, size)).astype(np.int32)


class Chosen(NamedTuple):
    """Masked rows.

    Attributes:
        inputs: what the model reads, of N rows, with one masked position each.
        shown: the language, the text around the mask, and the masked piece.
    """

    inputs: dict[str, np.ndarray]
    shown: list[tuple[str, str, str]]


def _place(row, tokenizer, generator) -> int:
    """The position of a token to mask: by preference one that is a word by itself, with text on both sides."""
    is_text = ~tokenizer.is_special[row] & (row != tokenizer.unk_id)
    begins = word_begins(row, tokenizer) | ~is_text
    is_word = is_text & begins & np.append(begins[1:], True)
    is_inner = np.zeros_like(is_text)
    is_inner[1:-1] = is_text[:-2] & is_text[2:]
    choices = (np.flatnonzero(each) for each in (is_word & is_inner, is_text, np.ones_like(is_text)))
    return int(generator.choice(next(places for places in choices if len(places))))


def _written(tokenizer, token) -> str:
    """A piece, to be read."""
    return tokenizer.decode([int(token)]) or tokenizer.piece(int(token))
