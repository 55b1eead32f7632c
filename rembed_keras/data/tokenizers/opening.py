"""Which tokenizer a file or a folder holds."""

from pathlib import Path

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer

FAST = (".json", ".txt")
FILE_NAMES = ("tokenizer.model", "tokenizer.json")  # of copies, in corpora, presets and runs


def open_tokenizer(path: str | Path) -> AnyTokenizer:
    """The tokenizer of a file: `tokenizer.json` and `vocab.txt` are Hugging Face's, all others SentencePiece's.

    Args:
        path: the file, or a folder that has `tokenizer.model` or `tokenizer.json`.

    Raises:
        UserError: for a file that is no tokenizer.
    """
    path = Path(path)
    if path.is_dir():
        there = [path / name for name in FILE_NAMES if (path / name).exists()]
        path = [*there, path / FILE_NAMES[0]][0]
    if path.suffix not in FAST:
        return Tokenizer(path)
    from rembed_keras.data.tokenizers.fast import FastTokenizer

    return FastTokenizer(path)
