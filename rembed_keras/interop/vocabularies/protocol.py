"""What can be done to a tokenizer's vocabulary, and by which class for each tokenizer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.interop.vocabularies.sentence_piece import SentencePieceVocabulary


class Vocabulary(Protocol):
    """The pieces of a tokenizer, of which some can be removed and others added."""

    def needed(self, used: np.ndarray) -> np.ndarray:
        """The pieces without which a text of some pieces would be segmented otherwise.

        Args:
            used: whether a piece is to be kept, bool [V].

        Returns:
            Those, and all that must be kept with them, bool [V].
        """
        ...

    def write_kept(self, kept: np.ndarray, path: Path) -> None:
        """Writes the tokenizer with some of its pieces, which are renumbered.

        Args:
            kept: their ids, which rise, int [N].
            path: the file to write.
        """
        ...

    def write_extended(self, lines: Sequence[str], path: Path) -> list[list[int]]:
        """Writes the tokenizer with more pieces, after its own.

        Args:
            lines: the pieces; those that it has, and empty ones, are skipped.
            path: the file to write.

        Returns:
            The ids by which each new piece was segmented before.

        Raises:
            UserError: for a line that cannot be a piece, or a kind of model that cannot be extended.
        """
        ...


def vocabulary_of(tokenizer: AnyTokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer.

    Raises:
        UserError: for a kind of model whose vocabulary cannot be changed.
    """
    if isinstance(tokenizer, Tokenizer):
        return SentencePieceVocabulary(tokenizer)
    from rembed_keras.interop.vocabularies.fast import fast_vocabulary

    return fast_vocabulary(tokenizer)
