"""What a run is made on: versions, the machine, the backend, and the commit of this package."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from rembed_keras import __version__

WATCHED = (
    "keras",
    "tensorflow",
    "jax",
    "keras-hub",
    "gin-config",
    "grain",
    "sentencepiece",
    "numpy",
    "safetensors",
)


def environment() -> dict[str, Any]:
    """What a run keeps as `environment.json`; without a commit where there is none."""
    import keras

    versions = {"rembed_keras": __version__}
    for package in WATCHED:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    known = commit()
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "backend": keras.config.backend(),
        **({} if known is None else {"commit": known}),
        "versions": versions,
    }


def commit() -> str | None:
    """The commit of this package's working tree, "-dirty" after it if files were changed; None without git.

    An installed package has none, although its environment may stand in a repository, which is then of something else.
    """
    return _commit_of(Path(__file__))


@functools.cache  # what a process computes with stays as it was when it began; a study asks at each of its runs
def _commit_of(here: Path) -> str | None:
    git = ["git", "-C", str(here.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], capture_output=True, check=True)
        command = [*git, "describe", "--always", "--dirty", "--abbrev=40"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
