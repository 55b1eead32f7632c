"""What a corpus's `manifest.json` says, checked before anything is read by it.

A language is a stream of tokens, over one file or several; what is held out of it is a stream of its own.
"""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from rembed_keras.data.prepare.shards import BLOCK
from rembed_keras.data.tokenizers.opening import FILE_NAMES
from rembed_keras.errors import UserError

FORMATS = (1, 2)  # that can be read; in the first a language is one file of its own
DTYPES = ("<u2", "<u4")  # of tokens


class Shard(NamedTuple):
    """Part of a stream: its file, its first block there, and the index of its first token."""

    file: str
    first_block: int
    begin: int


def shards_of(stream: dict) -> list[Shard]:
    """The shards of a stream in the manifest, in order."""
    found, begin = [], 0
    for shard in stream.get("shards") or [stream]:
        found.append(Shard(shard["file"], shard.get("first_block", 0), begin))
        begin += shard["tokens"]
    return found


def checksum(manifest: dict) -> str:
    """Checksum, in hexadecimal digits, of what a manifest says of the tokens: from which text, and by which tokenizer.

    How files share them is left out: the tokens are the same.
    """
    counts = {
        name: [about["tokens"], about.get("held_out", {}).get("tokens")]
        for name, about in manifest["languages"].items()
    }
    files = {name: manifest["files"].get(name) for name in (*FILE_NAMES, "counts.npy")}
    said = [manifest.get("settings"), manifest.get("sources"), counts, files]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def check_manifest(manifest: dict, path: Path) -> None:
    """Validates a manifest before it is used: its files stand beside it, and token counts are possible.

    Raises:
        UserError: for a manifest that was damaged, or was written by another version.
    """
    if manifest.get("format") not in FORMATS:
        raise UserError(f"corpus {path.parent} was written by another version of rembed_keras: prepare it again")
    languages, files = manifest.get("languages"), manifest.get("files")
    fault = (
        not isinstance(files, dict)
        or any(Path(name).name != name or name == ".." for name in files)
        or manifest.get("dtype") not in DTYPES
        or manifest.get("block") != BLOCK
    )
    if fault or not isinstance(languages, dict) or not languages:
        raise UserError(f"{path} is damaged: remove the corpus and prepare it again")
    for language, about in languages.items():
        streams = [about, about["held_out"]] if isinstance(about, dict) and "held_out" in about else [about]
        if not all(isinstance(stream, dict) and _is_stream(stream, files) for stream in streams):
            raise UserError(f"{path} is damaged at {language}: remove the corpus and prepare it again")


def _is_stream(about, files):
    """Whether the entry of a stream is consistent: its shards are listed files whose token counts add up."""
    shards = about.get("shards") or [about]
    if not isinstance(shards, list) or not all(isinstance(shard, dict) for shard in shards):
        return False
    counts = [
        about.get("tokens"),
        *(number for each in shards for number in (each.get("tokens"), each.get("first_block", 0))),
    ]
    if not all(type(count) is int and 0 <= count < 2**63 for count in counts) or not counts[0]:
        return False
    names = [shard.get("file") for shard in shards]
    are_there = all(isinstance(name, str) and name in files for name in names)
    return are_there and sum(shard["tokens"] for shard in shards) == counts[0]
