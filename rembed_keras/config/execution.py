"""From a checked recipe to a run: gin binds the recipe's text and calls its root, `training.run`."""

import importlib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import gin

from rembed_keras import compat
from rembed_keras.config.backend import import_framework
from rembed_keras.config.forecasts import tokens_by_task
from rembed_keras.config.initial import check_start
from rembed_keras.config.ledgers import PREPARE, RUN, ledger_of, pretraining, stages
from rembed_keras.config.recipes.parse import override
from rembed_keras.config.recipes.recipe import ROOT, Recipe
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.config.sharing import made_once
from rembed_keras.config.terms import check_teachers
from rembed_keras.errors import UserError


def run(recipe: Recipe, chosen: Sequence[int] | None = None) -> None:
    """Runs a recipe's stages on its workdir.

    Args:
        recipe: what to run.
        chosen: which of its stages, by number, see `stages_named`; all by default. The folder is then not finished, and
            another command on it goes on.

    Raises:
        UserError: for a KERAS_BACKEND that this package does not run on, and as the stages do.
    """
    ledger = ledger_of(recipe)  # what cannot be built is found before anything is imported
    check_teachers(recipe, stages(recipe))
    check_start(recipe, pretraining(recipe))
    training = bound(recipe)
    _, _, name = ROOT.rpartition(".")
    record = training.RunRecord(recipe.text(), gin.operative_config_str, ledger, tokens_by_task(recipe))
    with made_once(recipe):
        call(getattr(training, name), record=record, chosen=chosen)


def stages_until(recipe: Recipe, name: str) -> list[int]:
    """The numbers of a recipe's stages up to one.

    Raises:
        UserError: for a stage that the recipe does not list.
    """
    return [*range(stages_named(recipe, name)[-1] + 1)]


def stages_named(recipe: Recipe, names: str) -> list[int]:
    """The numbers of some of a recipe's stages, in its order.

    Args:
        recipe: lists them.
        names: separated by commas, as `pretrain` or with their scope, `topics/finetune`.

    Raises:
        UserError: for a stage that the recipe does not list.
    """
    listed = [_names(stage) for stage in stages(recipe)]
    asked = [name.strip() for name in names.split(",") if name.strip()]
    known = list(dict.fromkeys(each[-1] for each in listed))
    strange = next((name for name in asked if not any(name in each for each in listed)), None)
    if strange is not None or not asked:
        raise UserError(f"the recipe has no stage {strange!r}: its stages are {', '.join(known)}")
    return [number for number, each in enumerate(listed) if not set(asked).isdisjoint(each)]


def _names(stage):
    """What a stage can be called: without its scope, and with it."""
    _, _, name = stage.target.rpartition(".")
    return [name, f"{stage.scope}/{name}"] if stage.scope else [name]


def bound(recipe: Recipe) -> ModuleType:
    """Gives a recipe to gin, and returns the module of the stages."""
    import_framework()
    from rembed_keras import training

    give_to_gin(recipe)
    return training


def give_to_gin(recipe: Recipe) -> None:
    """Imports what a recipe names, and binds all that it says.

    Raises:
        UserError: for what cannot be imported or bound.
    """
    for module in recipe.imports.values():
        _load(module)
    gin.clear_config(clear_constants=True)
    try:
        gin.parse_config(recipe.text())
    except (AttributeError, TypeError, ValueError) as error:  # names in packages of others
        raise UserError(f"the recipe cannot be bound: {str(error).splitlines()[0]}") from error


def _load(module):
    """Imports what a recipe names, which may be another's, before gin does."""
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:  # it raises what it likes
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({place.filename}, line {place.lineno})" if Path(place.filename).is_file() else ""
        raise UserError(f"the recipe imports {module}, which cannot be imported: {reason}{where}") from error


def call(function: Callable, **arguments):
    """Calls a function with what is bound to it.

    Raises:
        UserError: for a parameter without a default that is not bound.
    """
    try:
        return gin.get_configurable(function)(**arguments)
    except TypeError as error:
        missing = compat.unbound_arguments(error)
        if missing is None:
            raise
        name, lacks = missing
        raise UserError(f"{name} has no {lacks}: bind it in the recipe") from error


def budget(recipe: Recipe):
    """What a recipe's pre-training will read, a `training.Budget`; prepares the text if that was not done.

    Raises:
        UserError: if the recipe pre-trains nothing, and as `training.budget` does.
    """
    stage = pretraining_of(recipe)
    ledger_of(recipe)
    whole = recipe.arguments(RUN)
    prepares = [each for each in stages(recipe) if each.target == PREPARE]
    own = {name: repr(stage.get(name)) for name in ("mixture", "steps", "corpus")}
    own |= {"workdir": repr(whole.get("workdir")), "prepare": repr(prepares[0] if prepares else None)}
    for name, value in own.items():
        override(f"training.budget.{name}={value}", recipe)
    return call(bound(recipe).budget)


def benchmark(recipe: Recipe, workdir: str, steps: int) -> None:
    """Times some steps of a recipe's pre-training, in a workdir of its own, instead of running its stages.

    Raises:
        UserError: if the recipe pre-trains nothing, and as the stages do.
    """
    stage = pretraining_of(recipe)
    own = {
        "run.workdir": repr(workdir),
        "run.stages": "[@training.prepare, @training.benchmark]",
        "benchmark.pretrain": "@training.pretrain",
        "benchmark.mixture": repr(stage["mixture"]),
        "benchmark.steps": str(steps),
    }
    for name, value in own.items():
        override(f"training.{name}={value}", recipe)
    run(recipe)


def pretraining_of(recipe: Recipe) -> dict:
    """The arguments of the stage that pre-trains.

    Raises:
        UserError: if there is none.
    """
    stage = recipe.arguments(pretraining(recipe))
    if not isinstance(stage.get("mixture"), Reference):
        raise UserError("the recipe pre-trains nothing: training.pretrain.mixture is not bound")
    return stage
