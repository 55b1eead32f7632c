"""Pieces that are added to a SentencePiece unigram model: what old pieces each is made of, and its score.

A unigram model cuts a text where the sum of its pieces' log-probabilities is highest. A new piece whose score is that
of the best cut of its own text, and a little more, stands for that cut and changes no other: no text that was cut
without [UNK] gets a cut that was not its best before, with the parts of new pieces joined.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from rembed_keras.data.tokenizers.sentence_piece import SPACE
from rembed_keras.errors import UserError, shortened

# nats for each border that a piece saves, so that it is preferred to its parts, and to new pieces within it: more than
# the rounding of float32 sums over a paragraph, and less than what two cuts of one text differ by
PREFERENCE = 1e-3


class NewPiece(NamedTuple):
    """A piece to add.

    Attributes:
        piece: as SentencePiece writes it.
        parts: ids of the pieces that its text was cut into.
        score: its log-probability, in nats.
    """

    piece: str
    parts: list[int]
    score: float


def new_pieces(model: sentencepiece_model_pb2.ModelProto, lines: Sequence[str]) -> list[NewPiece]:
    """The pieces that a model does not have yet.

    Args:
        model: a unigram model.
        lines: pieces, with U+2581 for the space before a word; each is normalized as the model normalizes text, since
            no other form of it would be found in text. Empty lines are left out.

    Raises:
        UserError: for a line of which nothing is left then; its number counts from 1.
    """
    known = {piece.piece for piece in model.pieces}
    cutter = _Cutter(model)
    found = {}
    for number, line in enumerate(lines, start=1):
        if not line or line in known:
            continue
        piece = cutter.normalized(line)
        if not piece.strip(SPACE) and piece != line:
            raise UserError(f"line {number} of the pieces, {shortened(line)}, stands for no text: remove it")
        if piece not in known:
            found[piece] = NewPiece(piece, cutter.parts(piece), cutter.score(piece))
    return [*found.values()]


class _Cutter:
    """A model that cuts a piece as it stands, without the space that models put before a text."""

    def __init__(self, model):
        own = sentencepiece_model_pb2.ModelProto()
        own.CopyFrom(model)
        self._joins_spaces = own.normalizer_spec.remove_extra_whitespaces
        own.normalizer_spec.add_dummy_prefix = own.normalizer_spec.remove_extra_whitespaces = False
        self._model = SentencePieceProcessor(model_proto=own.SerializeToString())

    def normalized(self, line: str) -> str:
        """A line as the model sees it in a text."""
        piece = self._model.normalize(line)
        return re.sub(f"{SPACE}+", SPACE, piece) if self._joins_spaces else piece

    def parts(self, piece: str) -> list[int]:
        """Ids of the best cut.

        That of a piece within words may be a cut of what it is at the beginning of one, if that is known better: with
        fewer pieces, or fewer of them unknown.
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
        """Of a new piece: what the model itself gives the best cut, unknown characters at their price."""
        best = self._model.nbest_encode_as_proto(piece, nbest_size=2).nbests[0]
        parts = sum(len(part.piece) if self._model.is_unknown(part.id) else 1 for part in best.pieces)
        return best.score + PREFERENCE * (parts - 1)
