"""New pieces for a SentencePiece unigram model: their segmentation into old pieces, and their scores.

A unigram model segments a text such that the sum of its pieces' log-probabilities is highest. A new piece whose score
is slightly above that of the best segmentation of its own text replaces that segmentation and changes no other: any
text without [UNK] keeps a segmentation that was best before, with the parts of new pieces joined.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from sentencepiece import SentencePieceProcessor

from rembed_keras.data.tokenizers.sentence_piece import SPACE
from rembed_keras.errors import UserError, shortened
from rembed_keras.interop.spm import message_class

# nats for each boundary that a piece removes, so that it is preferred to its parts, and to new pieces within it: above
# the rounding error of float32 sums over a paragraph, and below the difference of two segmentations of a text
PREFERENCE = 1e-3


class NewPiece(NamedTuple):
    """A piece to add.

    Attributes:
        piece: as SentencePiece writes it.
        parts: ids of the pieces of its former segmentation.
        score: its log-probability, in nats.
    """

    piece: str
    parts: list[int]
    score: float


def new_pieces(model: Any, lines: Sequence[str]) -> list[NewPiece]:
    """The pieces that a model does not have yet.

    Args:
        model: a unigram model, as `spm.read_model` gives it.
        lines: pieces, with U+2581 for the space before a word; each is normalized as the model normalizes text, since
            no other form of it occurs. Empty lines are skipped.

    Raises:
        UserError: for a line that normalization makes empty, or with U+0000; its number counts from 1.
    """
    known = {piece.piece for piece in model.pieces}
    segmenter = _Segmenter(model)
    found = {}
    for number, line in enumerate(lines, start=1):
        if not line or line in known:
            continue
        if "\0" in line:
            raise UserError(
                f"line {number} of the pieces, {shortened(line)}, has U+0000, which ends a piece: remove it"
            )
        piece = segmenter.normalized(line)
        if not piece.strip(SPACE) and piece != line:
            raise UserError(f"line {number} of the pieces, {shortened(line)}, is empty after normalization: remove it")
        if piece not in known:
            found[piece] = NewPiece(piece, segmenter.parts(piece), segmenter.score(piece))
    return [*found.values()]


class _Segmenter:
    """A model that segments a piece as it is, without the dummy prefix of a text."""

    def __init__(self, model):
        own = message_class()()
        own.CopyFrom(model)
        self._joins_spaces = own.normalizer_spec.remove_extra_whitespaces
        own.normalizer_spec.add_dummy_prefix = own.normalizer_spec.remove_extra_whitespaces = False
        self._model = SentencePieceProcessor(model_proto=own.SerializeToString())

    def normalized(self, line: str) -> str:
        """A line after the model's normalization of text."""
        piece = self._model.normalize(line)
        return re.sub(f"{SPACE}+", SPACE, piece) if self._joins_spaces else piece

    def parts(self, piece: str) -> list[int]:
        """Ids of the best segmentation.

        A piece within words may be segmented as at the beginning of a word, if that has fewer unknown or byte pieces,
        or fewer pieces.
        """
        within = self._model.encode(piece)
        if piece.startswith(SPACE):
            return within
        first, *rest = self._model.encode(SPACE + piece)
        begins = rest if self._model.id_to_piece(first) == SPACE else [first, *rest]
        return min(within, begins, key=self._novelty)

    def _novelty(self, ids):
        return sum(self._model.is_unknown(i) or self._model.is_byte(i) for i in ids), len(ids)

    def score(self, piece: str) -> float:
        """The score of a new piece: the model's own score of the best segmentation, with its unknown penalty."""
        best = self._model.nbest_encode_as_proto(piece, nbest_size=2).nbests[0]
        parts = sum(len(part.piece) if self._model.is_unknown(part.id) else 1 for part in best.pieces)
        return best.score + PREFERENCE * (parts - 1)
