"""Text to ids and back, by a `tokenizer.json` of Hugging Face's, or the `vocab.txt` of a WordPiece model as BERT's.

The `tokenizers` library does the work, so ids are those of transformers, but for special pieces that a text spells:
here they are text. Such a file is data: no code of it runs, and no other file is read by its name. A `vocab.txt` says
nothing of case, accents and Chinese characters: that is read from `tokenizer_config.json` beside it, with BERT's
defaults. The same holds of a `tokenizer.json` that BERT's class reads, and pieces that were added since are read too.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import tokenizers

from rembed_keras.data.text import read_exact_lines
from rembed_keras.data.tokenizers.beside import added_pieces, normalization, overrides_normalization, space_before
from rembed_keras.data.tokenizers.ends import ends, with_named_ends
from rembed_keras.data.tokenizers.protocol import BROKEN
from rembed_keras.data.tokenizers.sentence_piece import CHUNK, SPACE, SPECIAL_PIECES
from rembed_keras.data.tokenizers.words import LETTERS, begins_word, count_letters, follows_space
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError, shortened

UNUSED = re.compile(r"\[unused\d+\]")  # rows that BERT keeps free
SEGMENTS = ("added_tokens", "normalizer", "pre_tokenizer", "model")  # what of a file segments a text
BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # pieces of models that encode characters without a piece as bytes


class FastTokenizer:
    """A tokenizer of the `tokenizers` library, with the methods of `AnyTokenizer`.

    Args:
        path: `tokenizer.json`, or the `vocab.txt` of a WordPiece model.

    Attributes:
        parts: what `tokenizer.json` says of it.

    Raises:
        UserError: if the file is missing, is no such tokenizer, or lacks a special piece.
    """

    file_name = "tokenizer.json"

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self._model = _word_piece(self.path) if self.path.suffix == ".txt" else _whole(self.path)
        except UserError:
            raise
        except OSError as error:
            raise UserError(f"tokenizer {self.path}: {error.strerror}") from None
        except Exception:  # noqa: BLE001 - the library raises no narrower kind
            raise UserError(f"tokenizer {self.path} is not one that the tokenizers library reads") from None
        self._model.no_truncation()
        self._model.no_padding()
        if getattr(self._model.model, "dropout", None) is not None:
            self._model.model.dropout = None  # the same text has the same ids
        self._model.encode_special_tokens = True  # as text: else a text could begin a document within itself
        self._text = self._model.to_str()
        self.parts = json.loads(self._text)
        if self.parts["model"]["type"] == "Unigram" and self.parts["model"]["unk_id"] is None:
            raise UserError(f"tokenizer {self.path} has no unk_id: it cannot read a character that has no piece")
        self.sha256 = hashlib.sha256(self._text.encode()).hexdigest()
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(self._special, SPECIAL_PIECES)

    def _special(self, role):
        if (framing := ends(self.parts.get("post_processor")).get(role)) is not None:
            return framing
        found = [self._model.token_to_id(piece) for piece in SPECIAL_PIECES[role]]
        for token_id in found:
            if token_id is not None:
                return token_id
        raise UserError(f"tokenizer {self.path} has no {' or '.join(SPECIAL_PIECES[role])} piece")

    @cached_property
    def segmentation(self) -> str:
        """As `AnyTokenizer` has it: what a file puts around texts, and how it joins pieces, is left out."""
        ids = [self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id]
        said = [ids, *(self.parts[name] for name in SEGMENTS)]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    @cached_property
    def vocabulary_size(self) -> int:
        """Number of pieces, special ones included."""
        return 1 + max(self._model.get_vocab(with_added_tokens=True).values())

    @cached_property
    def _pieces(self) -> list[str]:
        return [self._model.id_to_token(i) or "" for i in range(self.vocabulary_size)]

    def piece(self, token_id: int) -> str:
        """A piece as the file writes it."""
        return self._pieces[token_id]

    @cached_property
    def is_special(self) -> np.ndarray:
        """Whether a piece is special, bool [V]: such pieces are not text, and neither masked nor predicted."""
        special = np.array([not piece or UNUSED.fullmatch(piece) is not None for piece in self._pieces])
        special[[i for i, token in self._model.get_added_tokens_decoder().items() if token.special]] = True
        special[[self.pad_id, self.cls_id, self.sep_id, self.mask_id]] = True
        special[self.unk_id] = False
        return special

    @cached_property
    def starts_word(self) -> np.ndarray:
        """Whether a piece begins a word, bool [V].

        Words begin after spaces and at punctuation; in scripts without spaces every piece counts as a word. A piece
        that begins with a part of a character begins none.
        """
        return np.array([self._starts_word(piece) for piece in self._pieces])

    def _starts_word(self, piece):
        if self._within or self._are_words:
            return self._is_bound(piece) or begins_word(self._unmarked(piece))
        if self._is_byte(piece):
            return False
        text = self._unmarked(piece)
        if self._has_bytes and piece not in self._added:
            text = tokenizers.decoders.ByteLevel().decode([text])
            if text.startswith(BROKEN):
                return False
        return begins_word(text)

    @cached_property
    def ends_word(self) -> np.ndarray:
        """Whether a piece ends a word by its mark, so that the next begins one, bool [V]: in models that mark ends."""
        return np.array([self._ending is not None and self._is_bound(piece) for piece in self._pieces])

    @cached_property
    def _within(self):
        """What pieces within words begin with, as of WordPiece; None if the model marks none."""
        return self.parts["model"].get("continuing_subword_prefix") or None

    @cached_property
    def _ending(self):
        """What pieces at the ends of words end with, as of some BPE models; None if the model marks none."""
        return self.parts["model"].get("end_of_word_suffix") or None

    @cached_property
    def _are_words(self):
        """Whether each piece is a whole word."""
        return self.parts["model"]["type"] == "WordLevel"

    def _is_bound(self, piece):
        """Whether a piece stands at the beginning, or the end, of a word in a model that says so without spaces."""
        if self._within:
            return not piece.startswith(self._within)
        if self._ending:
            return piece.endswith(self._ending) or piece in self._added
        return self._are_words

    def _unmarked(self, piece):
        return piece.removeprefix(self._within or "").removesuffix(self._ending or "")

    @cached_property
    def _has_bytes(self):
        """Whether pieces are bytes, in other characters."""
        return "ByteLevel" in json.dumps([self.parts["pre_tokenizer"], self.parts["normalizer"]])

    @cached_property
    def _added(self):
        """Pieces that were added to the model, which stand for text as it is written, and not for bytes."""
        return {token.content for token in self._model.get_added_tokens_decoder().values()}

    def _is_byte(self, piece):
        """Whether a piece is a byte by its number."""
        return bool(self.parts["model"].get("byte_fallback")) and BYTE.fullmatch(piece) is not None

    @cached_property
    def num_bytes(self) -> np.ndarray:
        """UTF-8 bytes of normalized text that a piece stands for, a space before a word among them, int64 [V].

        0 for special pieces and for [UNK]. A vocabulary that marks words without spaces, as of WordPiece, says nothing
        of these: there is taken to be one at each word, and none at punctuation, nor in Chinese and Japanese.
        """
        sizes = np.array([self._num_bytes(piece) for piece in self._pieces], np.int64)
        return np.where(self.is_special | (np.arange(len(sizes)) == self.unk_id), 0, sizes)

    def _num_bytes(self, piece):
        if self._is_byte(piece):
            return 1
        text, has_marks = self._unmarked(piece), bool(self._within or self._ending or self._are_words)
        has_space = self._is_bound(piece) and follows_space(text)
        if self._has_bytes and piece not in self._added:
            return has_space + len(text)
        return has_space + len((text if has_marks else text.replace(SPACE, " ")).encode())

    def is_word(self, token_id: int) -> bool:
        """Whether a piece can be a word by itself: it begins one, and has three letters or more with their marks."""
        piece = self._pieces[token_id]
        letters = self._model.decode([token_id]).strip()
        begins = self._is_bound(piece) if self._within or self._ending else self.starts_word[token_id]
        return bool(begins) and not self.is_special[token_id] and count_letters(letters) >= LETTERS

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special pieces; one that the text spells is text."""
        return self._as_text(self._model.encode(text, add_special_tokens=False).ids)

    def _as_text(self, ids):
        """Ids of a text in which [UNK] stands for special pieces, which some models know as words."""
        return ids if self._special_ids.isdisjoint(ids) else [self.unk_id if i in self._special_ids else i for i in ids]

    @cached_property
    def _special_ids(self):
        return frozenset(np.flatnonzero(self.is_special).tolist())

    def encode_with_offsets(self, text: str) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Ids of a text, without special pieces, and the span of each piece in the text.

        Leading and trailing whitespace is not part of a piece's span.

        Args:
            text: a text before any normalization.

        Returns:
            `ids`, T of them; `starts` and `ends`, int32 [T] each, in characters: piece i is `text[starts[i]:ends[i]]`.
        """
        found = self._model.encode(text, add_special_tokens=False)
        inside = [text[start:end] for start, end in found.offsets]
        starts = [
            start + len(piece) - len(piece.lstrip()) for (start, _), piece in zip(found.offsets, inside, strict=True)
        ]
        ends = [start + len(piece.strip()) for start, piece in zip(starts, inside, strict=True)]
        return self._as_text(found.ids), np.array(starts, np.int32), np.array(ends, np.int32)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts, without special pieces."""
        return [self._as_text(found.ids) for found in self._model.encode_batch_fast(texts, add_special_tokens=False)]

    def encode_documents(self, texts: list[str], threads: int = 1) -> np.ndarray:
        """`[CLS] ... [SEP]` of each text, one after another, int32 [T]; the library chooses its own threads."""
        found = self.encode_batch(texts)
        return np.array([i for ids in found for i in (self.cls_id, *ids, self.sep_id)], np.int32)

    def encode_stream(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Yields the ids of each text, without special pieces, with few texts in memory at a time."""
        texts = iter(texts)
        while chunk := [*itertools.islice(texts, CHUNK)]:
            yield from self.encode_batch(chunk)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special pieces."""
        return self._model.decode([int(i) for i in ids], skip_special_tokens=True)

    def copy_to(self, folder: Path) -> Path:
        """Writes `tokenizer.json` into a folder, and returns its path."""
        path = folder / self.file_name
        write_atomically(path, self._text)
        return path


def _whole(path):
    made = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    if isinstance(made.normalizer, tokenizers.normalizers.BertNormalizer) and overrides_normalization(path):
        cleans = made.normalizer.clean_text
        made.normalizer = tokenizers.normalizers.BertNormalizer(clean_text=cleans, **normalization(path))
        made = tokenizers.Tokenizer.from_str(made.to_str())  # its added pieces are normalized too
    if (
        isinstance(made.pre_tokenizer, tokenizers.pre_tokenizers.ByteLevel)
        and (begins := space_before(path)) is not None
    ):
        made.pre_tokenizer.add_prefix_space = begins
    return with_named_ends(_with_added(made, path), path)


def _word_piece(path):
    vocabulary = {piece: i for i, piece in enumerate(read_exact_lines(path))}
    made = tokenizers.BertWordPieceTokenizer(vocab=vocabulary, **normalization(path))
    return _with_added(tokenizers.Tokenizer.from_str(made.to_str()), path)


def _with_added(made, path):
    """A tokenizer with the pieces that files beside its own add."""
    own = {token.content for token in made.get_added_tokens_decoder().values()}
    for token_id, rules in added_pieces(path).items():
        if rules["content"] in own:
            continue
        made.add_tokens([tokenizers.AddedToken(**rules)])
        if (got := made.token_to_id(rules["content"])) != token_id:
            raise UserError(
                f"the files beside {path} give the piece {shortened(rules['content'])} the id {token_id}, "
                f"and {path.name} gives it {got}: correct them"
            )
    return made
