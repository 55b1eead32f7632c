"""A run's folder belongs to one recipe: `STRATEGY` and `WORKDIR` say where it is computed, sinks where it is watched,
and all else what. A run that is not finished may go on in another precision.

That of a smoke run is emptied when the next one begins, and marked so that no other ever is.
"""

import shutil
from pathlib import Path

from rembed_keras.analysis.pages.records import lines_of
from rembed_keras.errors import UserError
from rembed_keras.training.loop.workdir import Workdir, write_atomically

WHERE = {"WORKDIR", "STRATEGY", "training.run.workdir", "training.run.sinks", "training.pretrain.profile_steps"} | {
    f"training.{stage}.strategy" for stage in ("run", "pretrain", "finetune")
}
PRECISION = {"DTYPE", "FINETUNE_DTYPE"} | {
    f"{owner}.dtype" for owner in ("modeling.Encoder", "training.InitialWeights", "training.finetune")
}
MARK = "SMOKE.txt"
SAYS = "A smoke run made this folder: nothing in it means anything, and the next smoke run empties it.\n"
SINKS = ".sinks."  # in the names of their parameters
LEARNT = ("checkpoints", "finetuned", "finished.json")


def refuse_another_recipe(folder: Path, config: str, takes_other_precision: bool = False) -> None:
    """Checks that a run's folder is of a recipe, if anything was learnt in it.

    Args:
        folder: the run's; a mistake that was found before anything was learnt may be mended.
        config: the resolved recipe, a gin text.
        takes_other_precision: whether `DTYPE` may differ.

    Raises:
        UserError: naming the first binding that differs.
    """
    path = folder / "config.gin"
    if not path.exists() or not any((folder / part).exists() for part in LEARNT):
        return
    there, here = (bindings_in(text) for text in (path.read_text(encoding="utf-8"), config))
    for key in sorted((there.keys() | here.keys()) - (PRECISION if takes_other_precision else set())):
        if there.get(key) != here.get(key):
            raise UserError(
                f"WORKDIR {folder} is of another recipe: {key} is {there.get(key, 'absent')} there and "
                f"{here.get(key, 'absent')} here; choose another WORKDIR"
            )


def bindings_in(config: str) -> dict[str, str]:
    r"""Bindings of a resolved recipe by name, without comments, and without those that say where it is computed, or
    watched.

    >>> bindings_in('SEED = 0  # of the weights\nWORKDIR = "runs/one"')
    {'SEED': '0'}
    """
    return {
        line.name: line.value for line in lines_of(config) if line.name not in WHERE and SINKS not in f".{line.name}"
    }


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
