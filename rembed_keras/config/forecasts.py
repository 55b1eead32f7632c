"""What a recipe says that its run asks at its beginning: of the tasks that are read then how much their fine-tunings
train on, so that a run can say how long all that is left will take, and which learning rates are chosen among; of
pre-trainings the batches that devices are to share; and of stages that train their strategies.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rembed_keras.config.initial import PRETRAIN
from rembed_keras.config.making import within
from rembed_keras.config.misfits.asked import BOTH, EVALUATE, FINETUNE
from rembed_keras.config.recipes.recipe import RUN, Recipe, stages
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.config.sharing import identity
from rembed_keras.data.pipeline.schedules import by_step, up_to


def tokens_by_task(recipe: Recipe) -> list[dict[int, float]]:
    """What each stage trains on for each example of a task, in tokens, those of padding and of all its models too.

    Args:
        recipe: lists stages, and the tasks that are read before them.

    Returns:
        Of each stage the tokens by the number of the task in `training.run.tasks`; nothing of a stage that fine-tunes
        none of these, or says otherwise than in numbers how.
    """
    tasks = _tasks(recipe)
    return [_tokens(recipe, stage, tasks) for stage in stages(recipe)]


def choices(recipe: Recipe) -> dict[int, Sequence[float]]:
    """Learning rates that are chosen among by development data, by the number of the task in `training.run.tasks`."""
    tasks = _tasks(recipe)
    found: dict[int, Sequence[float]] = {}
    for stage in stages(recipe):
        arguments = recipe.arguments(stage)
        task, rates = identity(recipe, arguments.get("task"), stage.scope), arguments.get("learning_rates")
        if stage.target == EVALUATE and task in tasks and rates is not None and (_count(rates) or 0) > 1:
            found[tasks.index(task)] = rates
    return found


def batches(recipe: Recipe) -> dict[int, tuple[Any, Mapping[int, int], int]]:
    """Where each pre-training is computed, the rows of its batches by their first step, and its micro-batches, by the
    number of the stage; nothing of one that says otherwise than in numbers how many."""
    found = {}
    for number, stage in enumerate(stages(recipe)):
        given = recipe.arguments(stage)
        parts: list[Any] = [given.get(name) for name in ("mixture", "model")] if stage.target == PRETRAIN else [None]
        if not all(isinstance(each, Reference) for each in parts):
            continue
        data, model = (recipe.arguments(within(stage, each)) for each in parts)
        rows, shares = up_to(data.get("batch_size"), given["steps"]), model.get("micro_batches", 1)
        if all(isinstance(each, int) for each in (*by_step(rows).values(), shares)):
            found[number] = given.get("strategy", "one_device"), by_step(rows), shares
    return found


def strategies(recipe: Recipe) -> dict[int, tuple[str, Any]]:
    """What each stage that has a strategy is called, and its strategy, by the number of the stage."""
    given = ((number, repr(stage)[1:], recipe.arguments(stage)) for number, stage in enumerate(stages(recipe)))
    return {number: (name, own["strategy"]) for number, name, own in given if "strategy" in own}


def _tasks(recipe):
    listed = recipe.arguments(RUN).get("tasks")
    return [identity(recipe, each) for each in listed] if isinstance(listed, list | tuple) else []


def _tokens(recipe: Recipe, stage: Reference, tasks: list) -> dict[int, float]:
    arguments = recipe.arguments(stage)
    task = identity(recipe, arguments.get("task"), stage.scope)
    if stage.target != FINETUNE or task not in tasks:
        return {}
    models = [_count(arguments.get(name)) for name in ("learning_rates", "seeds")]
    models.append(_count(arguments["starts"]) if "starts" in arguments else len(BOTH))
    sizes = [arguments.get(name) for name in ("epochs", "sequence_length")]
    numbers = [value for value in (*models, *sizes) if isinstance(value, int | float)]
    return {tasks.index(task): float(math.prod(numbers))} if len(numbers) == len(models) + len(sizes) else {}


def _count(value: object) -> int | None:
    return len(value) if isinstance(value, Sequence) and not isinstance(value, str) else None
