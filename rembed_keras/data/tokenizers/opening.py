"""Which tokenizer a file or a folder holds."""

from collections.abc import Sequence
from pathlib import Path

from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer

FAST = (".json", ".txt")
FILE_NAMES = ("tokenizer.model", "tokenizer.json")  # of copies, in corpora, presets and runs
ASSETS = "assets/tokenizer"  # where keras-hub has a preset's tokenizer; its tokenizer.json is then a configuration


def tokenizer_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of some names that a folder has, or the preset that it is."""
    own = [folder / name for name in names]
    assets = [folder / ASSETS / name for name in names]
    there = [path for path in (*own, *assets) if path.exists()]
    is_preset = any(path.parent != folder for path in there)
    return [path for path in there if not is_preset or path != folder / FILE_NAMES[1]]


def open_tokenizer(path: str | Path) -> AnyTokenizer:
    """The tokenizer of a file: `tokenizer.json` and `vocab.txt` are Hugging Face's, all others SentencePiece's.

    Args:
        path: the file, or a folder, or preset, that has `tokenizer.model` or `tokenizer.json`.

    Raises:
        UserError: for a file that is no tokenizer.
    """
    path = Path(path)
    if path.is_dir():
        path = next(iter(tokenizer_files(path, FILE_NAMES)), path / FILE_NAMES[0])
    if path.suffix not in FAST:
        return Tokenizer(path)
    from rembed_keras.data.tokenizers.fast import FastTokenizer

    return FastTokenizer(path)
