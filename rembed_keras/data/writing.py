"""Files that are there whole, or as they were before, and folders that one process at a time writes."""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rembed_keras.errors import UserError


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

    What a process that was killed has left there is removed first.

    Args:
        folder: where they belong; it must be there.
    """
    for left in folder.glob(".*.writing/"):
        with contextlib.suppress(FileNotFoundError), descriptor_of(left) as lock:  # another process has just ended
            if locked(lock):  # and so nobody writes there
                shutil.rmtree(left)
    with (
        tempfile.TemporaryDirectory(prefix=".", suffix=".writing", dir=folder) as writing,
        descriptor_of(writing) as lock,
    ):
        locked(lock)
        yield Path(writing)
        for path in sorted(Path(writing).iterdir()):
            os.replace(path, folder / path.name)


@contextlib.contextmanager
def descriptor_of(folder: str | Path) -> Iterator[int]:
    """The descriptor of a folder, to be locked or flushed.

    Args:
        folder: the folder.

    Raises:
        OSError: if it cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def locked(lock: IO | int) -> bool:
    """Locks an open file, or a folder, until it is closed, if no other process has locked it.

    File systems without locks, as some of clusters, do not say who has: all may write then.

    Args:
        lock: the file, or its descriptor.

    Returns:
        Whether no other process is known to have locked it.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def check_access(path: str | Path, folder: Path) -> None:
    """Checks that a folder, in which a path is to be written, is not read-only.

    Raises:
        UserError: if it is.
    """
    if not os.access(folder, os.W_OK):
        raise UserError(f"{path} cannot be written: {folder} is read-only")


def check_folder_access(path: str | Path) -> None:
    """Checks that a folder can be made, or written if it is there, before the work that it is for is done.

    Raises:
        UserError: if it would be in a folder that is read-only, or within a file.
    """
    there = next(place for place in (Path(path), *Path(path).parents) if place.exists())
    if not there.is_dir():
        raise UserError(f"{path} cannot be written: {os.strerror(errno.ENOTDIR)}")
    check_access(path, there)
