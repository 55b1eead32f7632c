"""Vocabularies of SentencePiece unigram models."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop.spm import read_model, write_model
from rembed_keras.interop.vocabularies.pieces import new_pieces

NORMAL = 1  # SentencePiece's type of pieces that are text
UNIGRAM = 1  # and of models


class SentencePieceVocabulary:
    """The pieces of a SentencePiece unigram model, with the methods of `Vocabulary`.

    Args:
        tokenizer: the model.

    Raises:
        UserError: for a BPE model.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._model = read_model(tokenizer.path)
        if self._model.trainer_spec.model_type != UNIGRAM:
            raise UserError(
                f"{tokenizer.file_name} is not a unigram model: others need removed pieces to segment a text"
            )

    def needed(self, used: np.ndarray) -> np.ndarray:
        """Those, what is not text, and the pieces with the lowest score of all text and the highest.

        SentencePiece scores unknown characters by the one and user-defined pieces by the other: without them, text of
        kept pieces could be segmented differently.
        """
        is_text = np.array([piece.type == NORMAL for piece in self._model.pieces])
        scores = np.where(is_text, [piece.score for piece in self._model.pieces], np.nan)
        kept = used | ~is_text | self._tokenizer.is_special
        kept[[np.nanargmin(scores), np.nanargmax(scores)]] = True
        return kept

    def write_kept(self, kept: np.ndarray, path: Path) -> None:
        """See `Vocabulary`."""
        write_model(self._model, [self._model.pieces[i] for i in kept], path)

    def write_extended(self, lines: Sequence[str], path: Path) -> list[list[int]]:
        """See `Vocabulary`; a piece replaces its former segmentation, and no other text is segmented otherwise."""
        new = new_pieces(self._model, lines)
        pieces = self._model.pieces
        added = [type(pieces[0])(piece=each.piece, score=each.score) for each in new]
        write_model(self._model, [*pieces, *added], path)
        return [each.parts for each in new]
