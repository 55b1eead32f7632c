"""A tokenizer as a keras-hub layer, over SentencePiece, WordPiece and Hugging Face's `tokenizer.json` alike."""

import re
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np

from rembed_keras.data.json_files import read_json
from rembed_keras.data.tokenizers.opening import FILE_NAMES, open_tokenizer
from rembed_keras.data.tokenizers.protocol import BROKEN, AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import SPACE, SPECIAL_PIECES, train_tokenizer
from rembed_keras.errors import UserError, check_counts, did_you_mean, shortened
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.saving.presets import located
from rembed_keras.modeling.texts.strings import in_memory, is_in_memory, is_one_text, listed

SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, in Python's strings
SPACE_BYTE = "\u0120"  # a space, as models of bytes write it


@keras.saving.register_keras_serializable(package="rembed_keras")
class Tokenizer(keras_hub.tokenizers.Tokenizer):
    """Text to ids and back.

    Args:
        path: a SentencePiece model, a `tokenizer.json`, the `vocab.txt` of a WordPiece model, or a folder with one;
            None for a tokenizer whose file is still to come, as `load_assets` brings it.
        file_name: what the file is called in a preset.
        name: the layer's name.

    Attributes:
        model: the tokenizer without Keras; its `pad_id`, `unk_id`, `cls_id`, `sep_id` and `mask_id` are ids.

    Call arguments: a text or texts; see `tokenize`.

    Raises:
        UserError: for a file that is no tokenizer, or lacks a special piece.

    >>> lines = ["the encoder is kept and the head is dropped", "what is kept is paid for twice"] * 20
    >>> tokenizer = Tokenizer.train(lines, vocabulary_size=24)
    >>> tokenizer.detokenize(tokenizer.tokenize("the head is kept"))
    'the head is kept'
    """

    backbone_cls = Encoder

    def __init__(self, path: str | Path | None = None, file_name: str = FILE_NAMES[0], name: str | None = None):
        super().__init__(name=name, dtype="int32")
        if file_name not in FILE_NAMES:
            raise UserError(f"a preset's tokenizer is called {file_name!r}; it can be {' or '.join(FILE_NAMES)}")
        self._opened: AnyTokenizer | None = None
        self.file_assets = [file_name]
        if path is not None:
            self._open(Path(path))

    def _open(self, path):
        self._opened = open_tokenizer(path)
        self.file_assets = [self._opened.file_name]

    @property
    def model(self) -> AnyTokenizer:
        """The tokenizer without Keras."""
        if self._opened is None:
            raise UserError("this tokenizer has no file yet: give it one, or load a preset")
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether it has its file; one that keras-hub makes of a configuration gets it afterwards."""
        return self._opened is not None

    @classmethod
    def train(
        cls,
        lines: Iterable[str | bytes],
        vocabulary_size: int,
        byte_fallback: bool = False,
        normalization: str = "nmt_nfkc",
    ) -> "Tokenizer":
        """A SentencePiece unigram model of some text; the same text and arguments give the same model.

        Args:
            lines: the training text: a list, an array or a column of texts, or a generator of them.
            vocabulary_size: V, number of pieces, special ones included.
            byte_fallback: whether to encode characters without a piece as bytes, instead of [UNK].
            normalization: SentencePiece's normalization rule.

        Raises:
            UserError: if the text does not support a vocabulary of that size; the message names one that it does. And
                for one text, or what is none.
        """
        check_counts({"vocabulary_size": vocabulary_size})
        if is_one_text(lines):
            raise UserError(f"{shortened(in_memory(lines))} is one text: give lines of text, as a list of them")
        given = lines if isinstance(lines, Iterable) and not is_in_memory(lines) else listed(lines)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / FILE_NAMES[0]
            train_tokenizer(map(_as_text, given), path, vocabulary_size, byte_fallback, normalization)
            return cls(path)

    def tokenize(self, inputs):
        """Ids of texts, without special pieces.

        Args:
            inputs: a text, which may be bytes, or an array or a tensor without axes; a list, an array or a tensor of
                texts; or a string tensor of tf.data's.

        Returns:
            A list of ids for a text; a list of such lists for texts; a ragged tensor [B, None] in a graph of tf.data's.
        """
        if is_symbolic(inputs):
            return self._tokenize_in_graph(inputs)
        texts = as_texts(inputs)
        if is_one_text(inputs):
            return list(self.model.encode(texts[0]))
        return [list(ids) for ids in self.model.encode_batch(texts)]

    def _tokenize_in_graph(self, inputs):
        import tensorflow as tf

        def flat(texts):
            rows = self.tokenize(texts)
            ids = [i for row in rows for i in row]
            return np.array(ids, np.int32), np.array([len(row) for row in rows], np.int64)

        ids, lengths = tf.numpy_function(flat, [tf.reshape(inputs, [-1])], [tf.int32, tf.int64])
        ids.set_shape([None])
        lengths.set_shape([None])
        ragged = tf.RaggedTensor.from_row_lengths(ids, lengths)
        return ragged[0] if inputs.shape.rank == 0 else ragged

    def call(self, inputs, training=None):
        return self.tokenize(inputs)

    def tokenize_masked(self, text: str | bytes) -> list[int]:
        """Ids of a text in which [MASK] stands for a masked token, with the space before it: pieces have theirs."""
        (text,) = as_texts(text)
        marks = [piece for piece in SPECIAL_PIECES["mask"] if piece in text]
        parts = text.split(marks[0]) if marks else [text]
        parts = [*(part.rstrip() for part in parts[:-1]), parts[-1]]
        ids = list(self.model.encode(parts[0]))
        for part in parts[1:]:
            after = list(self.model.encode(part[1:] if self._has_two_spaces(part) else part))
            if after and part and not part[0].isspace():
                after = self._without_space(after)
            ids += [self.model.mask_id, *after]
        return ids

    def _has_two_spaces(self, text):
        """Whether the tokenizer puts a space before that which a text begins with: not all squeeze spaces."""
        if not text.startswith(" "):
            return False
        alone, spaced = (list(self.model.encode(each)) for each in (text.lstrip(), f" {text.lstrip()}"))
        return alone != spaced and self.id_to_token((alone or spaced)[0]).startswith(SPACE)

    def _without_space(self, ids):
        """Ids of a text that continues a word or ends a sentence, without the space that some tokenizers put first."""
        first = self.id_to_token(ids[0])
        is_byte = first.startswith(SPACE_BYTE) and self.model.decode(ids[:1]).startswith(" ")
        if not is_byte and not first.startswith(SPACE):
            return ids
        rest = first.removeprefix(SPACE_BYTE if is_byte else SPACE)
        known = self._ids.get(rest)
        return ids[1:] if not rest else ids if known is None else [known, *ids[1:]]

    def detokenize(self, inputs):
        """The text of ids, without special pieces: of a row of ids a text, of rows of ids a list of texts.

        Raises:
            UserError: for an id that no piece has, and for what is no row.
        """
        rows = inputs.tolist() if hasattr(inputs, "tolist") else inputs
        if hasattr(rows, "to_list"):
            rows = rows.to_list()
        if not isinstance(rows, Iterable):
            raise UserError(f"{shortened(rows)} is no row of ids: give a list of them")
        rows = [np.asarray(row).tolist() for row in rows]
        if any(isinstance(row, list) for row in rows):
            return [self.detokenize(row) for row in rows]
        return self.model.decode(map(self._checked, rows))

    def _checked(self, token_id):
        """An id as an int, which a piece has."""
        last = self.vocabulary_size() - 1
        try:
            found = int(token_id)
        except (OverflowError, TypeError, ValueError):
            found = -1
        if not 0 <= found <= last:
            raise UserError(f"the tokenizer has no piece of id {shortened(token_id)}: ids are 0 to {last}")
        return found

    def shown(self, token_id: int) -> str:
        """A piece as text, without the space before a word; as its file writes it where it is part of a character."""
        piece, text = self.id_to_token(token_id), self.model.decode([token_id])
        if not text.strip() or BROKEN in text or token_id == self.model.unk_id:
            text = piece
        return text.removeprefix(SPACE).removeprefix(" ") or piece

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: i for i, piece in enumerate(self.get_vocabulary())}

    def get_vocabulary(self) -> list[str]:
        """All pieces, as the file writes them, by id."""
        return [self.model.piece(i) for i in range(self.vocabulary_size())]

    def vocabulary_size(self) -> int:
        """Number of pieces, special ones included."""
        return self.model.vocabulary_size

    def id_to_token(self, id: int) -> str:  # noqa: A002 - keras-hub's name
        """A piece as the file writes it; a UserError for an id that none has."""
        return self.model.piece(self._checked(id))

    def token_to_id(self, token: str) -> int:
        """The id of a piece.

        Raises:
            UserError: for a piece that is not there.
        """
        if token not in self._ids:
            raise UserError(f"the tokenizer has no piece {token!r}{did_you_mean(token, self._ids)}")
        return self._ids[token]

    def save_assets(self, dir_path: str) -> None:
        """Writes the tokenizer's file into a folder."""
        self.model.copy_to(Path(dir_path))

    def load_assets(self, dir_path: str) -> None:
        """Reads the tokenizer's file from a folder."""
        self._open(Path(dir_path) / self.file_assets[0])

    @classmethod
    def from_preset(cls, preset: str | Path, config_file: str = "tokenizer.json", **arguments) -> "Tokenizer":
        """As keras-hub's, which also opens presets with a bare tokenizer's file, as `rembed convert` once wrote them.

        Args:
            preset: a name in `Encoder.presets`, a folder, or a handle of keras-hub's.
            config_file: as in keras-hub.
            arguments: as in keras-hub.
        """
        preset = located(preset)
        bare = bare_tokenizer(preset)
        return cls(bare) if bare else super().from_preset(preset, config_file, **arguments)

    def get_config(self):
        return {"name": self.name, "file_name": self.file_assets[0]}

    @classmethod
    def from_config(cls, config):
        known = {key: config[key] for key in ("name", "file_name") if key in config}  # a file may name no path to open
        return cls(**known)


def bare_tokenizer(preset: str | Path) -> Path | None:
    """The tokenizer's file of a folder that keras-hub finds none in; None if there is no such."""
    folder = Path(preset)
    config, model = folder / FILE_NAMES[1], folder / FILE_NAMES[0]
    if config.is_file():
        return None if "registered_name" in read_json(config) else config
    return model if model.is_file() else None


def as_texts(inputs: Any) -> list[str]:
    """Texts of lists, arrays, columns or tensors of strings, or of one string, which may be bytes.

    Raises:
        UserError: for what is no text.
    """
    return [_as_text(value) for value in listed(inputs)]


def _as_text(given):
    value = given if isinstance(given, str) else in_memory(given)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{shortened(value)} is no text: it is not UTF-8") from None
    if not isinstance(value, str):
        raise UserError(f"{value!r} is no text: texts are strings")
    if not value.isascii() and SURROGATE.search(value):
        raise UserError(f"{shortened(value)} has half of a surrogate pair, which is not a character")
    return value


def is_symbolic(x) -> bool:
    """Whether it is, or has, a tensor of a graph of TensorFlow's, whose strings are known when it runs."""
    leaves = keras.tree.flatten(x)
    return any(hasattr(leaf, "graph") and not hasattr(leaf, "numpy") for leaf in leaves)
