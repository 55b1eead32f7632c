"""Stages of a user's own that a run could not call."""

import inspect
from collections.abc import Sequence

from rembed_keras.config.making import imported
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError

BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


def check_own_stages(listed: Sequence[Reference]) -> None:
    """Checks that stages take the run's folder, of which those of this package are known to.

    Args:
        listed: the stages of a recipe.

    Raises:
        UserError: for a function without a first argument.
    """
    for stage in listed:
        function = None if stage.is_call or is_ours(stage.target) else imported(stage.target)
        if not inspect.isfunction(function):
            continue
        first = next(iter(inspect.signature(function).parameters.values()), None)
        if first is None or first.kind in BY_NAME:
            raise UserError(f"{stage.selector} is no stage: the first argument of one is the run's workdir")
