"""Optimizers and learning rates of others, which say themselves what they take: they are made once to find out."""

from collections.abc import Callable, Sequence

from rembed_keras.config.backend import import_framework
from rembed_keras.config.initial import FINETUNE, PRETRAIN
from rembed_keras.config.making import made, within
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError, first_line


def check_optimizers(recipe: Recipe, listed: Sequence[Reference]) -> None:
    """Checks what stages train with, as far as no annotation of ours does; an optimizer of pre-training is made to be
    counted anyway, unless it says its slots.

    Args:
        recipe: the recipe.
        listed: its stages.

    Raises:
        UserError: for an optimizer, or a schedule of the learning rate, that refuses what it is given.
    """
    for stage in listed:
        optimizer = recipe.arguments(stage).get("optimizer") if stage.target in (PRETRAIN, FINETUNE) else None
        if not isinstance(optimizer, Reference):
            continue
        part = within(stage, optimizer)
        if stage.target == FINETUNE and not is_ours(part.target):
            _check_finetuning(recipe, stage, part)
        rate = recipe.arguments(part).get("learning_rate")
        if stage.target == PRETRAIN and isinstance(rate, Reference) and rate.is_call and not is_ours(rate.target):
            import_framework()
            _attempted(stage, rate, "learning rate", lambda part=part, rate=rate: made(recipe, part, rate))


def _check_finetuning(recipe, stage, part):
    """Checks an optimizer that fine-tuning makes of learning rates of its own."""
    import_framework()
    from rembed_keras.training.optimizers.inner import check_inner

    optimizer = _attempted(stage, part, "optimizer", lambda: made(recipe, stage, part, {"learning_rate": 1.0}))
    try:
        check_inner(optimizer)
    except UserError as error:
        raise UserError(f"{stage.selector}: {error}{recipe.places(str(error), (part,))}") from None


def _attempted(stage, part, what, make: Callable):
    """What a part of others makes, which raises errors of its own."""
    try:
        return make()
    except (TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{stage.selector}: no {what} can be made by {part.selector}: {first_line(error)}") from None
