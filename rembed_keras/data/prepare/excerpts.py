"""The first paragraphs of every language, to see whether a recipe runs before all of its text is prepared."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from rembed_keras.data.prepare.sources import Source, find_source

PART_BYTES = 64_000_000  # of a file: where another look into it begins


def write_excerpt(text_dir: str | Path, folder: Path, megabytes: float, languages: Sequence[str] | None = None) -> Path:
    """Writes a folder of `<language>.txt` with the first paragraphs of every language, unless it is there.

    Args:
        text_dir: a source of text, see `sources.find_source`; no more of it is read than is taken.
        folder: where to write.
        megabytes: of text in all, in equal shares; a language keeps one paragraph at least.
        languages: that are read; all by default.

    Returns:
        The folder.

    Raises:
        UserError: for a source that is not there, or has no text.
    """
    if folder.is_dir():
        return folder
    source = find_source(text_dir, PART_BYTES, languages)
    writing = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir(parents=True)
    for language, paragraphs in _first(source, megabytes * 1e6).items():
        text = "".join(f"{paragraph}\n" for paragraph in paragraphs)
        (writing / f"{language}.txt").write_text(text, encoding="utf-8")
    os.rename(writing, folder)
    return folder


def _first(source: Source, size: float) -> dict[str, list[str]]:
    """The first paragraphs by language."""
    languages = {language for part in source.parts for language, _ in [next(iter(part.read()), ("", ""))]}
    share = size / max(1, len(languages))
    found: dict[str, list[str]] = {}
    left: dict[str, float] = {}
    for part in source.parts:
        for language, paragraph in part.read():
            if left.setdefault(language, share) <= 0:
                break
            found.setdefault(language, []).append(paragraph)
            left[language] -= len(paragraph.encode("utf-8"))
    return found
