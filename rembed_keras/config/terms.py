"""The loss terms of a recipe's stages, and what is known of their teachers before anything is run.

A teacher may come from a run that is still to be made, so a recipe can be read where its teacher is not; but no stage
runs then.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rembed_keras.config.backend import import_framework
from rembed_keras.config.making import imported, made, within
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError
from rembed_keras.modeling.cost import Config
from rembed_keras.modeling.losses.weights import counts
from rembed_keras.modeling.saving.presets import folder_of


def terms_of(recipe: Recipe, stage: Reference) -> list[Any]:
    """The loss terms of a stage that count, made as the stage will be given them.

    Raises:
        UserError: for one that cannot be made.
    """
    listed = recipe.arguments(stage).get("terms") or ()
    made_of = ((each, _made(recipe, stage, each)) for each in listed)
    terms = [term for each, term in made_of if isinstance(recipe.resolve(each), Reference)]
    return [each for each in terms if counts(each)]


def _made(recipe, stage, value):
    reference = recipe.resolve(value)
    if not (isinstance(reference, Reference) and reference.is_call):
        raise UserError(f"{stage.selector}.terms has {value!r}, no loss term: one ends in (), as @terms.RDrop()")
    try:
        return made(recipe, stage, reference)
    except UserError as error:
        raise UserError(f"{error}{recipe.places(str(error), (reference, stage))}") from None
    except TypeError as error:
        raise UserError(f"no loss term can be made by {reference.selector}: {error}") from None


def teachers_asked(recipe: Recipe, stage: Reference) -> list[Any]:
    """The teachers of a stage's loss terms and of its objective."""
    return [*_of_terms(terms_of(recipe, stage)), *_of_model(recipe, stage)]


def _of_terms(terms):
    """Teachers that loss terms ask."""
    return [each for term in terms for each in getattr(term, "teachers", ())]


def _places(teachers: Iterable[Any]) -> Iterator[Path]:
    """The places of teachers, each once."""
    return (folder_of(place) for place in dict.fromkeys(each.place for each in teachers) if place is not None)


def _of_model(recipe, stage):
    """Teachers that the objective of a stage asks, or one that it is made of."""
    model = recipe.arguments(stage).get("model")
    return [*_asked(recipe, stage, model)] if isinstance(model, Reference) else []


def _asked(recipe, outer, value):
    """Yields the teachers in an argument of an objective."""
    value = recipe.resolve(value)
    if isinstance(value, list | tuple):
        for each in value:
            yield from _asked(recipe, outer, each)
    if not isinstance(value, Reference):
        return
    part = within(outer, value)
    if not part.is_call:
        for each in recipe.arguments(part).values():
            yield from _asked(recipe, part, each)
    elif is_teacher(part):
        yield made(recipe, outer, value)


def is_teacher(part: Reference) -> bool:
    """Whether a reference makes a teacher: it reads what a student reads."""
    if not part.is_call:
        return False
    try:
        return callable(getattr(imported(part.target), "read", None))
    except (ImportError, AttributeError):  # which is reported when it is bound
        return False


def check_teachers(recipe: Recipe, stages: Iterable[Reference]) -> None:
    """Refuses stages whose teachers are nowhere.

    Raises:
        UserError: naming the first that is missing.
    """
    for stage in stages:
        for place in _places(teachers_asked(recipe, stage)):
            if not place.is_dir():
                raise UserError(f"the teacher {place} of {stage.selector} is not a folder of a model: train it first")


def teachers_of(recipe: Recipe, stage: Reference) -> list[Config]:
    """Arguments of the encoders of a stage's teachers that are there, as they are kept.

    Raises:
        UserError: for a folder that is no model.
    """
    folders = [place for place in _places(teachers_asked(recipe, stage)) if place.is_dir()]
    if not folders:
        return []
    import_framework()
    from rembed_keras.training.initial.places import arguments_of

    return [arguments_of(folder)[0] for folder in folders]
