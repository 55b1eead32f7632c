"""Initial weights that a recipe names are held against its encoder when it is read, as far as they are there then."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from rembed_keras.config.backend import import_framework
from rembed_keras.config.making import identity, imported, sizes_of, within
from rembed_keras.config.recipes.recipe import RUN, Recipe
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.modeling.blocks.stack import kept_arguments
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
    is asked for when the stage begins.

    Raises:
        UserError: naming what differs; or for a folder that holds no encoder.
    """
    encoder = recipe.arguments(stage).get("encoder")
    named = _named(recipe, stage)
    if not isinstance(encoder, Reference) or named is None or not _is_there(named):
        return
    encoder = within(stage, encoder)
    sizes = sizes_of(recipe, encoder)
    initial, (theirs, name) = _opened(recipe, stage, named)
    with _said_of(recipe, stage, encoder):
        from rembed_keras.training.initial.weights import check_same

        check_same(initial.changes.arguments(theirs), sizes, name)


@contextlib.contextmanager
def _said_of(recipe, stage, encoder):
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
    initial, found = _opened(recipe, stage, named, may_lack)
    if found is None:
        return None
    try:
        own_dtype = {} if initial.dtype is None else {"dtype": initial.dtype}
        return initial.changes.arguments(found[0]) | own_dtype
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


def check_own_weights(recipe: Recipe, listed: Sequence[Reference]) -> None:
    """Checks what each stage of a recipe starts from in its own run against what the stages before it leave there.

    What is missing would be found at its turn, after pre-training, when the recipe of the run can no longer be changed.

    Raises:
        UserError: for a checkpoint, a fine-tuned task or an encoder that they do not leave.
    """
    for number, stage in enumerate(listed):
        before, given = listed[:number], _own_weights(recipe, stage)
        finetuned = recipe.arguments(stage).get("finetuned") if stage.target == PROBE else None
        if finetuned is not None:
            _check_task(recipe, stage, "measures", finetuned, before)
        if given is None:
            continue
        if given.get("task") is not None:
            _check_task(recipe, stage, "starts from", given["task"], before)
            _check_changes(recipe, stage, given, before)
            continue
        pretrain = next((each for each in reversed(before) if each.target == PRETRAIN), None)
        if pretrain is not None:
            _check_best(recipe, stage, given, pretrain)
            _check_structure(recipe, stage, given, pretrain)


def source_of(recipe: Recipe, stage: Reference) -> object:
    """What tells where a stage's initial weights are from that of another, whatever either makes of them."""
    given, named = recipe.arguments(stage).get("pretrained"), _named(recipe, stage)
    if named is None and given is not None:
        return identity(recipe, given, stage.scope)
    return tuple((named or {}).get(name) for name in ("place", "task"))


def starts_from_run(recipe: Recipe, stage: Reference) -> bool:
    """Whether a stage starts from what pre-training has left in its own run."""
    given = _own_weights(recipe, stage)
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


def _is_there(named):
    return isinstance(named.get("place"), str) and folder_of(named["place"]).is_dir()


def _initial(named):
    import_framework()
    from rembed_keras.training import InitialWeights

    return InitialWeights(**named)


def _opened(recipe, stage, named, may_lack=False):
    """Initial weights that a stage names, and what is found of them."""
    try:
        initial = _initial(named)
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


def _own_weights(recipe, stage):
    """What a stage says of the weights of its run that it starts from; None if it starts from others."""
    if recipe.arguments(stage).get("pretrained") is None:
        return {}
    named = _named(recipe, stage)
    return named if named is not None and named.get("place") is None else None


def _check_task(recipe, stage, does, task, before):
    names = [name_of_task(recipe, each) for each in before if each.target == FINETUNE]
    if task not in names and None not in names and all(is_ours(each.target) for each in before):
        message = f"{stage.selector} {does} the task {task!r} of its run, which no stage before it fine-tunes"
        raise UserError(f"{message}{did_you_mean(task, filter(None, names))}")
    _check_folds(recipe, stage, does, task, before)
    _check_chosen(recipe, stage, does, task, before)


def _check_folds(recipe, stage, does, task, before):
    tuned = [each for each in before if each.target == FINETUNE and name_of_task(recipe, each) == task]
    given = [recipe.arguments(each).get("methods") for each in tuned]
    listed = [method for methods in given if isinstance(methods, list | tuple) for method in methods]
    for each in map(recipe.resolve, listed):
        import_framework()
        if isinstance(each, Reference) and not getattr(imported(each.target), "folds", True):
            raise UserError(
                f"{stage.selector} {does} the task {task!r}, which is fine-tuned with {each.selector}: what that adds "
                "cannot be folded into an encoder's own weights"
            )


def _check_chosen(recipe, stage, does, task, before):
    """Checks that one of several learning rates of a task is chosen before its model is asked for."""
    of_task = [(each.target, recipe.arguments(each)) for each in before if name_of_task(recipe, each) == task]
    asked = [(target, given) for target, given in of_task if _are_pretrained(given)]
    listed = [given.get("learning_rates") for target, given in asked if target == FINETUNE]
    listed = [each for each in listed if isinstance(each, list | tuple)]
    rates = {f"{rate:g}" for each in listed for rate in each if isinstance(rate, int | float)}
    is_chosen = any(target == EVALUATE for target, _ in asked) or not all(is_ours(each.target) for each in before)
    if len(rates) > 1 and not is_chosen:
        several = ", ".join(sorted(rates, key=float))
        raise UserError(
            f"{stage.selector} {does} the task {task!r}, which is fine-tuned at the learning rates {several}, and no "
            "stage before it chooses one: list training.evaluate of that task first"
        )


def _are_pretrained(given):
    starts = given.get("starts", ("pretrained",))
    return isinstance(starts, list | tuple) and "pretrained" in starts


def _check_changes(recipe, stage, given, before):
    """Checks that the encoder of a task's models can be changed as a stage says that starts from them."""
    of_task = (each for each in before if each.target == FINETUNE and name_of_task(recipe, each) == given["task"])
    tuned = next(of_task, None)
    if tuned is None or not _is_changed(given) or not _takes_weights(stage, recipe.arguments(stage)):
        return
    encoder = recipe.arguments(tuned).get("encoder")
    try:
        theirs = sizes_of(recipe, within(tuned, encoder)) if encoder else initial_arguments(recipe, tuned, True)
    except (UserError, KeyError, TypeError, ValueError):
        return  # no encoder can be made of these, which is said of that stage
    if theirs is not None:
        with _said_of(recipe, stage, stage):
            _initial(given).changes.arguments(theirs)


def _check_best(recipe, stage, given, pretrain):
    if given.get("checkpoint") == "best" and recipe.arguments(pretrain).get("keep_best") is None:
        raise UserError(
            f"{stage.selector} starts from the best checkpoint of its run, and {pretrain.selector} keeps none: set its "
            "keep_best"
        )


def _check_structure(recipe, stage, given, pretrain):
    """Checks that the encoder of a stage can have the weights of the one that is pre-trained, after their changes."""
    arguments, there = recipe.arguments(stage), recipe.arguments(pretrain)
    trained, model, encoder = there.get("encoder"), there.get("model"), arguments.get("encoder")
    if not _takes_weights(stage, arguments) or not all(isinstance(each, Reference) for each in (trained, model)):
        return
    trained, model = within(pretrain, trained), within(pretrain, model)
    own = within(stage, encoder) if isinstance(encoder, Reference) else None  # by default that which is trained
    is_cut = recipe.arguments(model).get("kept_layers") is not None
    is_another = own is not None and (is_cut or recipe.arguments(trained) != recipe.arguments(own))
    if not (_is_changed(given) or is_another):
        return  # as it is in most recipes, which are read without a framework
    import_framework()
    from rembed_keras.training.initial.weights import InitialWeights, check_same

    try:
        theirs = kept_arguments(sizes_of(recipe, trained), recipe.arguments(model))
        ours = None if own is None else sizes_of(recipe, own)
    except (UserError, KeyError, TypeError, ValueError):
        return  # no encoder can be made of these, which is said of each
    with _said_of(recipe, stage, own or stage):
        changed = InitialWeights(**given).changes.arguments(theirs)
        if ours is not None:
            check_same(changed, ours, f"what {pretrain.selector} keeps")


def _takes_weights(stage, arguments):
    """Whether a stage of some arguments gives its encoder the weights that it starts from."""
    starts = arguments.get("starts", [arguments.get("start", "pretrained")])
    return stage.target in STARTED and isinstance(starts, list | tuple) and "pretrained" in starts


def _is_changed(given):
    return given.get("num_layers") is not None or given.get("scalar_mix")
