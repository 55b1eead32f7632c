"""What a stage asks of fine-tuned models, held against those that stages of its recipe train and score."""

import itertools
from collections.abc import Sequence
from typing import Any

from rembed_keras.config.initial import EVALUATE, FINETUNE, name_of_task, source_of
from rembed_keras.config.making import identity
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError, did_you_mean, shortened

SUBMIT = "rembed_keras.training.submit"
BOTH = ("pretrained", "scratch")  # starts, unless a recipe says otherwise
READ = {"sequence_length": 64, "pretrained": None}  # how a stage reads examples, unless a recipe says otherwise
# of a stage that asks: what it does with models, the stage that has to be before it, and what that does
ASKS = {
    EVALUATE: [("scores", FINETUNE, "fine-tunes")],
    SUBMIT: [("hands in", FINETUNE, "fine-tunes"), ("hands in", EVALUATE, "scores")],
}


def check_asked(recipe: Recipe, stage: Reference, before: Sequence[Reference], listed: Sequence[Reference]) -> None:
    """Checks that the models which a stage asks are those that others train, and score, and read as these read.

    What is missing would be found at its turn, when they have been trained.

    Args:
        recipe: the recipe.
        stage: one of its stages.
        before: those before it.
        listed: all of them.

    Raises:
        UserError: for models that none trains, or scores, and for examples that are read otherwise.
    """
    if stage.target not in ASKS:
        return
    for words in ASKS[stage.target]:
        _check_task(recipe, stage, before, words)
    task = _task(recipe, stage)
    trainers, scorers = (
        [each for each in listed if each.target == target and _task(recipe, each) == task]
        for target in (FINETUNE, EVALUATE)
    )
    _check_read(recipe, stage, trainers)
    if stage.target == EVALUATE:
        _check_scored(recipe, stage, trainers)
    else:
        _check_submitted(recipe, stage, trainers, scorers)


def _check_task(recipe, stage, before, words):
    """Checks that a stage before this one does what it needs of its task; one of a user's own may."""
    does, target, lacks = words
    task = name_of_task(recipe, stage)
    names = [name_of_task(recipe, each) for each in before if each.target == target]
    if task is not None and {task, None}.isdisjoint(names) and all(is_ours(each.target) for each in before):
        message = f"{stage.selector} {does} models of the task {task!r}, which no stage before it {lacks}"
        raise UserError(f"{message}{did_you_mean(task, filter(None, names))}")


def _check_read(recipe, asks, trainers):
    """Checks that a stage reads examples as the models that it asks did in training."""
    for name, default in READ.items():
        values = [recipe.arguments(each).get(name, default) for each in (asks, *trainers)]
        ours, *theirs = values if name != "pretrained" else [source_of(recipe, each) for each in (asks, *trainers)]
        if theirs and ours not in theirs:
            message = (
                f"{name} is {shortened(values[0])}, and {shortened(values[1])} in {trainers[0].selector}, whose models "
                "it asks: give both the same"
            )
            raise UserError(f"{asks.selector}: {message}{recipe.places(message, (asks, trainers[0]))}")


def _check_scored(recipe, evaluate, trainers):
    """Checks that the models which a stage scores are among those that are fine-tuned for its task."""
    trained, scored = _trained(recipe, trainers), models_of(recipe, evaluate)
    if trained is None or scored is None:
        return
    missing = next((each for each in scored if each not in trained), None)
    if missing is not None:
        start, rate, seed = missing
        raise UserError(
            f"{evaluate.selector} scores start {start!r} at learning rate {rate} with seed {seed}, which "
            f"{trainers[0].selector} does not train: give both the same starts, learning_rates and seeds"
        )


def _check_submitted(recipe, submit, trainers, scorers):
    """Checks that the models which a stage hands in are among those that are fine-tuned, and scored, for its task."""
    given = recipe.arguments(submit)
    start, seeds = given.get("start", "pretrained"), given.get("seeds", (0,))
    scored = [recipe.arguments(each).get("starts", BOTH) for each in scorers]
    if scorers and all(isinstance(each, list | tuple) and start not in each for each in scored):
        raise UserError(
            f"{submit.selector} hands in models that started {start!r}, which {scorers[0].selector} does not score: "
            f"add it to its starts, or bind {submit.selector}.start"
        )
    trained = _trained(recipe, trainers)
    if trained is None or not isinstance(seeds, list | tuple):
        return
    known = {(start, seed) for start, _, seed in trained}
    missing = next((seed for seed in seeds if (start, seed) not in known), None)
    if missing is not None:
        raise UserError(
            f"{submit.selector} hands in start {start!r} with seed {missing}, which {trainers[0].selector} does not "
            "train: give both the same seeds"
        )


def _trained(recipe, trainers):
    """The models that some stages train; None without a stage, or where one says them otherwise than in lists."""
    found = [models_of(recipe, each) for each in trainers]
    return None if not found or None in found else [model for models in found for model in models or ()]


def _task(recipe, stage):
    return identity(recipe, recipe.arguments(stage).get("task"), stage.scope)


def models_of(recipe: Recipe, stage: Reference) -> list[tuple[Any, str, Any]] | None:
    """Starts, learning rates and seeds of a stage's models, one of each; None if it says them otherwise than in a list.

    Learning rates are written as in the names of the models' folders.
    """
    given = recipe.arguments(stage)
    lists: list[Any] = [given.get("starts", BOTH), given.get("learning_rates"), given.get("seeds")]
    if not all(isinstance(each, list | tuple) for each in lists):
        return None
    starts, rates, seeds = lists
    if not all(isinstance(rate, int | float) for rate in rates):
        return None
    return [*itertools.product(starts, (f"{rate:g}" for rate in rates), seeds)]
