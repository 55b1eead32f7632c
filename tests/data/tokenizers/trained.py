"""Tokenizers of Hugging Face's library, trained on the Universal Declaration in all languages of the sample."""

import gzip
import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from rembed_keras.data import sample

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UDHR = sorted(sample.declarations_folder().glob("*.txt.gz"))


def lines(path: Path, start: int = 0, stop: int | None = 8) -> list[str]:
    text = gzip.decompress(path.read_bytes()).decode().splitlines()
    return [line for line in text if line.strip()][start:stop]


TEXT = [line for path in UDHR for line in lines(path)]


def word_piece(lowercase: bool = True, strip_accents: bool | None = None) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    made.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=3000, **SHARED))
    return made


def byte_level() -> tokenizers.Tokenizer:
    """BPE over bytes, as RoBERTa's and ModernBERT's."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, **SHARED))
    return made


def unigram() -> tokenizers.Tokenizer:
    """Unigram after NFKC, with U+2581 for spaces, as XLM-R's."""
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.train_from_iterator(TEXT, trainers.UnigramTrainer(vocab_size=2500, unk_token="[UNK]", **SHARED))
    return made


SHARED = {"special_tokens": SPECIAL, "show_progress": False}
KINDS = {"word_piece": word_piece, "byte_level": byte_level, "unigram": unigram}


def write_vocabulary(
    made: tokenizers.Tokenizer, folder: Path, lowercase: bool = True, strip_accents: bool | None = None
) -> Path:
    """Writes the `vocab.txt` of a WordPiece tokenizer with its configuration, and returns its path."""
    pieces = sorted(made.get_vocab().items(), key=lambda pair: pair[1])
    settings = {"do_lower_case": lowercase, "strip_accents": strip_accents}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(piece for piece, _ in pieces) + "\n", encoding="utf-8")
    return folder / "vocab.txt"
