"""What a recipe may say and hardly means: warnings, for nothing is wrong with it."""

from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.statements import Reference

PRETRAIN = "rembed_keras.training.pretrain"


def cautions(recipe: Recipe) -> list[str]:
    """Warnings about a checked recipe: a warm-up that is as long as the run, or longer.

    Args:
        recipe: what to look at; nothing is imported for it.

    Returns:
        A sentence each, which names the knobs and where they stand.
    """
    found = []
    for binding in recipe.bindings.values():
        if binding.parameter != "warmup_steps":
            continue
        schedule = recipe.arguments(Reference(binding.scope, binding.selector, binding.target, False))
        ends = (schedule.get("total_steps"), recipe.arguments(Reference("", "", PRETRAIN, False)).get("steps"))
        steps = min((end for end in ends if isinstance(end, int)), default=None)
        given, warmup = recipe.given(binding), recipe.resolve(binding.value)
        if isinstance(warmup, int) and steps is not None and warmup >= steps:
            warms_up = f"{given.key} is {warmup:,} ({given.place})"
            found.append(f"{warms_up} and the run has {steps:,} steps: the learning rate only rises")
    return found
