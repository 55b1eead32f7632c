"""Folders that a run has read and does not hold: where they are, also once they were moved together with the run."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PLACE, FROM_RUN = "place", "from_run"  # in what a run keeps of a folder: where it is, and how it lies from the run


def note_of(folder: Path, run: Path) -> dict[str, str]:
    """What a run keeps of a folder, to find it again.

    Args:
        folder: the folder.
        run: the run's.

    >>> note_of(Path("/work/runs/first/corpus"), Path("/work/runs/second"))
    {'place': '/work/runs/first/corpus', 'from_run': '../first/corpus'}
    """
    place = folder.resolve()
    return {PLACE: str(place), FROM_RUN: os.path.relpath(place, run.resolve())}


def located(note: Mapping[str, Any], runs: Iterable[Path]) -> Path:
    """Where a folder of a note is: its place, or where it lies from a run that was moved together with it.

    A note of before says its place alone; so does what is returned if there is no such folder.

    Args:
        note: see `note_of`; its place may be within a run, too.
        runs: folders that may be the run's.

    >>> located({"place": "/gone/first/corpus", "from_run": "../usr"}, [Path("/usr")])
    PosixPath('/usr')
    """
    there = (folder for run in runs for folder in _places(note, run) if folder.is_dir())
    return next(there, Path(note[PLACE]))


def _places(note, run):
    """Where a folder of a note may be."""
    near = note.get(FROM_RUN)
    beside = [Path(os.path.normpath(run.resolve() / near))] if isinstance(near, str) and "\0" not in near else []
    return [run / note[PLACE], *beside]
