"""The folder of a smoke run, which is emptied when the next one begins, and marked so that no other ever is."""

import shutil

from rembed_keras.errors import UserError
from rembed_keras.training.loop.workdir import Workdir, write_atomically

MARK = "SMOKE.txt"
SAYS = "A smoke run made this folder: nothing in it means anything, and the next smoke run empties it.\n"


def begin_smoke(path: str) -> None:
    """Makes the folder of a smoke run, or empties that of an earlier one.

    Args:
        path: of the folder.

    Raises:
        UserError: for a folder that has anything else, is in use, or cannot be written.
    """
    workdir = Workdir(path)
    try:
        found = [each for each in workdir.path.iterdir() if each.name != ".lock"]
        if found and not (workdir.path / MARK).is_file():
            raise UserError(f"{path} has files that no smoke run made: choose another WORKDIR, or remove it")
        for each in found:
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()
        write_atomically(workdir.path / MARK, SAYS)
    finally:
        workdir.close()
