"""Presets that come with the package, by name: trained encoders that `from_preset` opens without a network.

Each is a folder of package data, as `rembed pack` writes it. Modeling looks here for every name that is given to
`from_preset`, so that a misspelled one is answered at once, and not by a download that fails.
"""

import contextlib
import itertools
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rembed_keras import compat
from rembed_keras.errors import UserError, did_you_mean, shortened

FOLDER = Path(__file__).parent.parent.parent / "presets"
CARD = "README.md"
CONFIG, TASK = "config.json", "task.json"
BARE = "tokenizer.model"  # which the commands write beside keras-hub's own copy, and read before it


def names() -> list[str]:
    """The names of the presets that come with the package."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def described() -> dict[str, dict]:
    """The presets that come with the package as keras-hub lists its own: by name, what each is and where."""
    return {name: {"metadata": _about(FOLDER / name), "kaggle_handle": str(FOLDER / name)} for name in names()}


def _about(folder):
    card = folder / CARD
    lines = card.read_text(encoding="utf-8").splitlines() if card.is_file() else []
    below = itertools.dropwhile(lambda line: not line.startswith("# "), lines)  # the title
    said = [line for line in below if line and not line.startswith("#")]
    return {"description": said[0] if said else folder.name, "path": str(folder)}


def folder_of(place: str | Path) -> Path:
    """The folder that is meant by a place: a folder, or else that of the preset that comes with the package under it.

    >>> folder_of("runs/quickstart").as_posix(), folder_of("rembed_small") == FOLDER / "rembed_small"
    ('runs/quickstart', True)
    """
    path = Path(place)
    return FOLDER / path if not path.is_dir() and str(path) in names() else path


def name_of(folder: Path) -> str:
    """What leads back to a folder: its absolute path, or the name of a preset, if it comes with the package."""
    path = folder.resolve()
    return path.name if path.parent == FOLDER.resolve() else str(path)


def task_in(preset: str) -> dict:
    """What a preset, a folder or a handle, says of the model that an encoder is in; nothing where it has none.

    Raises:
        UserError: for a `task.json` that is none.
    """
    hub = compat.hub_presets()
    if not hub.check_file_exists(preset, TASK):
        return {}
    try:
        task = hub.load_json(preset, TASK)
        return task | {"config": dict(task["config"])}
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{preset}/{TASK} describes no model") from None


@contextlib.contextmanager
def replacing(folder: str | os.PathLike) -> Iterator[str]:
    """A temporary folder for a preset, whose files then take the place of an earlier preset's in `folder`.

    So what cannot be written whole, as on a full disk, leaves the earlier preset as it is. It is within `folder`, which
    may be another file system than what is around it.
    """
    place = Path(folder)
    is_new = not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".writing-") as writing:
            yield writing
            _clear(place)
            files = [file.relative_to(writing) for file in Path(writing).rglob("*") if file.is_file()]
            for file in sorted(files, key=lambda file: file == Path(CONFIG)):  # it makes a preset of the others
                (place / file).parent.mkdir(parents=True, exist_ok=True)
                os.replace(writing / file, place / file)
    finally:
        if is_new and not any(place.iterdir()):
            place.rmdir()


def _clear(place):
    """Removes what an earlier preset in a folder has, which would be taken for the next one's."""
    if not (place / CONFIG).is_file() or '"registered_name"' not in (place / CONFIG).read_text(encoding="utf-8"):
        return
    for name in (CONFIG, TASK, "task.weights.h5", "preprocessor.json", "tokenizer.json", BARE):
        (place / name).unlink(missing_ok=True)
    for weights in place.glob("model*.weights.*"):  # keras-hub would read those of one file before those of shards
        weights.unlink()
    shutil.rmtree(place / "assets/tokenizer", ignore_errors=True)


def located(preset: str | os.PathLike) -> str:
    """What keras-hub is asked for: the folder that is meant by a preset's name, see `folder_of`, or a handle.

    Raises:
        UserError: for what is none of these.

    >>> located("rembed_smal")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: there is no preset 'rembed_smal': it is no folder, and no handle such as \
hf://user/model; with the package comes rembed_small; did you mean rembed_small?
    """
    known, preset = names(), os.fspath(preset) if isinstance(preset, os.PathLike) else preset  # keras-hub takes no path
    if preset in known:  # not by that name, which keras-hub would look up before it looks for a folder
        return str(folder_of(preset).absolute())
    if not isinstance(preset, str) or "://" in preset or Path(preset).is_dir():
        return preset
    ours = f"; with the package comes {', '.join(known)}" if known else ""
    raise UserError(
        f"there is no preset {shortened(preset)}: it is no folder, and no handle such as hf://user/model"
        f"{ours}{did_you_mean(preset, known)}"
    )


def located_model(preset: str | os.PathLike) -> str:
    """As `located`, of a model.

    Raises:
        UserError: for what is none of these, a run, or a model in Hugging Face's format, with the command that makes a
            preset of it: keras-hub would take it for one of its own.
    """
    place, hub = located(preset), compat.hub_presets()
    kind = None
    if hub.check_file_exists(place, CONFIG):
        config = hub.load_json(place, CONFIG)
        kind = "huggingface" if "registered_name" not in config and "model_type" in config else None
    elif (Path(place) / "checkpoints").is_dir():
        kind = "run"
    if kind is not None:
        said = {"huggingface": "a model in Hugging Face's format", "run": "the folder of a run"}[kind]
        source = shlex.quote(place.removeprefix("hf://"))
        raise UserError(
            f"{preset} is {said}, and no preset: make one by `rembed convert {source} PRESET --from {kind} --to preset`"
        )
    return place
