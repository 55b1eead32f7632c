"""What sentence-transformers says, in `modules.json`, of a folder's encoder: what follows it, of which none is read."""

from pathlib import Path

from rembed_keras.data.json_files import read_json
from rembed_keras.interop.huggingface.layout import PICKLED, WHOLE

MODULES = "modules.json"
MODE = "pooling_mode_"  # what the names of settings begin with
OF_ENCODE = {"mean_tokens", "cls_token"}  # the modes that `encode` has


def notes_on_modules(folder: Path) -> list[str]:
    """Notes on layers after the encoder, as Dense, whose weights are not read, and on another pooling than the usual.

    Args:
        folder: of the model.

    Raises:
        UserError: for a file that is not JSON.
    """
    path, notes = folder / MODULES, []
    said = read_json(path, list) if path.exists() else []
    names = [name for each in said if isinstance(each, dict) and (name := str(each.get("path") or ""))]
    own = [name for name in names if any((folder / name / file).exists() for file in (WHOLE, PICKLED))]
    if own:
        notes.append(f"left out are layers that sentence-transformers has after it: {', '.join(own)}")
    modes = {mode for name in names for mode in _modes(folder / name / "config.json")}
    if modes == {"cls_token"}:
        notes.append("sentence-transformers takes the first token for a text: encode with pooling='first'")
    elif modes - OF_ENCODE or len(modes) > 1:
        notes.append(f"sentence-transformers pools by {' and '.join(sorted(modes))}, which encode does not")
    return notes


def _modes(path):
    """How a module pools the states of tokens; nothing of one that does not."""
    said = read_json(path) if path.exists() else {}
    return [key.removeprefix(MODE) for key, value in said.items() if key.startswith(MODE) and value is True]
