"""What does not fit together in the evaluation of a recipe's pre-trainings."""

from collections.abc import Sequence

from rembed_keras.config.initial import PRETRAIN
from rembed_keras.config.making import imported, within
from rembed_keras.config.misfits.stages import PREPARE, check_rows
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError


def check_evaluations(recipe: Recipe, listed: Sequence[Reference]) -> None:
    """Checks that what is evaluated in pre-training reads rows that the encoder takes, and text that is held out.

    Args:
        recipe: the recipe.
        listed: its stages.

    Raises:
        UserError: for what does not, nothing to evaluate, or the best checkpoint of what is not evaluated.
    """
    prepared = [recipe.arguments(each) for each in listed if each.target == PREPARE]
    holds_out = not prepared or any(each.get("held_out") for each in prepared)
    for stage in listed:
        if stage.target == PRETRAIN:
            _check_evaluation(recipe, stage, holds_out or recipe.arguments(stage).get("corpus") is not None)


def _check_evaluation(recipe, pretrain, holds_out):
    stage = recipe.arguments(pretrain)
    every, best, evaluators = (stage.get(name) for name in ("eval_every", "keep_best", "evaluators"))
    if every is None:
        if best is not None:
            raise UserError(f"keep_best is {best!r} and EVAL_EVERY is None: set EVAL_EVERY to a number of steps")
        return
    if not evaluators:
        raise UserError(f"EVAL_EVERY is {every} and {pretrain.selector}.evaluators lists nothing to evaluate")
    for item in evaluators:
        evaluator = recipe.resolve(item)
        if not isinstance(evaluator, Reference):
            continue
        own = within(pretrain, evaluator)
        check_rows(recipe, pretrain, own)
        if not holds_out and getattr(imported(own.target), "needs_held_out", False):
            raise UserError(
                f"EVAL_EVERY is {every} and {own.selector} reads held-out text, of which HELD_OUT 0 leaves none: set "
                "HELD_OUT to a share of the text, such as 0.01"
            )
