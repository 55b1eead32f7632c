"""Text to ids and back, by a SentencePiece model.

The model file alone defines a vocabulary: the ids of the special pieces are looked up in it by name, never assumed, so
vocabularies trained here and those of released models work alike. Training is deterministic: the same text and
settings give the same file.
"""

import hashlib
import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
import sentencepiece

from rembed_keras.data.tokenizers.words import LETTERS, begins_word, count_letters
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError

SPECIAL_PIECES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
PARTIAL = ("sentencepiece.bpe.model", "spm.model")  # of XLM-R and DeBERTa, whose classes add special pieces
THREADS = 4  # of training; the trained model depends on their number
CHUNK = 2000  # texts that are tokenized together
SAMPLE = 4192  # bytes of the longest training sample: SentencePiece's own limit
RESERVED = "\u2585"  # SentencePiece's sign of an unknown character; it drops training text that has one
Normalization: TypeAlias = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]
NORMALIZATIONS = get_args(Normalization)
SPACE = "\u2581"  # how SentencePiece writes the space before a word


class Tokenizer:
    """A SentencePiece model and its special pieces.

    Args:
        path: the model file.

    Attributes:
        contents: bytes of the model file, which stay when it is gone.
        sha256, segmentation: checksum of the model file.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special pieces.

    Raises:
        UserError: if the file is missing, is not a SentencePiece model, or lacks a special piece.
    """

    file_name = "tokenizer.model"

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            model = self.path.read_bytes()
        except OSError as error:
            raise UserError(f"tokenizer {self.path}: {error.strerror}") from None
        if not model:
            raise UserError(f"tokenizer {self.path} is empty")
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise UserError(f"tokenizer {self.path} is not a SentencePiece model") from None
        self.contents = model
        self.sha256 = self.segmentation = hashlib.sha256(model).hexdigest()
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(self._special, SPECIAL_PIECES)

    def _special(self, role):
        for piece in SPECIAL_PIECES[role]:
            token_id = self._model.piece_to_id(piece)
            if token_id < self.vocabulary_size and self._model.id_to_piece(token_id) == piece:
                return token_id
        remedy = (
            ": convert its model to a preset, and name the tokenizer.model of that" if self.path.name in PARTIAL else ""
        )
        raise UserError(f"tokenizer {self.path} has no {' or '.join(SPECIAL_PIECES[role])} piece{remedy}")

    @property
    def vocabulary_size(self) -> int:
        """Number of pieces, special ones included."""
        return self._model.get_piece_size()

    @cached_property
    def is_special(self) -> np.ndarray:
        """Whether a piece is special, bool [V]: such pieces are not text, and neither masked nor predicted."""
        pieces = range(self.vocabulary_size)
        special = np.array([self._model.is_control(i) or self._model.is_unused(i) for i in pieces])
        special[[self.pad_id, self.cls_id, self.sep_id, self.mask_id]] = True
        return special

    @cached_property
    def starts_word(self) -> np.ndarray:
        """Whether a piece begins a word, bool [V].

        Words begin after spaces and at punctuation, and not at marks, such as vowel signs; in scripts without spaces
        every piece counts as a word.
        """
        pieces = range(self.vocabulary_size)
        return np.array([not self._model.is_byte(i) and begins_word(self.piece(i)) for i in pieces])

    @cached_property
    def ends_word(self) -> np.ndarray:
        """Whether a piece ends a word, so that the next begins one, bool [V]: in models that put spaces there."""
        has_spaces_last = self._model.normalize("a").endswith(SPACE)
        return np.array([has_spaces_last and self.piece(i).endswith(SPACE) for i in range(self.vocabulary_size)])

    @cached_property
    def num_bytes(self) -> np.ndarray:
        """UTF-8 bytes of normalized text that a piece stands for, a space before a word among them, int64 [V].

        0 for special pieces and for [UNK], of which nobody knows.
        """
        return np.array([self._num_bytes(i) for i in range(self.vocabulary_size)], np.int64)

    def _num_bytes(self, token_id):
        if self.is_special[token_id] or token_id == self.unk_id:
            return 0
        if self._model.is_byte(token_id):
            return 1
        return len(self._model.id_to_piece(token_id).replace(SPACE, " ").encode("utf-8"))

    def is_word(self, token_id: int) -> bool:
        """Whether a piece can be a word by itself: a space, and three letters or more with their marks."""
        piece = self._model.id_to_piece(token_id)
        return piece[0] == SPACE and count_letters(piece[1:]) >= LETTERS

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special pieces."""
        return self._model.encode(text)

    def encode_with_offsets(self, text: str) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Ids of a text, without special pieces, and the span of each piece in the text.

        Leading and trailing whitespace is not part of a piece's span, so a piece of spaces alone has an empty one.
        Pieces that encode a character together, such as its bytes, or the three of "½", each have all of it as their
        span; but one that also encodes the character before has that alone.

        Args:
            text: a text before any normalization.

        Returns:
            `ids`, as `encode` gives them, T of them; `starts`, which never fall, and `ends`, int32 [T] each, in
            characters (code points) from 0: piece i is `text[starts[i]:ends[i]]`.
        """
        found = self._model.encode(text, return_type="offset_mapping")
        blank = {char for char in set(text) if not any(map(_shown, self._model.encode(char, return_type=str)))}
        spans = []
        whole = len(text)  # SentencePiece assigns a character of several pieces to the last of them
        for piece, offset in zip(reversed(found["pieces"]), reversed(found["offsets"]), strict=True):
            start, end = _without_blanks(text, offset, blank)
            if _shown(piece):
                end = whole = end if start < end else whole
            spans.append((start, end))
        starts, ends = np.array(spans[::-1], np.int32).reshape(-1, 2).T
        return found["ids"], starts, ends

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts, without special pieces."""
        return self._model.encode(texts, num_threads=os.cpu_count() or 1)

    def encode_documents(self, texts: list[str], threads: int = 1) -> np.ndarray:
        """`[CLS] ... [SEP]` of each text, one after another, int32 [T]."""
        begin, end = np.array([self.cls_id], np.int32), np.array([self.sep_id], np.int32)
        # num_threads=1 would cost a fifth more: the library then starts a pool for each call
        found = self._model.encode_as_numpy(texts, num_threads=threads if threads > 1 else None)
        return np.concatenate([part for ids in found for part in (begin, ids, end)], dtype=np.int32)

    def encode_stream(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Yields the ids of each text, without special pieces, with few texts in memory at a time."""
        texts = iter(texts)
        while chunk := list(itertools.islice(texts, CHUNK)):
            yield from self.encode_batch(chunk)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special pieces."""
        return self._model.decode([int(i) for i in ids])

    def copy_to(self, folder: Path) -> Path:
        """Writes the model file into a folder, as `tokenizer.model`, and returns its path."""
        path = folder / self.file_name
        write_atomically(path, self.contents)
        return path

    def piece(self, token_id: int) -> str:
        """A piece as the model writes it, with U+2581 for the space before a word."""
        return self._model.id_to_piece(token_id)


def train_tokenizer(
    lines: Iterable[str],
    path: str | Path,
    vocabulary_size: int,
    byte_fallback: bool = False,
    normalization: str = "nmt_nfkc",
) -> Tokenizer:
    """Trains a unigram model whose first pieces are [PAD] [UNK] [CLS] [SEP] [MASK].

    Args:
        lines: the training text, of any length: long lines are cut at spaces, or between characters.
        path: where to write the model.
        vocabulary_size: V, number of pieces, special ones included.
        byte_fallback: whether to encode characters without a piece as bytes, instead of [UNK].
        normalization: SentencePiece's normalization rule, one of `NORMALIZATIONS`: "nmt_nfkc" maps equivalent
            characters to one and drops controls and repeated spaces; "identity" changes nothing, so that with
            `byte_fallback` decoding restores the text, but for U+2581, which is SentencePiece's own space.

    Raises:
        UserError: for an unknown normalization, or if the text does not support a vocabulary of that size; the message
            names one that it does.

    Source: Kudo 2018, "Subword Regularization".
    """
    if normalization not in NORMALIZATIONS:
        raise UserError(f"normalization is {normalization!r}; it must be one of {', '.join(NORMALIZATIONS)}")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_samples(lines),
            max_sentence_length=SAMPLE,
            model_writer=model,
            model_type="unigram",
            vocab_size=vocabulary_size,
            byte_fallback=byte_fallback,
            normalization_rule_name=normalization,
            remove_extra_whitespaces=normalization != "identity",
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            pad_piece=SPECIAL_PIECES["pad"][0],
            unk_piece=SPECIAL_PIECES["unk"][0],
            bos_piece=SPECIAL_PIECES["cls"][0],
            eos_piece=SPECIAL_PIECES["sep"][0],
            control_symbols=[SPECIAL_PIECES["mask"][0]],
            num_threads=THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(_explain(str(error), vocabulary_size)) from None
    Path(path).write_bytes(model.getvalue())
    return Tokenizer(path)


def _samples(lines):
    """Yields samples within SentencePiece's limits; it silently drops longer ones, and those with its sign."""
    for line in lines:
        text, start = line.replace(RESERVED, " ").encode("utf-8"), 0
        while len(text) - start > SAMPLE:
            end = after = text.rfind(b" ", start + 1, start + SAMPLE + 1)
            if end < 0:
                end = after = start + len(text[start : start + SAMPLE].decode("utf-8", "ignore").encode("utf-8"))
            else:
                after += 1  # a sample begins as a word does, by itself
            yield text[start:end].decode("utf-8")
            start = after
        yield text[start:].decode("utf-8")


def _shown(piece):
    """A piece without spaces."""
    return piece.replace(SPACE, " ").strip()


def _without_blanks(text, span, blank):
    """A span without the whitespace at its ends."""
    start, end = span
    while start < end and text[start] in blank:
        start += 1
    while start < end and text[end - 1] in blank:
        end -= 1
    return start, end


def _explain(message, vocabulary_size):
    too_high = re.search(r"set it to a value <= (\d+)", message)
    if too_high:
        return f"vocabulary_size {vocabulary_size} is more than the text supports: at most {too_high[1]}"
    too_low = re.search(r"required_chars\. \d+ vs (\d+)", message)
    if too_low:
        return f"vocabulary_size {vocabulary_size} is too small for the text's {too_low[1]} characters: raise it"
    return f"no vocabulary of {vocabulary_size} pieces could be trained: {' '.join(message.split())}"
