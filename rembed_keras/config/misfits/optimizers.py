"""Optimizers and learning rates of others, which say themselves what they take: they are made once to find out."""

from collections.abc import Sequence

from rembed_keras.config.backend import import_framework
from rembed_keras.config.initial import FINETUNE, PRETRAIN
from rembed_keras.config.making import attempted, within
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError


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
        if isinstance(optimizer, Reference):
            check = _check_rate if stage.target == PRETRAIN else _check_optimizer
            try:
                check(recipe, stage, within(stage, optimizer))
            except UserError as error:
                raise UserError(f"{stage.selector}: {error}") from None


def _check_rate(recipe, _stage, optimizer):
    """Checks the schedule of an optimizer of pre-training."""
    rate = recipe.arguments(optimizer).get("learning_rate")
    if isinstance(rate, Reference) and rate.is_call and not is_ours(rate.target):
        import_framework()
        attempted(recipe, optimizer, rate, "learning rate")


def _check_optimizer(recipe, stage, optimizer):
    """Checks an optimizer that fine-tuning makes of learning rates of its own."""
    if is_ours(optimizer.target):
        return
    import_framework()
    from rembed_keras.training.optimizers.inner import check_inner

    found = attempted(recipe, stage, optimizer, "optimizer", {"learning_rate": 1.0})
    try:
        check_inner(found)
    except UserError as error:
        raise UserError(f"{error}{recipe.places(str(error), (optimizer,))}") from None
