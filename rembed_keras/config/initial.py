"""Initial weights that a recipe names are held against its encoder when it is read, as far as they are there then."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rembed_keras.config.backend import import_framework
from rembed_keras.config.making import identity, sizes_of, within
from rembed_keras.config.recipes.recipe import RUN, Recipe
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError
from rembed_keras.modeling.saving.presets import folder_of

INITIAL = "training.InitialWeights"
NAMES = ("initial", "pretrained")  # of the parameter of a stage
PRETRAIN = "rembed_keras.training.pretrain"
FINETUNE = "rembed_keras.training.finetune"
EVALUATE = "rembed_keras.training.evaluate"
PROBE = "rembed_keras.training.probe"
# stages that give an encoder the weights which pre-training left
STARTED = [f"rembed_keras.training.{name}" for name in ("finetune", "retrieve", "trace_retrieval", "probe", "mine")]


def check_initial(recipe: Recipe, stage: Reference) -> None:
    """Checks that the encoder of a stage can have the weights that the stage starts from.

    Of what is in a folder the configuration alone is read. A folder that is not there may be that of a run to come, and
    is asked for when the stage begins. What a pre-training started from that goes on may be gone, or be another by now.

    Raises:
        UserError: naming what differs; or for a folder that holds no encoder, arguments that say nothing together, or
            pre-training that would start from its own run.
    """
    encoder = recipe.arguments(stage).get("encoder")
    named = _named(recipe, stage)
    if named is not None:
        _check_said(recipe, stage, named)
    if not isinstance(encoder, Reference) or named is None or not _is_there(named) or _goes_on(recipe, stage):
        return
    encoder = within(stage, encoder)
    sizes = sizes_of(recipe, encoder)
    initial, (theirs, name) = _opened(recipe, stage, named)
    with said_of(recipe, stage, encoder):
        from rembed_keras.training.initial.weights import check_same

        check_same(initial.changes.arguments(theirs), sizes, name)


def _check_said(recipe, stage, named):
    """Checks what a stage says of its initial weights, wherever they are."""
    from rembed_keras.training.initial.weights import InitialWeights  # which needs no framework

    if any(isinstance(value, Reference) for value in named.values()):
        return
    try:
        initial = InitialWeights(**named)
        if stage.target == PRETRAIN and recipe.arguments(stage).get("encoder") is not None:  # or see `check_start`
            initial.check_elsewhere()
    except UserError as error:
        raise _misfit(recipe, stage, error) from None


@contextlib.contextmanager
def said_of(recipe: Recipe, stage: Reference, encoder: Reference) -> Iterator[None]:
    """A block in which what does not suit a stage's encoder is said with the places of the recipe that say it."""
    try:
        yield
    except KeyError as missing:
        raise UserError(f"{encoder.selector} has no {missing.args[0]}: bind it in the recipe") from None
    except UserError as error:
        raise UserError(f"{stage.selector}: {error}{recipe.places(str(error), (stage, encoder))}") from None


def initial_arguments(recipe: Recipe, stage: Reference, may_lack: bool = False) -> dict | None:
    """Arguments of the encoder that a stage takes from its initial weights; None if there are none yet.

    Args:
        recipe: the recipe.
        stage: its stage.
        may_lack: whether a folder without an encoder counts as one that is not there: a run may not be so far.

    Raises:
        UserError: for a folder that holds no encoder, or changes that cannot be made.
    """
    named = _named(recipe, stage)
    if named is None or not _is_there(named):
        return None
    initial, found = _opened(recipe, stage, named, may_lack or _goes_on(recipe, stage))
    if found is None:
        return None
    try:
        own_dtype = {} if initial.dtype is None else {"dtype": initial.dtype}
        return initial.changes.arguments(found[0]) | own_dtype
    except UserError as error:
        raise _misfit(recipe, stage, error) from None


def place_at(recipe: Recipe, stage: Reference) -> Any:
    """The `Place` of the initial weights that a stage names; None if nothing is there yet.

    Raises:
        UserError: for a folder that holds no encoder.
    """
    named = _named(recipe, stage)
    if named is None or not _is_there(named):
        return None
    try:
        initial = initial_weights(named)
        from rembed_keras.training.initial.places import find

        return find(Path(initial.folder or named["place"]), initial.checkpoint, is_verified=False)
    except UserError as error:
        raise _misfit(recipe, stage, error) from None


def check_start(recipe: Recipe, stage: Reference) -> None:
    """Refuses pre-training that takes its encoder from initial weights which are nowhere, unless it goes on.

    Raises:
        UserError: naming the place.
    """
    arguments, workdir = recipe.arguments(stage), recipe.arguments(RUN).get("workdir")
    if arguments.get("model") is None or arguments.get("encoder") is not None:
        return
    named = _named(recipe, stage)
    has_checkpoints = isinstance(workdir, str) and (Path(workdir) / "checkpoints").is_dir()
    if has_checkpoints or (named is not None and _is_there(named)):
        return
    if named is None or named.get("place") is None:
        raise UserError(f"{stage.selector} has no encoder and no initial weights to take one from: set INITIAL")
    raise UserError(f"{stage.selector} takes its encoder from {named['place']}, which is not a folder of a model")


def source_of(recipe: Recipe, stage: Reference) -> object:
    """What tells where a stage's initial weights are from that of another, whatever either makes of them."""
    given, named = recipe.arguments(stage).get("pretrained"), _named(recipe, stage)
    if named is None and given is not None:
        return identity(recipe, given, stage.scope)
    return tuple((named or {}).get(name) for name in ("place", "task"))


def starts_from_run(recipe: Recipe, stage: Reference) -> bool:
    """Whether a stage starts from what pre-training has left in its own run."""
    given = own_weights(recipe, stage)
    return given is not None and given.get("task") is None


def name_of_task(recipe: Recipe, stage: Reference) -> str | None:
    """The name of the task that a stage trains models for; None if the recipe does not say it in words."""
    task = recipe.arguments(stage).get("task")
    return recipe.arguments(within(stage, task)).get("name") if isinstance(task, Reference) else None


def _named(recipe, stage):
    """What a stage says of its initial weights, as arguments of `InitialWeights`; None if it says nothing of ours."""
    arguments = recipe.arguments(stage)
    given = next((arguments[name] for name in NAMES if arguments.get(name) is not None), None)
    if not isinstance(given, Reference):
        return None if given is None else {"place": given}
    return recipe.arguments(within(stage, given)) if given.target.endswith(INITIAL) else None


def _goes_on(recipe, stage):
    """Whether a stage pre-trains on from a checkpoint of its run, and reads no initial weights any more."""
    workdir = recipe.arguments(RUN).get("workdir") if stage.target == PRETRAIN else None
    return isinstance(workdir, str) and any(True for _ in Path(workdir).glob("checkpoints/step-*"))


def _is_there(named):
    return isinstance(named.get("place"), str) and folder_of(named["place"]).is_dir()


def initial_weights(named: dict) -> Any:
    """`InitialWeights` of some arguments.

    Raises:
        UserError: for arguments that say nothing together.
    """
    import_framework()
    from rembed_keras.training import InitialWeights

    return InitialWeights(**named)


def _opened(recipe, stage, named, may_lack=False):
    """Initial weights that a stage names, and what is found of them."""
    try:
        initial = initial_weights(named)
        return initial, _found(initial, named, may_lack)
    except UserError as error:
        raise _misfit(recipe, stage, error) from None


def _misfit(recipe, stage, error):
    """What is wrong with the initial weights of a stage, with the place of the recipe that names them."""
    return UserError(f"{stage.selector}: {error}{recipe.places(' '.join(NAMES), (stage,))}")


def _found(initial, named, may_lack=False):
    """Arguments of the encoder that is there, and what it is called; None if there is none and there need not be."""
    from rembed_keras.training.initial.places import arguments_of

    try:
        return arguments_of(Path(initial.folder or named["place"]), initial.checkpoint)
    except UserError:
        if may_lack:
            return None
        raise


def own_weights(recipe: Recipe, stage: Reference) -> dict | None:
    """What a stage says of the weights of its run that it starts from; None if it starts from others."""
    if recipe.arguments(stage).get("pretrained") is None:
        return {}
    named = _named(recipe, stage)
    return named if named is not None and named.get("place") is None else None
