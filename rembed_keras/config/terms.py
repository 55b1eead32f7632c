"""The loss terms of a recipe's stages, and what is known of their teachers before anything is run.

A teacher may come from a run that is still to be made, so a recipe can be read where its teacher is not; but no stage
runs then.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rembed_keras.config.backend import import_framework
from rembed_keras.config.initial import PRETRAIN, place_at, starts_from_run
from rembed_keras.config.making import imported, made, within
from rembed_keras.config.misfits.stages import check_length
from rembed_keras.config.recipes.classes import static_method
from rembed_keras.config.recipes.recipe import Recipe
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.stack import check_packed_rows
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
    """Refuses stages whose teachers are nowhere, or cannot read rows as long as those of the stage.

    Raises:
        UserError: naming the first that is missing, or for rows that are too long.
    """
    for stage in stages:
        for place in _places(teachers_asked(recipe, stage)):
            if not place.is_dir():
                raise UserError(f"the teacher {place} of {stage.selector} is not a folder of a model: train it first")
        try:
            check_rows(recipe.arguments(stage), teachers_of(recipe, stage))
        except UserError as error:
            raise UserError(f"{stage.selector}: {error}{recipe.places(str(error), (stage,))}") from None


def check_rows(data: Mapping[str, Any], teachers: Iterable[Config], is_packed: bool = False) -> None:
    """Checks that teachers take the rows that their student does.

    Args:
        data: arguments of what makes the rows.
        teachers: arguments of their encoders.
        is_packed: whether rows hold several documents.

    Raises:
        UserError: for rows that are too long, or an attention that takes no packed ones.
    """
    for teacher in teachers:
        try:
            check_length(data, teacher)
            if is_packed:
                check_packed_rows(teacher)
        except UserError as error:
            raise UserError(f"a teacher: {error}") from None


def check_tokenizers(recipe: Recipe, prepare: Reference | None, stages: Iterable[Reference]) -> None:
    """Refuses teachers that cannot read the corpus which is about to be prepared, before any text is read for it.

    Args:
        recipe: the recipe.
        prepare: the stage that will prepare the corpus, perhaps with the tokenizer of initial weights; None for none.
        stages: what trains on it, or what was trained on it.

    Raises:
        UserError: for a teacher that was trained with another tokenizer.
    """
    student = None if prepare is None else place_at(recipe, prepare)
    if student is None or not student.has_tokenizer:
        return
    from rembed_keras.training.initial.places import find

    for stage in (each for each in stages if each.target == PRETRAIN or starts_from_run(recipe, each)):
        for folder in filter(Path.is_dir, _places(teachers_asked(recipe, stage))):
            teacher = find(folder, is_verified=False)
            if teacher.has_tokenizer and teacher.tokenizer.segmentation != student.tokenizer.segmentation:
                raise UserError(
                    f"the teacher {teacher.name} of {stage.selector} was trained with the tokenizer "
                    f"{teacher.tokenizer.path}, and {student.name}, which the corpus is prepared for, with another: a "
                    "teacher reads what the student reads: make the student of the teacher, trimmed first or not"
                )


def teachers_of(recipe: Recipe, stage: Reference) -> list[Config]:
    """Arguments of the encoders of a stage's teachers that are there, as they are kept.

    Raises:
        UserError: for a folder that is no model.
    """
    return _read(teachers_asked(recipe, stage))


def _read(teachers):
    """Arguments of the encoders of those teachers that are there."""
    folders = [place for place in _places(teachers) if place.is_dir()]
    if not folders:
        return []
    import_framework()
    from rembed_keras.training.initial.places import arguments_of

    return [arguments_of(folder)[0] for folder in folders]


def check_compared(recipe: Recipe, stage: Reference, objective: str, config: Config) -> None:
    """Checks that loss terms, and an objective of ours, can compare a student with its teachers, as far as they say.

    Args:
        recipe: the recipe.
        stage: the stage that trains.
        objective: the path of its class.
        config: its arguments, with those of its encoder.

    Raises:
        UserError: if it cannot.
    """
    student, path = config["encoder"], static_method(objective, "check_compared") if is_ours(objective) else None
    if path is not None:
        for teacher in _read(_of_model(recipe, stage)):
            imported(path)(config, student, teacher)
    for term in terms_of(recipe, stage):
        if callable(check := getattr(term, "check_compared", None)):
            for teacher in _read(_of_terms([term])):
                check(student, teacher)
