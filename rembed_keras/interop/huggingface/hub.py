"""Models on a hub: what a name stands for is downloaded, and a folder is uploaded with a card that says what it is."""

import errno
import json
import os
import re
from functools import partial
from pathlib import Path

from rembed_keras import modeling
from rembed_keras.data.json_files import read_json
from rembed_keras.errors import UserError, first_line
from rembed_keras.modeling.saving.presets import task_in

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # OWNER/NAME
CARD = "README.md"
# of a model, its tokenizer and its preset; weights of other frameworks stay where they are
WANTED = ["*.json", "*.txt", "*.model", "*.safetensors", "*.weights.h5", "assets/**"]
PICKLED = ["pytorch_model*.bin"]  # the same weights again where there are those in `WHOLE`
WHOLE = "model*.safetensors"
OPENED = {  # by format: the library, and how it opens the model
    "preset": ("keras-hub", 'import rembed_keras\n\nencoder = rembed_keras.Encoder.from_preset("hf://{name}")'),
    "huggingface": (
        "transformers",
        'from transformers import AutoModel\n\nmodel = AutoModel.from_pretrained("{name}")',
    ),
}
OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
INSTALL = "pip install 'rembed-keras[hub]'"


def fetched(source: str) -> str:
    """The folder of a model: that which is named, or what a hub has under the name, in the hub's cache.

    Args:
        source: a folder, or OWNER/NAME of a hub where there is no folder OWNER.

    Raises:
        UserError: saying what to do, if it is no folder and cannot be downloaded.
    """
    if Path(source).exists() or not NAME.fullmatch(source) or Path(source).parent.exists():
        return source
    hub = _hub(f"there is no folder {source}; to download it")
    try:
        download = partial(hub.snapshot_download, source, endpoint=_endpoint(), cache_dir=_cache())
        folder = download(allow_patterns=WANTED)
        if not any(Path(folder).glob(WHOLE)):
            folder = download(allow_patterns=PICKLED)
        return str(folder)
    except Exception as error:  # noqa: BLE001 - those of its HTTP library, which is another by version, too
        if isinstance(error, hub.errors.RepositoryNotFoundError):
            raise UserError(f"there is no folder {source}, and no public model of this name on the hub") from None
        if isinstance(error, OSError) and error.errno in OF_DISK:
            raise UserError(f"{source} cannot be kept in the hub's cache: {error.strerror}") from None
        if isinstance(error.__cause__, hub.errors.HfHubHTTPError):  # of a hub that is reached, and busy or broken
            raise UserError(f"{source} cannot be downloaded: {first_line(error.__cause__)}") from None
        advice = f"download it where there is a network, `hf download {source} --local-dir FOLDER`, and name FOLDER"
        raise UserError(f"there is no folder {source}, and the hub cannot be reached: {advice}") from None


def push(folder: str | Path, name: str) -> str:
    """Uploads a folder, with its card, to the hub's repository `name`, which is made if it is not there.

    Returns:
        The address of the commit.

    Raises:
        UserError: if the hub cannot be reached, or does not take it.
    """
    check_name(name)
    hub = _hub("to push a model")
    api = hub.HfApi(endpoint=_endpoint())
    try:
        api.create_repo(name, exist_ok=True)
        return str(api.upload_folder(repo_id=name, folder_path=folder, commit_message="Add the model").commit_url)
    except Exception as error:  # noqa: BLE001 - those of its HTTP library, which is another by version, too
        reason = first_line(error)
        raise UserError(f"{name} was not pushed: {reason}; {folder} is whole, and can be pushed again") from None


def check_name(name: str) -> None:
    """Refuses what is no name of a repository.

    Raises:
        UserError: if it is not OWNER/NAME.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"{name!r} is no repository of a hub: it must be OWNER/NAME")


def contents(folder: str | Path) -> list[tuple[str, int]]:
    """The files that `push` uploads, each with its bytes."""
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in paths]


def write_card(folder: str | Path, name: str, kind: str, parameters: int) -> None:
    """Writes the model card, unless the folder has one.

    Args:
        folder: of the model.
        name: of its repository.
        kind: its format, "preset" or "huggingface".
        parameters: of the encoder, which are kept.
    """
    path = Path(folder) / CARD
    if path.exists():
        return
    library, opened = OPENED[kind]
    about, opened = f"An encoder of {parameters:,} parameters", opened.format(name=name)
    of_class = task_in(str(folder)).get("class_name", "Encoder")
    if hasattr(modeling, of_class) and of_class != "Encoder":
        about = f"A model for a task, {of_class}, whose encoder has {parameters:,} parameters"
        opened = f'from rembed_keras.modeling import {of_class}\n\nmodel = {of_class}.from_preset("hf://{name}")'
    config = read_json(Path(folder) / "config.json")
    sizes = json.dumps(config.get("config", config), indent=1, default=str)
    path.write_text(
        f"---\nlibrary_name: {library}\ntags: [rembed-keras, encoder]\n---\n\n# {name}\n\n"
        f"{about}, written by rembed_keras.\n\n```python\n{opened}\n```\n\n"
        "What it was trained on, its scores and its limits: to be said by who publishes it, and its licence too.\n\n"
        f"## Configuration\n\n```json\n{sizes}\n```\n",
        encoding="utf-8",
    )


def _hub(purpose: str):
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(f"{purpose}, install huggingface_hub: {INSTALL}") from None
    return huggingface_hub


def _endpoint() -> str | None:
    """Of another hub than the public one."""
    return os.environ.get("HF_ENDPOINT")


def _cache() -> str | None:
    return os.environ.get("HF_HUB_CACHE")
