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

from rembed_keras.data.prepare.sources import find_source
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop.convert import check_absent, written_whole
from rembed_keras.interop.presets import read_preset, write_preset
from rembed_keras.interop.reallocation.heads import headed_as
from rembed_keras.interop.vocabularies.files import tokenizer_of
from rembed_keras.interop.vocabularies.protocol import Vocabulary, vocabulary_of
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.objectives.pretraining import encoder_of
from rembed_keras.modeling.saving.presets import folder_of

PER_PIECE = ("embeddings/token/embeddings", "output_embedding/bias")  # beside the tables of the output's own


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
    """Trims a preset's vocabulary to the pieces that a text uses; rows without a piece go too.

    Args:
        source: a preset of an `Encoder` or `MaskedLM` with its tokenizer.
        target: the preset to write, which must not exist.
        text_dir: a source of text, see `find_source`.
        languages: languages whose pieces to keep; all by default. The others are only counted.
        min_count: how often a piece must occur in the text to be kept.

    Raises:
        UserError: for a preset or text that cannot be used; nothing is written then.
    """
    check_absent(Path(target))
    model, tokenizer, vocabulary = _read(folder_of(source))
    with written_whole(Path(target)) as folder:
        file = folder / tokenizer.file_name
        smaller, done = trimmed(model, tokenizer, vocabulary, text_dir, file, languages, min_count)
        write_preset(smaller, folder, open_tokenizer(file), model.preprocessor)
    return done


def trimmed(
    model: keras.Model,
    tokenizer: AnyTokenizer,
    vocabulary: Vocabulary,
    text_dir: str,
    file: Path,
    languages: Sequence[str] | None = None,
    min_count: int = 1,
) -> tuple[keras.Model, Trimmed]:
    """A model with the pieces of its vocabulary that a text uses.

    Args:
        model: an `Encoder` or `MaskedLM`.
        tokenizer: the model's.
        vocabulary: its pieces, as `changeable` gives them.
        text_dir: a source of text, see `find_source`.
        file: where to write its new tokenizer.
        languages: languages whose pieces to keep; all by default. The others are only counted.
        min_count: how often a piece must occur in the text to be kept.

    Raises:
        UserError: for a text that cannot be used; nothing is written then.
    """
    source = find_source(text_dir, languages=languages, with_others=True)
    counts: dict[str, np.ndarray] = {}
    for language, paragraphs in source.by_language():
        count = counts.setdefault(language, np.zeros(tokenizer.vocabulary_size, np.int64))
        for ids in tokenizer.encode_stream(paragraphs):
            np.add.at(count, ids, 1)
    source.check_found([language for language, count in counts.items() if count.any()])
    wanted = np.sum([counts[language] for language in {*(languages or counts)}], axis=0)
    is_kept = vocabulary.needed(wanted >= min_count)
    kept = np.flatnonzero(is_kept)
    smaller = _with_rows(model, len(kept), lambda rows: rows[kept])
    vocabulary.write_kept(kept, file)
    return smaller, Trimmed(
        (len(is_kept), len(kept)),
        (4 * encoder_of(model).count_params(), 4 * encoder_of(smaller).count_params()),
        {language: float(count[~is_kept].sum() / max(count.sum(), 1)) for language, count in counts.items()},
    )


def extend(source: str, target: str, pieces: Sequence[str]) -> int:
    """Adds pieces to a preset's vocabulary.

    The embedding of a new piece is initialized as the mean of the pieces of its former segmentation, to which it is
    preferred; no other text is segmented differently. Rows that the table has beyond the pieces are taken first.

    Args:
        source: a preset of an `Encoder` or `MaskedLM` with its tokenizer.
        target: the preset to write, which must not exist.
        pieces: what to add, as the tokenizer writes it; it normalizes it. To SentencePiece and unigram models U+2581 is
            the space before a word; a WordPiece model takes whole words.

    Returns:
        How many were added: those that are not in the vocabulary yet.

    Raises:
        UserError: for a preset that cannot be used, a piece without text, or if no piece is new; nothing is written
            then.
    """
    check_absent(Path(target))
    model, tokenizer, vocabulary = _read(folder_of(source))
    with written_whole(Path(target)) as folder:
        file = folder / tokenizer.file_name
        former = vocabulary.write_extended(pieces, file)
        if not former:
            raise UserError("all pieces to add are already in the vocabulary")

        def grow(rows):
            # in float64: NumPy sums bfloat16 in bfloat16
            new = np.stack([rows[ids].astype(np.float64).mean(axis=0) for ids in former]).astype(rows.dtype)
            return np.concatenate([rows[:known], new, rows[known + len(new) :]])

        known = tokenizer.vocabulary_size
        grown = _with_rows(model, max(encoder_of(model).arguments["vocabulary_size"], known + len(former)), grow)
        write_preset(grown, folder, open_tokenizer(file), model.preprocessor)
    return len(former)


def _read(source):
    model, notes = read_preset(source)
    if notes:
        raise UserError(
            f"{source} is not of an Encoder or MaskedLM, and {notes[0]}: convert it --from preset --to preset first, "
            "which writes its encoder alone"
        )
    file = tokenizer_of(source)
    if file is None:
        raise UserError(f"{source} has no tokenizer: convert it again with --tokenizer MODEL")
    tokenizer = open_tokenizer(file)
    return model, tokenizer, changeable(model, tokenizer, source)


def changeable(model: keras.Model, tokenizer: AnyTokenizer, source: object) -> Vocabulary:
    """The pieces of a model whose vocabulary can be changed.

    Args:
        model: an `Encoder` or `MaskedLM`.
        tokenizer: its tokenizer.
        source: where they are, for messages.

    Raises:
        UserError: if it cannot.
    """
    config = encoder_of(model).get_config()
    if (rows := config["vocabulary_size"]) < tokenizer.vocabulary_size:
        raise UserError(f"{source}: the tokenizer has {tokenizer.vocabulary_size} pieces and the model {rows} rows")
    if config.get("quantized") or model.get_config().get("quantized"):
        raise UserError(f"{source} is quantized: change its vocabulary before `quantize`")
    if config["input_cutoffs"] or model.get_config().get("output_cutoffs"):
        raise UserError(f"{source} has adaptive tables, whose cutoffs fix the vocabulary: it cannot be changed")
    try:
        return vocabulary_of(tokenizer)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def _with_rows(model, vocabulary_size, change) -> keras.Model:
    """A copy of a model with another vocabulary size; `change` maps the old rows of each table to the new."""
    encoder = encoder_of(model)
    own: set[str] = set()
    copy = Encoder.from_config(encoder.get_config() | {"vocabulary_size": vocabulary_size})
    if isinstance(model, MaskedLM):
        copy = headed_as(model, copy)
        own = {table.embeddings.path for table in model.head.output_embedding.coupling.own.values()}
    for old, new in zip(model.weights, copy.weights, strict=True):
        per_piece = old.path.endswith(PER_PIECE) or old.path in own
        values = change(old.numpy()) if per_piece else old.numpy()
        if not np.isfinite(values).all():
            raise UserError(f"{old.path} has non-finite values: the model cannot be used")
        new.assign(values)
    return copy
