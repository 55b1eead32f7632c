"""Files that are there whole, or as they were before."""

import os
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
