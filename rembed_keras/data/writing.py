"""Files that are there whole, or as they were before."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file so that it is there whole or as it was before.

    Args:
        path: the file; its folder must be there.
        content: its new content; text is written as UTF-8.

    Raises:
        OSError: if it cannot be written.
    """
    writing = path.with_name(f".{path.name}.writing")
    try:
        with open(writing, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(writing, path)
    finally:
        writing.unlink(missing_ok=True)


@contextlib.contextmanager
def written_together(folder: Path) -> Iterator[Path]:
    """A folder whose files take their places in another once all are written; on failure that stays as it was.

    Args:
        folder: where they belong; it must be there.
    """
    with tempfile.TemporaryDirectory(prefix=".", suffix=".writing", dir=folder) as writing:
        yield Path(writing)
        for path in sorted(Path(writing).iterdir()):
            os.replace(path, folder / path.name)
