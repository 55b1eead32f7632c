"""What a recipe may say and hardly means: warnings, for nothing is wrong with it."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from rembed_keras.config.making import identity
from rembed_keras.config.recipes.recipe import SCORED, Recipe, stages
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.config.recipes.uses import is_within

PRETRAIN = "rembed_keras.training.pretrain"
UNNAMED = ("rembed_keras.training.retrieve", "rembed_keras.training.probe")  # whose scores have no name of their own


def cautions(recipe: Recipe) -> list[str]:
    """Warnings about a checked recipe: a warm-up that is as long as the run, or longer; steps at a learning rate of 0;
    checkpoints and scores that will not stay.

    Args:
        recipe: what to look at; nothing is imported for it.

    Returns:
        A sentence each, which names the knobs and where they stand.
    """
    return [*_long_warmups(recipe), *_idle_steps(recipe), *_lost_checkpoints(recipe), *_lost_scores(recipe)]


def listed_pretrainings(recipe: Recipe) -> list[Reference]:
    """The stages of a recipe that pre-train, in their order; nothing is imported for it."""
    return [stage for stage in stages(recipe) if stage.target == PRETRAIN]


def _long_warmups(recipe) -> Iterator[str]:
    for binding in recipe.bindings.values():
        if binding.parameter != "warmup_steps":
            continue
        schedule = recipe.arguments(Reference(binding.scope, binding.selector, binding.target, False))
        trained = listed_pretrainings(recipe) or [Reference("", "", PRETRAIN, False)]
        own = [stage for stage in trained if any(_is_of(binding, part) for part in _optimizing(recipe, stage))]
        if not own:
            continue  # fine-tuning's
        ends = [recipe.arguments(stage).get("steps") for stage in own]
        last = max((end for end in ends if isinstance(end, int)), default=None)
        steps = min((end for end in (schedule.get("total_steps"), last) if isinstance(end, int)), default=None)
        given, warmup = recipe.given(binding), recipe.resolve(binding.value)
        if isinstance(warmup, int) and steps is not None and warmup >= steps:
            warms_up = f"{given.key} is {warmup:,} ({given.place})"
            yield f"{warms_up} and the run has {steps:,} steps: the learning rate only rises"


def _idle_steps(recipe) -> Iterator[str]:
    """Pre-trainings that have steps after those in which their learning rate falls to 0."""
    for stage in listed_pretrainings(recipe):
        steps = recipe.arguments(stage).get("steps")
        falls = [
            binding
            for each in _optimizing(recipe, stage)[1:]
            for binding in recipe.bindings_of(each.scope, each.target)
        ]
        for binding in [binding for binding in falls if binding.parameter == "total_steps"][-1:]:
            given, total = recipe.given(binding), recipe.resolve(binding.value)
            if isinstance(total, int) and isinstance(steps, int) and total < steps:
                yield (
                    f"{given.key} is {total:,} ({given.place}) and {stage!r} ends at step {steps:,}: its learning rate "
                    f"is 0 from step {total:,} on, unless training.WarmupLinearDecay.total_steps is {steps:,} for it"
                )


def _optimizing(recipe, stage):
    """A stage's optimizer, and the schedule of its learning rate, in the scopes that they are made in."""
    found = [stage]
    for name in ("optimizer", "learning_rate"):
        part = recipe.arguments(found[-1]).get(name)
        if not isinstance(part, Reference):
            break
        found.append(replace(part, scope=part.scope or found[-1].scope))
    return found[1:]


def _is_of(binding, part):
    return binding.target == part.target and is_within(part.scope, binding.scope)


def _lost_checkpoints(recipe) -> Iterator[str]:
    """Checkpoints stay that are written at all, so at steps that both intervals divide."""
    for binding in recipe.bindings.values():
        if (binding.target, binding.parameter) != (PRETRAIN, "keep_checkpoint_every"):
            continue
        stage = recipe.arguments(Reference(binding.scope, binding.selector, binding.target, False))
        given, (keep, every) = recipe.given(binding), (stage.get(f"{name}checkpoint_every") for name in ("keep_", ""))
        if isinstance(keep, int) and isinstance(every, int) and keep % every:
            yield (
                f"{given.key} is {keep:,} ({given.place}) and one is written every {every:,} steps: only those of "
                f"multiples of {math.lcm(keep, every):,} stay"
            )


def _lost_scores(recipe) -> Iterator[str]:
    """Stages that score another encoder on what a stage of their kind has scored, under the same names."""
    listed = [*stages(recipe)]
    for (place, one), (number, other) in combinations(enumerate(listed), 2):
        if one.target != other.target or one.target not in UNNAMED:
            continue
        shared = [name for name in SCORED if _items(recipe, one, name) & _items(recipe, other, name)]
        starts = {identity(recipe, recipe.arguments(each).get("pretrained"), each.scope) for each in (one, other)}
        if shared and (len(starts) > 1 or PRETRAIN in [each.target for each in listed[place:number]]):
            yield (
                f"{one!r} and, later, {other!r} score the same {' and '.join(shared)}: scores.json keeps those of the "
                "later alone, so give one of them a recipe of its own"
            )


def _items(recipe, stage, name):
    """What a stage lists under a name, as far as the recipe lists it."""
    listed = recipe.arguments(stage).get(name)
    return {identity(recipe, each, stage.scope) for each in listed} if isinstance(listed, list | tuple) else set()
