"""The account of the model that a recipe pre-trains, made of what the recipe says: nothing is imported or built."""

from rembed_keras.analysis.cost.ledger import Ledger, ledger
from rembed_keras.config.bindings import Reference
from rembed_keras.config.recipe import Recipe
from rembed_keras.errors import UserError

PRETRAIN = Reference("", "training.pretrain", "rembed_keras.training.pretrain", False)


def account(recipe: Recipe) -> Ledger | None:
    """The account of the model that a recipe pre-trains; None if it pre-trains none.

    Raises:
        UserError: if a size of the model is not bound.
    """
    stage = recipe.arguments(PRETRAIN)
    if not all(isinstance(stage.get(name), Reference) for name in ("encoder", "model")):
        return None
    config = recipe.arguments(stage["model"]) | {"encoder": recipe.arguments(stage["encoder"])}
    data = recipe.arguments(stage["mixture"]) if isinstance(stage.get("mixture"), Reference) else {}
    try:
        rate = data.get("mask_rate", 0.15)
        return ledger(config, data.get("sequence_length"), max(rate.values()) if isinstance(rate, dict) else rate)
    except KeyError as missing:
        raise UserError(f"{stage['encoder'].selector} has no {missing.args[0]}: bind it in the recipe") from None
    except UserError:
        raise
    except (TypeError, ValueError, ArithmeticError):
        raise UserError(f"a size of {stage['encoder'].selector} or {stage['model'].selector} is no number") from None
