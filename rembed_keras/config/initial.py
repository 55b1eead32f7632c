"""Initial weights that a recipe names are held against its encoder when it is read, as far as they are there then."""

from pathlib import Path

from rembed_keras.config.backend import import_framework
from rembed_keras.config.making import sizes_of, within
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError

INITIAL = "training.InitialWeights"
NAMES = ("initial", "pretrained")  # of the parameter of a stage


def check_initial(recipe: Recipe, stage: Reference) -> None:
    """Checks that the encoder of a stage can have the weights that the stage starts from.

    Of what is in a folder the configuration alone is read. A folder that is not there may be that of a run to come, and
    is asked for when the stage begins.

    Raises:
        UserError: naming what differs; or for a folder that holds no encoder.
    """
    arguments = recipe.arguments(stage)
    encoder = arguments.get("encoder")
    given = next((arguments[name] for name in NAMES if arguments.get(name) is not None), None)
    if not isinstance(encoder, Reference) or given is None:
        return
    named = recipe.arguments(within(stage, given)) if isinstance(given, Reference) else {"place": given}
    if isinstance(given, Reference) and not given.target.endswith(INITIAL):
        return
    place = named.get("place")
    if not isinstance(place, str) or not Path(place).is_dir():
        return
    import_framework()
    from rembed_keras.training import InitialWeights
    from rembed_keras.training.initial.places import arguments_of
    from rembed_keras.training.initial.weights import check_same

    initial = InitialWeights(**named)
    folder = Path(initial.folder or place)
    encoder = within(stage, encoder)
    sizes = sizes_of(recipe, encoder)
    try:
        theirs, name = arguments_of(folder, initial.checkpoint)
        check_same(initial.changes.arguments(theirs), sizes, name)
    except KeyError as missing:
        raise UserError(f"{encoder.selector} has no {missing.args[0]}: bind it in the recipe") from None
    except UserError as error:
        raise UserError(f"{stage.selector}: {error}{recipe.places(str(error), (stage, encoder))}") from None
