"""The first paragraphs of every language, to see whether a recipe runs before all of its text is prepared."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rembed_keras.data.prepare.sources import Source, find_source
from rembed_keras.errors import UserError

PART_BYTES = 64_000_000  # of a file: where another look into it begins
MADE_OF = "made_of.json"  # beside the text of an excerpt


def write_excerpt(text_dir: str | Path, folder: Path, megabytes: float, languages: Sequence[str] | None = None) -> Path:
    """Writes a folder of `<language>.txt` with the first paragraphs of every language.

    An excerpt that is there is kept if the files it was made of and the settings are the same, and else made again.

    Args:
        text_dir: a source of text, see `sources.find_source`; no more of it is read than is taken, but that documents
            which may be of any language are read to their end, or until all `languages` have their share.
        folder: where to write.
        megabytes: of text in all, in equal shares; a language keeps one paragraph at least.
        languages: that are read; all by default.

    Returns:
        The folder.

    Raises:
        UserError: for a source that is not there, has no text of a language, or has one that cannot name a file; or a
            folder that cannot be written.
    """
    source = find_source(text_dir, PART_BYTES, languages)
    made_of = _made_of(source, megabytes, languages)
    if (folder / MADE_OF).is_file() and (folder / MADE_OF).read_text(encoding="utf-8") == made_of:
        return folder
    found = _first(source, max(megabytes * 1e6, 1))  # with any size there is a paragraph of each language
    source.check_found(found)
    strange = next((name for name in found if name.startswith(".") or not {"/", "\0"}.isdisjoint(name)), None)
    if strange is not None:
        raise UserError(f"language {strange!r} cannot be the name of a file, which an excerpt has of each: rename it")
    writing = folder.with_name(f".{folder.name}.writing")
    try:
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        for language, paragraphs in found.items():
            text = "".join(f"{paragraph}\n" for paragraph in paragraphs)
            (writing / f"{language}.txt").write_text(text, encoding="utf-8")
        (writing / MADE_OF).write_text(made_of, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(writing, folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return folder


def _made_of(source: Source, megabytes: float, languages: Sequence[str] | None) -> str:
    """What an excerpt depends on; files by their size and time, since a checksum would read all of them."""
    states = {name: path.stat() for name, path in source.files.items()}
    made_of = {
        "files": {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()},
        "sources": {name: dict(facts) for name, facts in source.facts.items()},
        "megabytes": megabytes,
        "languages": None if languages is None else sorted({*languages}),
    }
    return json.dumps(made_of, indent=1, sort_keys=True)


def _first(source: Source, size: float) -> dict[str, list[str]]:
    """The first paragraphs by language, in equal shares of a size in bytes."""
    own = [part.language for part in source.parts]
    known = {language for language in own if language is not None} if None not in own else {*source.expected}
    found: dict[str, list[str]] = {}
    taken: Counter = Counter()
    for part, its_own in zip(source.parts, own, strict=True):
        for language, paragraph in part.read():
            found.setdefault(language, [])
            share = size / max(len(known), len(found))
            if taken[language] < share:
                found[language].append(paragraph)
                taken[language] += len(paragraph.encode("utf-8"))
            elif its_own is not None or (known and all(taken[each] >= share for each in known)):
                break
    share = size / max(len(known), len(found), 1)
    return {language: [*_up_to(share, paragraphs)] for language, paragraphs in found.items()}


def _up_to(size: float, paragraphs: Sequence[str]) -> Iterator[str]:
    """Yields paragraphs until they have a size: where languages are found late, too much was taken of the first."""
    taken = 0
    for paragraph in paragraphs:
        if taken >= size:
            return
        yield paragraph
        taken += len(paragraph.encode("utf-8"))
