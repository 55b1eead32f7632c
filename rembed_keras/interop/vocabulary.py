"""Vocabulary trimming and extension of trained models.

A narrow input table makes this cheap: a row is a few hundred bytes. Trimming keeps the rows of the pieces that a text
uses and renumbers them. A text of kept pieces is segmented as before, since its best segmentation is still available,
so an encoder's outputs on it are bitwise the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np

from rembed_keras.data.text import read_paragraphs, text_files
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.interop.convert import TOKENIZER, read_preset, write_preset, written_whole
from rembed_keras.interop.pieces import new_pieces
from rembed_keras.interop.spm import read_model, write_model
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.objectives.pretraining import encoder_of

NORMAL = 1  # SentencePiece's type of pieces that are text
UNIGRAM = 1  # and of models
TABLES = ("embeddings/token/embeddings", "decoupled/table/embeddings", "gdes/difference/embeddings")
BIAS = "output_embedding/bias"


@dataclass(frozen=True)
class Trimmed:
    """The result of trimming a vocabulary.

    Attributes:
        pieces: number of pieces before and after.
        kept_bytes: bytes of the encoder's parameters before and after, in float32.
        lost: share of tokens whose piece was removed, by language; 0 for the languages to keep with a `min_count` of 1.
    """

    pieces: tuple[int, int]
    kept_bytes: tuple[int, int]
    lost: dict[str, float]


def trim(
    source: str, target: str, text_dir: str, languages: Sequence[str] | None = None, min_count: int = 1
) -> Trimmed:
    """Trims a preset's vocabulary to the pieces that a text uses.

    Args:
        source: a preset of an `Encoder` or `MaskedLM` with its tokenizer.
        target: the preset to write, which must not exist.
        text_dir: folder of `<language>.txt` or `.txt.gz`.
        languages: languages whose pieces to keep; all by default. The others are only counted.
        min_count: how often a piece must occur in the text to be kept.

    Raises:
        UserError: for a preset or text that cannot be used; nothing is written then.
    """
    model, tokenizer = _read(Path(source))
    with written_whole(Path(target)) as folder:
        smaller, done = trimmed(model, tokenizer, text_dir, folder / TOKENIZER, languages, min_count)
        write_preset(smaller, folder, Tokenizer(folder / TOKENIZER))
    return done


def trimmed(
    model: keras.Model,
    tokenizer: Tokenizer,
    text_dir: str,
    file: Path,
    languages: Sequence[str] | None = None,
    min_count: int = 1,
) -> tuple[keras.Model, Trimmed]:
    """A model with the pieces of its vocabulary that a text uses.

    Args:
        model: an `Encoder` or `MaskedLM` whose vocabulary can be changed; see `check_vocabulary`.
        tokenizer: the model's.
        text_dir: folder of `<language>.txt` or `.txt.gz`.
        file: where to write its new tokenizer.
        languages: languages whose pieces to keep; all by default. The others are only counted.
        min_count: how often a piece must occur in the text to be kept.

    Raises:
        UserError: for a text that cannot be used; nothing is written then.
    """
    files = text_files(text_dir)
    for language in languages or ():
        if language not in files:
            raise UserError(f"{text_dir} has no text of {language}{did_you_mean(language, files)}")
    counts = {language: _count(path, tokenizer) for language, path in files.items()}
    for language in languages or files:
        if not counts[language].any():
            raise UserError(f"{files[language]} has no text: remove it or add some")
    wanted = np.sum([counts[language] for language in {*(languages or files)}], axis=0)
    proto = read_model(tokenizer.path)
    is_text = np.array([piece.type == NORMAL for piece in proto.pieces])
    kept = np.flatnonzero((wanted >= min_count) | ~is_text | tokenizer.is_special | _has_extreme_score(proto))
    pieces = [proto.pieces[i] for i in kept]
    smaller = _with_rows(model, len(kept), lambda rows: rows[kept])
    write_model(proto, pieces, file)
    is_gone = np.ones(len(is_text), bool)
    is_gone[kept] = False
    return smaller, Trimmed(
        (len(is_text), len(kept)),
        (4 * encoder_of(model).count_params(), 4 * encoder_of(smaller).count_params()),
        {language: float(count[is_gone].sum() / max(count.sum(), 1)) for language, count in counts.items()},
    )


def extend(source: str, target: str, pieces: Sequence[str]) -> int:
    """Adds pieces to a preset's vocabulary.

    The embedding of a new piece is initialized as the mean of the pieces of its former segmentation, to which it is
    preferred; no other text is segmented differently.

    Args:
        source: a preset of an `Encoder` or `MaskedLM` with its tokenizer.
        target: the preset to write, which must not exist.
        pieces: what to add, as SentencePiece writes it, with U+2581 for the space before a word; the tokenizer
            normalizes it.

    Returns:
        How many were added: those that are not in the vocabulary yet.

    Raises:
        UserError: for a preset that cannot be used, a piece without text, or if no piece is new; nothing is written
            then.
    """
    model, tokenizer = _read(Path(source))
    proto = read_model(tokenizer.path)
    new = new_pieces(proto, pieces)
    if not new:
        raise UserError("all pieces to add are already in the vocabulary")
    with written_whole(Path(target)) as folder:

        def grow(rows):
            return np.concatenate([rows, [rows[each.parts].mean(axis=0) for each in new]]).astype(rows.dtype)

        grown = _with_rows(model, len(proto.pieces) + len(new), grow)
        added = [type(proto.pieces[0])(piece=each.piece, score=each.score) for each in new]
        write_model(proto, [*proto.pieces, *added], folder / TOKENIZER)
        write_preset(grown, folder, Tokenizer(folder / TOKENIZER))
    return len(new)


def _has_extreme_score(proto):
    """Whether a piece has the lowest score of all text or the highest, bool [V].

    SentencePiece scores unknown characters by the one and user-defined pieces by the other: without them, text of kept
    pieces could be segmented differently.
    """
    scores = np.array([piece.score if piece.type == NORMAL else np.nan for piece in proto.pieces])
    extremes = np.zeros(len(scores), bool)
    extremes[[np.nanargmin(scores), np.nanargmax(scores)]] = True
    return extremes


def _read(source):
    model, notes = read_preset(source)
    if notes:
        raise UserError(f"{source} is not of an Encoder or MaskedLM, and {notes[0]}: convert it to a preset first")
    if not (source / TOKENIZER).exists():
        raise UserError(f"{source} has no {TOKENIZER}: convert it again with --tokenizer MODEL")
    tokenizer = Tokenizer(source / TOKENIZER)
    check_vocabulary(model, tokenizer, source)
    return model, tokenizer


def check_vocabulary(model: keras.Model, tokenizer: Tokenizer, source: object) -> None:
    """Checks that the vocabulary of a model can be changed.

    Args:
        model: an `Encoder` or `MaskedLM`.
        tokenizer: its tokenizer.
        source: where they are, for messages.

    Raises:
        UserError: if it cannot.
    """
    if not isinstance(tokenizer, Tokenizer):
        raise UserError(f"{source}: its tokenizer is not a SentencePiece model, and only such vocabularies are changed")
    config = encoder_of(model).get_config()
    if config["vocabulary_size"] != tokenizer.vocabulary_size:
        rows = config["vocabulary_size"]
        raise UserError(f"{source}: the tokenizer has {tokenizer.vocabulary_size} pieces and the model {rows} rows")
    if read_model(tokenizer.path).trainer_spec.model_type != UNIGRAM:
        raise UserError(f"{source}: {TOKENIZER} is not a unigram model: others need removed pieces to segment a text")
    if config.get("quantized") or model.get_config().get("quantized"):
        raise UserError(f"{source} is quantized: change its vocabulary before `quantize`")
    if config["input_cutoffs"] or model.get_config().get("output_cutoffs"):
        raise UserError(f"{source} has adaptive tables, whose cutoffs fix the vocabulary: it cannot be changed")


def _count(path, tokenizer):
    """How often each piece occurs in a text, int64 [V]."""
    counts = np.zeros(tokenizer.vocabulary_size, np.int64)
    for ids in tokenizer.encode_stream(read_paragraphs(path)):
        np.add.at(counts, ids, 1)
    return counts


def _with_rows(model, vocabulary_size, change) -> keras.Model:
    """A copy of a model with another vocabulary size; `change` maps the old rows of each table to the new."""
    encoder = encoder_of(model)
    copy = Encoder.from_config(encoder.get_config() | {"vocabulary_size": vocabulary_size})
    if isinstance(model, MaskedLM):
        arguments = {key: value for key, value in model.get_config().items() if key not in ("encoder", "name")}
        copy = MaskedLM(copy, **arguments)
    for old, new in zip(model.weights, copy.weights, strict=True):
        per_piece = old.path.endswith((*TABLES, BIAS))
        values = change(old.numpy()) if per_piece else old.numpy()
        if not np.isfinite(values).all():
            raise UserError(f"{old.path} has non-finite values: the model cannot be used")
        new.assign(values)
    return copy
