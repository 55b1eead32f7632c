"""Texts and pairs of texts as the encoder's inputs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np

from rembed_keras.data.tokenizers.opening import FILE_NAMES
from rembed_keras.errors import Count, UserError, check_counts, shortened
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.saving.presets import located
from rembed_keras.modeling.texts.inputs import narrowed
from rembed_keras.modeling.texts.strings import ONE_COLUMN, are_texts, is_table
from rembed_keras.preprocessing.labels import NAMES, labels_of
from rembed_keras.preprocessing.tokenizer import Tokenizer, as_texts, bare_tokenizer, is_symbolic
from rembed_keras.tasks.kinds.encoding import encode_pairs, fill_rows
from rembed_keras.tasks.kinds.examples import Labelled

INPUTS = ("token_ids", "segment_ids", "padding_mask")


class TextPreprocessor(keras_hub.models.Preprocessor):
    """What our preprocessors have in common: a tokenizer, a length, and where presets have them.

    Args:
        tokenizer: the encoder's.
        sequence_length: S; longer texts are truncated. A model whose positions are fewer takes a copy of its own. By
            default 512, or the `max_sequence_length` of the model if that is less.
        num_segments: 1 for an encoder that has segment 0 only; a model's copy has the encoder's.
        name: the layer's name.
    """

    backbone_cls = Encoder
    tokenizer_cls = Tokenizer
    sequence_length: int = 512  # here, since keras-hub's classes have properties of these names
    settings: tuple[str, ...] = ("sequence_length", "num_segments")  # of the constructor, besides the tokenizer
    shortest = 3  # sequence length: [CLS], a piece and [SEP]
    takes_pairs = False  # whether a pair of texts may be what it is called with

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: Count | None = None,
        num_segments: Count = 2,
        name: str | None = None,
    ):
        self.is_length_given = sequence_length is not None
        sequence_length = TextPreprocessor.sequence_length if sequence_length is None else sequence_length
        check_counts({"sequence_length": sequence_length, "num_segments": num_segments})
        if sequence_length < self.shortest:
            raise UserError(f"sequence_length is {sequence_length}; it must be {self.shortest} or more")
        keras_hub.models.Preprocessor.__init__(self, name=name)
        self.tokenizer = tokenizer
        self.sequence_length, self.num_segments = sequence_length, num_segments

    def build(self, input_shape=None):
        """Nothing is built."""

    def suited(self, arguments: dict[str, Any]) -> "TextPreprocessor":
        """One of an encoder's length and segments, which a model takes that this is given to.

        Args:
            arguments: the encoder's.

        Returns:
            This one, if it suits the encoder; otherwise another with the same tokenizer.

        Raises:
            UserError: if the encoder has fewer rows than the tokenizer has pieces.
        """
        size, rows = self.tokenizer.vocabulary_size() if self.tokenizer.is_open else 0, arguments["vocabulary_size"]
        if size > rows:
            raise UserError(f"the tokenizer has {size} pieces and the encoder only {rows} rows")
        longest = longest_row(arguments) if self.is_length_given else arguments["max_sequence_length"]
        own = {"sequence_length": self.sequence_length, "num_segments": self.num_segments}
        suits = {
            "sequence_length": min(self.sequence_length, longest),
            "num_segments": max(1, min(2, arguments["num_segments"])),
        }
        return self if suits == own else self.from_config(self.get_config() | {"tokenizer": self.tokenizer} | suits)

    def tokenized(self, texts: Any) -> list[list[int]]:
        """Ids of each text, or of one, cut to what a row has room for."""
        return [ids[: self.sequence_length - 2] for ids in self.tokenizer.tokenize(as_texts(texts))]

    def padded(self, rows: list[list[int]], sequence_length: int) -> dict[str, np.ndarray]:
        """The encoder's inputs int32 [B, S] of texts' ids, S - 2 at most, around which [CLS] and [SEP] are put."""
        return fill_rows(rows, [None] * len(rows), self.tokenizer.model, sequence_length, self.num_segments)

    def arrays(self, x, y, sample_weight) -> tuple:
        """`(x, y, sample_weight)` as the model takes them, of texts in memory."""
        raise NotImplementedError

    def __call__(self, *arguments, **named):
        """Keras's; a pair is one of texts, or texts and their labels, for which keras-hub takes any, or none of old."""
        if self.takes_pairs and len(arguments) == 1 and not {"y", "sample_weight"} & named.keys():
            (x,) = arguments
            if isinstance(x, tuple) and len(x) == 2:
                is_pair = all(map(are_texts, x))
                arguments, named["y"] = ((x,), None) if is_pair else ((x[0],), x[1])
        return super().__call__(*arguments, **named)

    def call(self, x, y=None, sample_weight=None):
        if is_table(x):
            raise UserError(ONE_COLUMN)
        if is_symbolic((x, y, sample_weight)):
            return self._in_graph(x, y, sample_weight)
        return keras.utils.pack_x_y_sample_weight(*self.arrays(x, y, sample_weight))

    def _in_graph(self, x, y, sample_weight):
        raise UserError(f"{type(self).__name__} takes lists, arrays and Grain's data sets, and none of tf.data's")

    def get_config(self):
        tokenizer = keras.saving.serialize_keras_object(self.tokenizer)
        return {"name": self.name, "tokenizer": tokenizer} | {key: getattr(self, key) for key in self.settings}

    @classmethod
    def from_config(cls, config):
        known = {key: value for key, value in config.items() if key in ("name", "tokenizer", *cls.settings)}
        if isinstance(known.get("tokenizer"), dict):
            known["tokenizer"] = Tokenizer.from_config(known["tokenizer"]["config"])
        return cls(**known)

    @classmethod
    def from_preset(cls, preset: str | Path, config_file: str = "preprocessor.json", **arguments):
        """As keras-hub's, which also opens presets with a bare tokenizer's file.

        Args:
            preset: a name in `Encoder.presets`, a folder, or a handle of keras-hub's.
            config_file: as in keras-hub.
            arguments: of the preprocessor, for example `sequence_length`.
        """
        preset = located(preset)
        bare = bare_tokenizer(preset)
        return cls(Tokenizer(bare), **arguments) if bare else super().from_preset(preset, config_file, **arguments)

    @classmethod
    def found_in(cls, preset: str):
        """As `from_preset`; None for a preset without a tokenizer."""
        folder = Path(preset)
        if folder.is_dir() and not any((folder / name).is_file() for name in FILE_NAMES):
            return None
        try:
            return cls.from_preset(preset)
        except FileNotFoundError:  # as keras-hub says it of what it may have to download
            return None


@keras.saving.register_keras_serializable(package="rembed_keras")
class TextClassifierPreprocessor(TextPreprocessor, keras_hub.models.TextClassifierPreprocessor):
    """`[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`, for `Classifier`, `Regressor` and encoders.

    Args:
        tokenizer: a `Tokenizer`.
        sequence_length: S; longer texts are truncated at the end, pairs longest first. By default as long as the model
            reads, and 512 at most.
        num_segments: 1 for an encoder that has segment 0 only; a model takes a copy of its own.
        name: the layer's name.

    Call arguments: texts, or a pair `(texts, texts)`; `y` and `sample_weight` are handed on. Returns a dict of
    `token_ids`, `segment_ids` and `padding_mask`, int32 [B, S], with `y` and `sample_weight` where they are given.

    Raises:
        UserError: for labels that are names or missing, or more than two texts in a row.

    >>> tokenizer = Tokenizer.train(["the encoder is kept and the head is dropped"] * 20, vocabulary_size=20)
    >>> TextClassifierPreprocessor(tokenizer, sequence_length=16)(["the head", "kept"])["token_ids"].shape
    (2, 16)
    """

    takes_pairs = True

    def arrays(self, x, y, sample_weight):
        labels, parts = labels_of(y), _one_or_two(x)
        texts = [as_texts(part) for part in parts]
        examples = [
            Labelled(str(i), *row) for i, row in enumerate(rows_of(dict(zip(("texts", "pairs"), texts, strict=False))))
        ]
        inputs = encode_pairs(examples, self.tokenizer.model, self.sequence_length, None, self.num_segments).inputs
        return inputs, narrowed(labels), weights_of_rows(sample_weight, len(examples))

    def _in_graph(self, x, y, sample_weight):
        def read(*texts):
            inputs, _, _ = self.arrays(tuple(texts), None, None)
            return [inputs[name] for name in INPUTS]

        if getattr(y, "dtype", None) is not None and are_texts(y):
            raise UserError(NAMES)
        parts = _one_or_two(x)
        found = read_in_graph(read, parts, [("int32", self.sequence_length)] * len(INPUTS))
        return keras.utils.pack_x_y_sample_weight(dict(zip(INPUTS, found, strict=True)), y, sample_weight)


def rows_of(columns: Mapping[str, Sequence]) -> Iterator[tuple]:
    """Rows of columns that belong together.

    Args:
        columns: of one length, by what they are.

    Raises:
        UserError: for columns of several lengths.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len({*lengths.values()}) > 1:
        said = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise UserError(f"there are {said}: each row needs one of each")
    return zip(*columns.values(), strict=True)


def weights_of_rows(sample_weight: Any, count: int) -> np.ndarray | None:
    """The weights that a user gives texts.

    Args:
        sample_weight: a list, an array or a column; None for none.
        count: of the texts.

    Returns:
        float32 [N]; None for none.

    Raises:
        UserError: for anything but a number for each text.

    >>> weights_of_rows([1, 0.5], 2).tolist()
    [1.0, 0.5]
    """
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, np.float32)
    except (TypeError, ValueError):
        raise UserError(f"sample_weight is {shortened(sample_weight)}; it must be a number for each text") from None
    if weights.shape not in ((count,), (count, 1)):
        raise UserError(f"sample_weight is of shape {weights.shape}; it must be a number for each of {count} texts")
    return weights.reshape(count)


def _one_or_two(x):
    """The texts of each row: of one text, or of a pair."""
    parts = x if isinstance(x, tuple) else (x,)
    if len(parts) not in (1, 2):
        raise UserError(f"there are {len(parts)} lists in a tuple; a row has one text, or two")
    return parts


def read_in_graph(read: Callable, parts: Sequence[Any], results: Sequence[tuple[str, int]]) -> list[Any]:
    """What a function makes of texts, as tensors of a graph of tf.data's.

    Args:
        read: of as many arrays of texts [B] as there are parts.
        parts: tensors of strings.
        results: dtype and width W of each array [B, W] that the function gives.
    """
    import tensorflow as tf

    texts = [tf.reshape(part, [-1]) for part in parts]
    found = tf.numpy_function(read, texts, [dtype for dtype, _ in results])
    for each, (_, width) in zip(found, results, strict=True):
        each.set_shape([None, width])
    return found
