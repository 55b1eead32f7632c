"""Text to ids and back, by a SentencePiece model.

One model file is the whole truth about a vocabulary: the ids of the special pieces are looked up in it by name, never
assumed, so that a vocabulary trained here and the one of a released model are used alike. Training is deterministic:
the same text and settings give the same file.
"""

import hashlib
import io
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
import sentencepiece

from rembed_keras.errors import UserError

SPECIAL_PIECES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
THREADS = 4  # of training; the sums of its threads, and so the model, depend on their number
CHUNK = 2000  # texts that are tokenized together
SAMPLE = 4192  # bytes of the longest text that a tokenizer learns from at once: SentencePiece's own limit
RESERVED = "\u2585"  # SentencePiece's sign of an unknown character; it learns from no text that has one
Normalization: TypeAlias = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]
NORMALIZATIONS = get_args(Normalization)
SPACE = "\u2581"  # how SentencePiece writes the space before a word
# scripts that put no spaces between words, as their letters' Unicode names begin: every piece may start a word
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


class Tokenizer:
    """A SentencePiece model and its special pieces.

    Args:
        path: the model file.

    Attributes:
        sha256: checksum of the model file.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special pieces.

    Raises:
        UserError: if the file is missing, is no SentencePiece model, or lacks a special piece.
    """

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
        self.sha256 = hashlib.sha256(model).hexdigest()
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(self._special, SPECIAL_PIECES)

    def _special(self, role):
        for piece in SPECIAL_PIECES[role]:
            token_id = self._model.piece_to_id(piece)
            if token_id < self.vocabulary_size and self._model.id_to_piece(token_id) == piece:
                return token_id
        raise UserError(f"tokenizer {self.path} has no {' or '.join(SPECIAL_PIECES[role])} piece")

    @property
    def vocabulary_size(self) -> int:
        """Number of pieces, special ones included."""
        return self._model.get_piece_size()

    @cached_property
    def is_special(self) -> np.ndarray:
        """Whether a piece stands for no text, bool [V]: such pieces are neither hidden nor predicted."""
        pieces = range(self.vocabulary_size)
        special = np.array([self._model.is_control(i) or self._model.is_unused(i) for i in pieces])
        special[[self.pad_id, self.cls_id, self.sep_id, self.mask_id]] = True
        return special

    @cached_property
    def starts_word(self) -> np.ndarray:
        """Whether a piece begins a word, bool [V].

        Words begin after spaces and at punctuation; in scripts without spaces every piece counts as a word.
        """
        return np.array([self._starts_word(i) for i in range(self.vocabulary_size)])

    def _starts_word(self, token_id):
        if self._model.is_byte(token_id):
            return False
        piece = self._model.id_to_piece(token_id)
        first = piece[0]
        return first == SPACE or not first.isalnum() or unicodedata.name(first, "").startswith(UNSPACED)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special pieces."""
        return self._model.encode(text)

    def encode_with_offsets(self, text: str) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Ids of a text, without special pieces, and where in the text each piece stands.

        Blanks before and after what a piece stands for are no part of it, so a piece of spaces alone has an empty
        place. Pieces that spell a character together, such as its bytes, or the three of "½", have all of it each; but
        one that also spells the character before has that alone.

        Args:
            text: a text, as it came: before any normalization.

        Returns:
            `ids`, as `encode` gives them, T of them; `starts`, which never fall, and `ends`, int32 [T] each, in
            characters (code points) from 0: piece i stands for `text[starts[i]:ends[i]]`.
        """
        found = self._model.encode(text, return_type="offset_mapping")
        blank = {char for char in set(text) if not any(map(_shown, self._model.encode(char, return_type=str)))}
        places = []
        whole = len(text)  # SentencePiece gives a character that several pieces spell to the last of them
        for piece, offset in zip(reversed(found["pieces"]), reversed(found["offsets"]), strict=True):
            start, end = _without_blanks(text, offset, blank)
            if _shown(piece):
                end = whole = end if start < end else whole
            places.append((start, end))
        starts, ends = np.array(places[::-1], np.int32).reshape(-1, 2).T
        return found["ids"], starts, ends

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts, without special pieces."""
        return self._model.encode(texts, num_threads=os.cpu_count() or 1)

    def encode_documents(self, texts: list[str], threads: int = 1) -> np.ndarray:
        """`[CLS] ... [SEP]` of each text, one after another, int32 [T]."""
        begin, end = np.array([self.cls_id], np.int32), np.array([self.sep_id], np.int32)
        # to name one thread costs a fifth: the library then starts a pool for each call
        found = self._model.encode_as_numpy(texts, num_threads=threads if threads > 1 else None)
        return np.concatenate([part for ids in found for part in (begin, ids, end)], dtype=np.int32)

    def encode_stream(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Yields the ids of each text, without special pieces, and holds few of the texts at a time."""
        texts = iter(texts)
        while chunk := list(itertools.islice(texts, CHUNK)):
            yield from self.encode_batch(chunk)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special pieces give none."""
        return self._model.decode([int(i) for i in ids])


def train_tokenizer(
    lines: Iterable[str],
    path: str | Path,
    vocabulary_size: int,
    byte_fallback: bool = False,
    normalization: str = "nmt_nfkc",
) -> Tokenizer:
    """Trains a unigram model whose first pieces are [PAD] [UNK] [CLS] [SEP] [MASK].

    Args:
        lines: the text to learn from, of any length: long ones are cut at spaces, or between characters.
        path: where to write the model.
        vocabulary_size: V, number of pieces, special ones included.
        byte_fallback: whether to spell characters that are no piece as bytes, instead of [UNK].
        normalization: what the model does to text first, one of `NORMALIZATIONS`: "nmt_nfkc" makes like characters one
            and drops controls and repeated spaces; "identity" nothing, so that with `byte_fallback` decoding gives the
            text back, but for U+2581, which is SentencePiece's own space.

    Raises:
        UserError: for an unknown normalization, or if the text supports no vocabulary of that size; the message names
            one that it does.

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
    """Yields text in samples that SentencePiece takes; it drops longer ones, and those with its sign, silently."""
    for line in lines:
        rest = line.replace(RESERVED, " ").encode("utf-8")
        while len(rest) > SAMPLE:
            end = start = rest.rfind(b" ", 1, SAMPLE + 1)
            if end < 0:
                end = start = len(rest[:SAMPLE].decode("utf-8", "ignore").encode("utf-8"))
            else:
                start += 1  # a sample begins as a word does, by itself
            yield rest[:end].decode("utf-8")
            rest = rest[start:]
        yield rest.decode("utf-8")


def _shown(piece):
    """What there is to see of a piece: nothing of spaces."""
    return piece.replace(SPACE, " ").strip()


def _without_blanks(text, place, blank):
    """Where a place begins and ends without the blanks at its ends."""
    start, end = place
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
        return f"vocabulary_size {vocabulary_size} is less than the text's {too_low[1]} characters need: raise it"
    return f"no vocabulary of {vocabulary_size} pieces could be trained: {' '.join(message.split())}"
