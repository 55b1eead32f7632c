"""What a stage starts from in its own run, held against what the stages before it leave there."""

from collections.abc import Sequence

from rembed_keras.config.backend import import_framework
from rembed_keras.config.initial import (
    EVALUATE,
    FINETUNE,
    PRETRAIN,
    PROBE,
    STARTED,
    initial_arguments,
    initial_weights,
    name_of_task,
    own_weights,
    said_of,
)
from rembed_keras.config.making import imported, sizes_of, within
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.modeling.blocks.stack import kept_arguments


def check_own_weights(recipe: Recipe, listed: Sequence[Reference]) -> None:
    """Checks what each stage of a recipe starts from in its own run against what the stages before it leave there.

    What is missing would be found at its turn, after pre-training, when the recipe of the run can no longer be changed.

    Raises:
        UserError: for a checkpoint, a fine-tuned task or an encoder that they do not leave.
    """
    for number, stage in enumerate(listed):
        before, given = listed[:number], own_weights(recipe, stage)
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
    theirs = _arguments_of(recipe, tuned[0]) if tuned and listed else None
    is_quantized = bool((theirs or {}).get("quantized"))
    for each in map(recipe.resolve, listed):
        import_framework()
        method = imported(each.target) if isinstance(each, Reference) else None
        if not getattr(method, "folds", True) or (is_quantized and getattr(method, "adds", False)):
            weights = "quantized weights" if is_quantized else "an encoder's own weights"
            raise UserError(
                f"{stage.selector} {does} the task {task!r}, which is fine-tuned with {each.selector}: what that adds "
                f"cannot be folded into {weights}"
            )


def _arguments_of(recipe, tuned):
    """The arguments of the encoder that a stage fine-tunes; None if none can be made, which is said of that stage."""
    encoder = recipe.arguments(tuned).get("encoder")
    try:
        return sizes_of(recipe, within(tuned, encoder)) if encoder else initial_arguments(recipe, tuned, True)
    except (UserError, KeyError, TypeError, ValueError):
        return None


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
    theirs = _arguments_of(recipe, tuned)
    if theirs is not None:
        with said_of(recipe, stage, stage):
            initial_weights(given).changes.arguments(theirs)


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
    from rembed_keras.training.initial.weights import check_same

    try:
        theirs = kept_arguments(sizes_of(recipe, trained), recipe.arguments(model))
        ours = None if own is None else sizes_of(recipe, own)
    except (UserError, KeyError, TypeError, ValueError):
        return  # no encoder can be made of these, which is said of each
    with said_of(recipe, stage, own or stage):
        changed = initial_weights(given).changes.arguments(theirs)
        if ours is not None:
            check_same(changed, ours, f"what {pretrain.selector} keeps")


def _takes_weights(stage, arguments):
    """Whether a stage of some arguments gives its encoder the weights that it starts from."""
    starts = arguments.get("starts", [arguments.get("start", "pretrained")])
    return stage.target in STARTED and isinstance(starts, list | tuple) and "pretrained" in starts


def _is_changed(given):
    return given.get("num_layers") is not None or given.get("scalar_mix")
