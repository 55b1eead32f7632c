"""What every tokenizer of a model can do."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from rembed_keras.errors import UserError

BROKEN = "\ufffd"  # how bytes are decoded that are no character by themselves


class AnyTokenizer(Protocol):
    """Text to ids and back: a SentencePiece model, or one of Hugging Face's `tokenizers` library.

    Attributes:
        path: its file.
        file_name: what a copy of its file is called.
        sha256: checksum of what defines it.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special pieces.
    """

    path: Path
    file_name: str
    sha256: str
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int

    @property
    def segmentation(self) -> str:
        """Checksum of its pieces, by their ids, and of how it segments a text: two files may do so alike."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Number of pieces, special ones included."""
        ...

    @property
    def is_special(self) -> np.ndarray:
        """Whether a piece is special, bool [V]."""
        ...

    @property
    def starts_word(self) -> np.ndarray:
        """Whether a piece begins a word, bool [V]."""
        ...

    @property
    def ends_word(self) -> np.ndarray:
        """Whether a piece ends a word by its mark, so that the next begins one, bool [V]."""
        ...

    @property
    def num_bytes(self) -> np.ndarray:
        """UTF-8 bytes of normalized text that a piece stands for, int64 [V]."""
        ...

    def is_word(self, token_id: int) -> bool:
        """Whether a piece can be a word by itself."""
        ...

    def piece(self, token_id: int) -> str:
        """A piece as its file writes it."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special pieces."""
        ...

    def encode_with_offsets(self, text: str) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Ids of a text, without special pieces, and where each piece starts and ends in the text, in characters."""
        ...

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts, without special pieces."""
        ...

    def encode_documents(self, texts: list[str], threads: int = 1) -> np.ndarray:
        """`[CLS] ... [SEP]` of each text, one after another, int32 [T]."""
        ...

    def encode_stream(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Yields the ids of each text, without special pieces, with few texts in memory at a time."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special pieces."""
        ...

    def copy_to(self, folder: Path) -> Path:
        """Writes its file into a folder, by `file_name`, and returns the path."""
        ...


def word_begins(tokens: np.ndarray, tokenizer: AnyTokenizer) -> np.ndarray:
    """Where words begin in rows of tokens, by their marks, bool [..., S].

    Args:
        tokens: int [..., S].
        tokenizer: whose pieces they are.
    """
    begins = tokenizer.starts_word[tokens]
    begins[..., 1:] |= tokenizer.ends_word[tokens[..., :-1]]
    return begins


def check_words(tokenizer: AnyTokenizer) -> None:
    """Checks that a tokenizer's pieces say where words begin, as they must where words are masked whole.

    Raises:
        UserError: if a text of two words is pieces of which none does.
    """
    ids = tokenizer.encode("a a")
    if ids and not word_begins(np.array(ids), tokenizer).any():
        raise UserError(
            f"the pieces of tokenizer {tokenizer.path} do not say where words begin, so whole words cannot be masked: "
            "leave out whole_word, or take a tokenizer that marks them"
        )
