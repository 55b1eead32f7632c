"""Folders that a run has read and does not hold: where they are, also once they were moved together with the run."""

import os
from collections.abc import Mapping
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


def places(note: Mapping[str, Any], run: Path) -> list[Path]:
    """Where a folder of a note may be: its place first, then where it lies from a run that was moved together with it.

    A note of before says its place alone.

    >>> places({"place": "/old/first/corpus", "from_run": "../first/corpus"}, Path("/new/second"))
    [PosixPath('/old/first/corpus'), PosixPath('/new/first/corpus')]
    """
    near = note.get(FROM_RUN)
    beside = [Path(os.path.normpath(run.resolve() / near))] if isinstance(near, str) and "\0" not in near else []
    return [run / note[PLACE], *beside]
