"""A run's folder belongs to one recipe: `STRATEGY` and `WORKDIR` say where it is computed, sinks where it is watched,
and all else what. A run that is not finished may go on in another precision. The folder keeps the recipe twice, since
`config.gin` may be edited, and run where it is: it would be compared with itself.

That of a smoke run is emptied when the next one begins, and marked so that no other ever is, and that no other run
works in it.
"""

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from rembed_keras.analysis.pages.records import SMOKE, lines_of
from rembed_keras.data.json_files import understood
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.sinks.sink import IDENTITY

WHERE = {"WORKDIR", "STRATEGY", "training.run.workdir", "training.run.sinks", "training.pretrain.profile_steps"} | {
    f"training.{stage}.strategy" for stage in ("run", "pretrain", "finetune")
}
WHERE |= {f"training.prepare.{name}" for name in ("processes", "shard_megabytes")}  # the tokens stay
PRECISION = {"DTYPE", "FINETUNE_DTYPE"} | {
    f"{owner}.dtype" for owner in ("modeling.Encoder", "training.InitialWeights", "training.finetune")
}
SAYS = "A smoke run made this folder: nothing in it means anything, and the next smoke run empties it.\n"
SINKS = ".sinks."  # in the names of their parameters
LEARNT = (  # patterns; a folder of checkpoints may be there without any
    *("checkpoints/step-*", "finetuned/**/step-*", "finetuned/**/failed.json"),
    *("submission", "scores.json", "layers.json", "finished.json"),
)
STAGES = "stages.json"  # which stages of a run of several pre-trainings have begun, and are done
# what is written before anything is learnt, and read later; by an identity sinks keep the numbers that they have
BEFORE = (
    *("metrics.jsonl", "ledger.json", "initial_weights.json", "corpus.json", "operative_config.gin"),
    *(STAGES, IDENTITY),
)
READ, KEPT = "config.gin", ".recipe.gin"  # the recipe, for people, who may edit it, and for what compares it
KNOB = re.compile(r"%(\w+)")  # where one is used
IMPORT = re.compile(r"(?:from (?P<parent>\S+) )?import (?P<module>\S+)(?: as (?P<name>\S+))?")  # of a resolved recipe


def refuse_another_recipe(folder: Path, config: str, takes_other_precision: bool = False) -> None:
    """Checks that a run's folder is of a recipe, if anything was learnt in it.

    Args:
        folder: the run's; a mistake that was found before anything was learnt may be mended.
        config: the resolved recipe, a gin text.
        takes_other_precision: whether `DTYPE` may differ.

    Raises:
        UserError: naming the first binding that differs, or the first module that is imported under one name.
    """
    if not has_learnt(folder):
        return
    differs = _difference(folder, config, PRECISION if takes_other_precision else set())
    if differs is not None:
        name, there, here = differs
        raise UserError(
            f"WORKDIR {folder} is of another recipe: {name} is {there} there and {here} here; choose another WORKDIR"
        )


def forget_another_recipe(folder: Path, config: str) -> None:
    """Removes what another recipe left in a run's folder that this one would take for its own.

    Args:
        folder: the run's, in which nothing was learnt if it is of another recipe; see `refuse_another_recipe`.
        config: the resolved recipe, a gin text.
    """
    if not has_learnt(folder) and _difference(folder, config, set()) is not None:
        for name in BEFORE:
            (folder / name).unlink(missing_ok=True)
        for name in ("finetuned", "tensorboard"):
            shutil.rmtree(folder / name, ignore_errors=True)


def keep_recipe(folder: Path, config: str) -> None:
    """Writes the recipe of a run into its folder, for people and for the other functions.

    Args:
        folder: the run's.
        config: the resolved recipe, a gin text.
    """
    for name in (READ, KEPT):
        write_atomically(folder / name, config)


def has_learnt(folder: Path) -> bool:
    """Whether anything was learnt in a run's folder, which then stays that of its recipe."""
    return any(True for pattern in LEARNT for _ in folder.glob(pattern))


def _difference(folder, config, but):
    """The first name that means another thing in the recipe of a folder, what it is there, and here; None if none does.

    It is a binding, unless it is one of `but`, or a module that is imported under one name.
    """
    path = next((path for path in (folder / KEPT, folder / READ) if path.exists()), None)
    if path is None:
        return None
    with understood(path, "a recipe"):
        texts = path.read_text(encoding="utf-8"), config
    there, here = (bindings_in(text, but) for text in texts)
    for key in sorted(there.keys() | here.keys()):
        if there.get(key) != here.get(key):
            return key, there.get(key, "absent"), here.get(key, "absent")
    there, here = map(imports_in, texts)
    both = sorted(there.keys() & here.keys())  # what one alone has, its bindings alone name
    return next(((name, there[name], here[name]) for name in both if there[name] != here[name]), None)


def bindings_in(config: str, but: Collection[str] = ()) -> dict[str, str]:
    r"""Bindings of a resolved recipe by name, without comments, and without those that say where it is computed, or
    watched, and knobs that these alone use.

    Args:
        config: the recipe, a gin text.
        but: names of others to leave out, in any scope.

    >>> bindings_in('SEED = 0  # of the weights\nWORKDIR = "runs/one"\nN = 2\ntraining.prepare.processes = %N')
    {'SEED': '0'}
    """
    lines = {line.name: line.value for line in lines_of(config)}
    where = {name for name in lines if says_where(name) or _whole(name) in but}
    where |= _knobs_of(lines, where) - _knobs_of(lines, lines.keys() - where)
    return {name: value for name, value in lines.items() if name not in where}


def _knobs_of(lines, names):
    """The knobs that some bindings use, through others too."""
    found: set[str] = set()
    left = [name for name in names if "." in name]
    while left:
        new = {*KNOB.findall(lines.get(left.pop(), ""))} - found
        found, left = found | new, [*left, *new]
    return found


def says_where(name: str) -> bool:
    """Whether a binding says where a run is computed, or watched, and not what it computes."""
    return _whole(name) in WHERE or SINKS in f".{name.replace('/', '.')}"


def _whole(name):
    """The name of a binding without its scope."""
    return name.rpartition("/")[2]


def imports_in(config: str) -> dict[str, str]:
    r"""The modules of a resolved recipe, by the names that what `bindings_in` gives calls them by.

    >>> text = "import mine as parts\nfrom rembed_keras import data\nfrom rembed_keras.training import sinks\n"
    >>> imports_in(text + "one/data.Mixture.seed = 0\ntraining.run.sinks = [@sinks.TensorBoard()]\nX = @parts.Own()")
    {'parts': 'mine', 'data': 'rembed_keras.data'}
    """
    statements = filter(None, map(IMPORT.fullmatch, config.split("\n")))
    modules = {
        found["name"] or found["module"]: f"{found['parent']}.{found['module']}" if found["parent"] else found["module"]
        for found in statements
    }
    said = "\n".join(text for binding in bindings_in(config).items() for text in binding)
    named = set(re.findall(r"(?<![\w.])(\w+)\.", said))
    return {name: module for name, module in modules.items() if name in named}


def refuse_smoke(folder: Path) -> None:
    """Checks that a run's folder is not that of a smoke run, which the next one empties.

    Raises:
        UserError: if it is.
    """
    if (folder / SMOKE).is_file():
        raise UserError(f"WORKDIR {folder} is of a smoke run, see {SMOKE} in it: remove the folder, or name another")


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
        if found and not (workdir.path / SMOKE).is_file():
            raise UserError(f"{path} has files that no smoke run made: choose another WORKDIR, or remove it")
        for each in found:
            if each.name == SMOKE:
                continue  # until the end: what is left if this is stopped is a smoke run's still
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()
        write_atomically(workdir.path / SMOKE, SAYS)
    finally:
        workdir.close()
