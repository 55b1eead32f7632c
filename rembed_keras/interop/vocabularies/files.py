"""The files of tokenizers beside models: which one a folder has, and how each format wants it."""

import os
import tempfile
from pathlib import Path

from rembed_keras.data.json_files import read_json
from rembed_keras.data.tokenizers.beside import added_pieces, is_berts, settings, special_names
from rembed_keras.data.tokenizers.opening import open_tokenizer, tokenizer_files
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer as SentencePiece
from rembed_keras.errors import UserError
from rembed_keras.interop.huggingface.tokenizer import write_tokenizer
from rembed_keras.interop.spm import from_deberta, from_fairseq

VOCABULARY = "vocab.txt"
THEIRS = ("sentencepiece.model", "tokenizer.model", "tokenizer.json", VOCABULARY)
REWRITTEN = {"sentencepiece.bpe.model": from_fairseq, "spm.model": from_deberta}  # which number pieces in code
FAIRSEQ, DEBERTA = REWRITTEN
SENTENCE_PIECE = (FAIRSEQ, *THEIRS[:2])
ALBERT = "spiece.model"
READ_ROLES = ("cls", "sep", "mask")  # of special pieces that an encoder reads
# settings with which DeBERTa's and ALBERT's own classes leave a text as it is, and what they are where none is said
PLAIN = {
    DEBERTA: {"do_lower_case": (False, False), "split_by_punct": (False, False)},
    ALBERT: {"do_lower_case": (False, True), "keep_accents": (True, False)},
}


def tokenizer_of(source: Path) -> Path | None:
    """The tokenizer's file in a folder; None if there is no usable one."""
    found = next(iter(tokenizer_files(source, (FAIRSEQ, *THEIRS))), None)
    if found is not None and found.name in SENTENCE_PIECE and (whole := found.with_name("tokenizer.json")).exists():
        return found if _is_readable(found) and not _has_others(whole, found) else whole
    found = found or next((source / name for name in PLAIN if _is_plain(source / name)), None)
    return found if found is not None and _is_whole(found) else None


def _is_whole(path):
    """Whether a tokenizer's file is read as its class reads it, with all pieces of the vocabulary, by their roles."""
    if path.name == VOCABULARY:
        return is_berts(path)
    if path.name not in (*SENTENCE_PIECE, ALBERT):
        return True
    added = added_pieces(path)
    special = {role: name for role, name in special_names(path).items() if role in READ_ROLES}
    if not added and not special:
        return True
    try:
        ours = opened_tokenizer(path)
    except UserError:
        if added:
            raise
        return True  # whoever opens it says why it cannot be read
    has_added = all(i < ours.vocabulary_size and ours.piece(i) == each["content"] for i, each in added.items())
    return has_added and all(ours.piece(getattr(ours, f"{role}_id")) == name for role, name in special.items())


def _is_readable(path):
    """Whether a SentencePiece model is a tokenizer with all pieces of the vocabulary, [MASK] among them."""
    try:
        return _is_whole(path)
    except UserError:
        return False


def _has_others(path, model):
    """Whether a `tokenizer.json` has pieces of text that were added to it, or others than the model beside it.

    It is what transformers reads, which keeps the model of old beside a vocabulary that was trimmed or extended.
    """
    parts = read_json(path)
    try:
        vocabulary = parts["model"]["vocab"]
        is_unigram = isinstance(vocabulary, list)
        own = [piece for piece, _ in vocabulary] if is_unigram else [*vocabulary]
        known = {*own}
        if any(not each["special"] and each["content"] not in known for each in parts["added_tokens"]):
            return True
    except (KeyError, TypeError, ValueError):  # it is not read if it need not be
        return False
    return is_unigram and _is_of_others(model, own)


def _is_of_others(model, pieces):
    """Whether a SentencePiece model that can be read has other pieces than these."""
    try:
        ours = opened_tokenizer(model)
    except UserError:
        return False  # whoever opens it says why it cannot be read
    return [ours.piece(i) for i in range(ours.vocabulary_size)] != pieces


def _is_plain(path):
    """Whether a SentencePiece model is a tokenizer by itself, whose text no class changes first."""
    if not path.exists():
        return False
    said = settings(path)
    return all(bool(said.get(key, usual)) is wanted for key, (wanted, usual) in PLAIN[path.name].items())


def copy_tokenizer(path: Path, folder: Path) -> AnyTokenizer:
    """Copies a tokenizer's file into a folder; one whose pieces are numbered in code, as XLM-R's, is rewritten.

    Raises:
        UserError: if it is no tokenizer.
    """
    if path.name not in REWRITTEN:
        return open_tokenizer(open_tokenizer(path).copy_to(folder))
    target = folder / SentencePiece.file_name
    REWRITTEN[path.name](path, target)
    return SentencePiece(target)


def opened_tokenizer(path: Path) -> AnyTokenizer:
    """The tokenizer that `copy_tokenizer` would write of a file, which stays as it is.

    Raises:
        UserError: if it is no tokenizer.
    """
    if path.name not in REWRITTEN:
        return open_tokenizer(path)
    with tempfile.TemporaryDirectory() as folder:
        found = copy_tokenizer(path, Path(folder))
    found.path = path  # for messages: all of it is read
    return found


def place_tokenizer(vocabulary: AnyTokenizer, folder: Path, target_kind: str) -> list[str]:
    """Renames a tokenizer's file to the target's convention.

    Args:
        vocabulary: the tokenizer, whose file is in the folder.
        folder: of the model that is written.
        target_kind: "huggingface", "preset" or "savedmodel".

    Returns:
        Notes.
    """
    if target_kind == "huggingface":
        return write_tokenizer(vocabulary, folder)
    if target_kind == "savedmodel":
        (folder / "assets").mkdir(exist_ok=True)
        os.rename(vocabulary.path, folder / "assets" / vocabulary.file_name)
    return []
