"""What does not fit together in the stages of a recipe: their rows, batches and choices."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rembed_keras.config.backend import import_framework
from rembed_keras.config.initial import (
    EVALUATE,
    FINETUNE,
    PRETRAIN,
    initial_arguments,
    name_of_task,
    starts_from_run,
)
from rembed_keras.config.making import identity, made, sizes_of, within
from rembed_keras.config.misfits.asked import SUBMIT, check_asked, models_of
from rembed_keras.config.misfits.own_weights import check_own_weights
from rembed_keras.config.recipes.recipe import Recipe, check_stage
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.data.pipeline.schedules import by_step, check_schedules, check_shares
from rembed_keras.errors import UserError, check_lists
from rembed_keras.modeling.blocks.positions import longest_row
from rembed_keras.modeling.sizes import check_sequence_length

PREPARE = "rembed_keras.training.prepare"
OF_MODELS = ("starts", "learning_rates", "seeds")  # which models of a task a stage trains
# where it does, and who looks on
OF_PLACES = ("strategy", "jit_compile", "log_every", "callbacks", "processes", "shard_megabytes")

POSITIVE = {  # numbers of stages that 0 is none of
    "clip_norm": "positive, or None for no clipping",
    **dict.fromkeys(("near_duplicates", "language_threshold"), "greater than 0 and at most 1"),
    "shard_megabytes": "positive",
}


def check_stages(recipe: Recipe, listed: Sequence[Reference]) -> None:
    """Checks each stage of a recipe, and those that score against those that fine-tune.

    Raises:
        UserError: for what one of them would refuse.
    """
    check_own_weights(recipe, listed)
    for stage in listed:
        if stage.target != PRETRAIN:  # whose model may be there to be counted alone
            check_stage(recipe, stage)
        _check_lists(recipe, stage)
    _check_trained_once(recipe, listed)
    _check_prepared_once(recipe, [each for each in listed if each.target == PREPARE])
    _check_pretrained_on(recipe, [each for each in listed if each.target == PRETRAIN])
    for number, stage in enumerate(listed):
        check_rows(recipe, stage, stage)
        _check_numbers(recipe, stage)
        if stage.target == FINETUNE:
            _check_methods(recipe, stage)
        check_asked(recipe, stage, listed[:number], listed)


def _check_lists(recipe, stage):
    """Checks that the models of a stage are one or more, and none of them twice."""
    given = recipe.arguments(stage) if stage.target in (FINETUNE, EVALUATE, SUBMIT) else {}
    try:
        check_lists({name: given[name] for name in OF_MODELS if isinstance(given.get(name), list | tuple)})
    except UserError as error:
        raise UserError(f"{stage.selector}: {error}{recipe.places(str(error), (stage,))}") from None


def check_rows(recipe: Recipe, stage: Reference, reader: Reference) -> None:
    """Checks that the encoder of a stage takes rows as long as the stage, or a part of it, reads.

    Raises:
        UserError: for rows that are too long.
    """
    encoder, sizes = encoder_of(recipe, stage)
    if sizes is None or not _may_exceed(recipe.arguments(reader), sizes):
        return
    if encoder is not stage:
        sizes = sizes_of(recipe, encoder)
    try:
        check_length(recipe.arguments(reader), sizes)
    except UserError as error:
        raise UserError(f"{reader.selector}: {error}{recipe.places(str(error), (reader, encoder))}") from None


def encoder_of(recipe: Recipe, stage: Reference) -> tuple[Reference, dict | None]:
    """What says the sizes of a stage's encoder, and these; None where they are not known yet."""
    encoder = recipe.arguments(stage).get("encoder")
    if isinstance(encoder, Reference):
        encoder = within(stage, encoder)
        return encoder, recipe.arguments(encoder)
    return stage, initial_arguments(recipe, stage, may_lack=True)


def _check_numbers(recipe, stage):
    """Checks numbers of a stage whose range leaves out an end of that of their kind."""
    given = recipe.arguments(stage)
    if stage.target == PREPARE and given.get("held_out") == 1:
        message = f"held_out is {given['held_out']!r}; it must be at least 0 and less than 1"
    elif (name := next((name for name in POSITIVE if given.get(name) == 0), None)) is not None:
        message = f"{name} is {given[name]!r}; it must be {POSITIVE[name]}"
    else:
        return
    raise UserError(f"{stage.selector}: {message}{recipe.places(message, (stage,))}")


def _check_methods(recipe, stage):
    """Checks that the encoder of a stage has what its fine-tuning methods change."""
    methods = recipe.arguments(stage).get("methods")
    encoder, sizes = encoder_of(recipe, stage) if methods else (stage, None)
    if sizes is None:
        return
    import_framework()
    sizes = sizes if encoder is stage else sizes_of(recipe, encoder)
    for each in methods:
        reference = recipe.resolve(each)
        check = getattr(_method(recipe, stage, reference), "check", None)
        try:
            if callable(check):
                check(sizes)
        except UserError as error:
            parts = (within(stage, reference), encoder)
            raise UserError(f"{stage.selector}: {error}{recipe.places(str(error), parts)}") from None


def _method(recipe, stage, reference):
    """A fine-tuning method, made as the stage will be given it."""
    if not (isinstance(reference, Reference) and reference.is_call):
        raise UserError(
            f"{stage.selector}.methods has {reference!r}, no fine-tuning method: one ends in (), as @methods.Lora()"
        )
    try:
        return made(recipe, stage, reference)
    except TypeError as error:
        raise UserError(f"no fine-tuning method can be made by {reference.selector}: {error}") from None


def _check_trained_once(recipe, listed):
    """Checks that no stage trains models of a task that another has trained in another way: it would find them done."""
    trained: list[tuple[Reference, int]] = []  # with how many pre-trainings were before
    pretrainings = 0
    for stage in listed:
        pretrainings += stage.target == PRETRAIN
        for other, before in trained if stage.target == FINETUNE else ():
            both = _of_both(recipe, stage, other)
            differs = _difference(recipe, stage, other) if both else None
            if not differs and before < pretrainings and starts_from_run(recipe, stage):
                differs = "the checkpoint that they start from"
                both = [model for model in both if model[0] == "pretrained"]
            if differs and both:
                start, rate, seed = both[0]
                raise UserError(
                    f"{stage!r} and {other!r} train the same model of the task {name_of_task(recipe, stage)}, start "
                    f"{start!r} at learning rate {rate} with seed {seed}, and differ in {differs}: give each task a "
                    "name of its own"
                )
        if stage.target == FINETUNE:
            trained.append((stage, pretrainings))


def _of_both(recipe, stage, other):
    """The models that two stages both train of one task, as far as the recipe says these in words and lists."""
    name, ours, theirs = name_of_task(recipe, stage), models_of(recipe, stage), models_of(recipe, other)
    is_same = name is not None and name == name_of_task(recipe, other)
    return [model for model in ours or () if model in (theirs or ())] if is_same else []


def _check_prepared_once(recipe, prepares):
    """Checks that no stage prepares other text, or otherwise, than one before it: the run has one corpus."""
    for stage, other in itertools.pairwise(prepares):
        if (differs := _difference(recipe, stage, other)) is not None:
            raise UserError(
                f"{stage!r} and {other!r} prepare the corpus of the same WORKDIR, and differ in {differs}: prepare all "
                "text at once, or give the second a recipe of its own whose INITIAL is this run"
            )


def _check_pretrained_on(recipe, pretrains):
    """Checks that each pre-training goes further than the one before, from whose last checkpoint it goes on."""
    for stage, other in itertools.pairwise(pretrains):
        last, before = (recipe.arguments(each).get("steps") for each in (other, stage))
        if stage != other and isinstance(last, int) and isinstance(before, int) and last <= before:
            raise UserError(
                f"{other!r} ends at step {last}, to which {stage!r} has trained in the same WORKDIR: give it more "
                "steps, or a recipe of its own whose INITIAL is this run"
            )


def _difference(recipe, stage, other):
    """An argument that says what two stages train models to, and is another in each; None if there is none."""
    given = [recipe.arguments(each) for each in (stage, other)]
    names = [name for name in given[0] | given[1] if name not in OF_MODELS + OF_PLACES]
    ours, theirs = (
        {name: identity(recipe, arguments.get(name), each.scope) for name in names}
        for arguments, each in zip(given, (stage, other), strict=True)
    )
    return next((name for name in names if ours[name] != theirs[name]), None)


def check_batches(data: Mapping[str, Any], model: Mapping[str, Any], steps: Any) -> None:
    """Checks what a mixture's batches are, and that micro-batches share them.

    Args:
        data: the arguments of the mixture; those that are not bound are left aside.
        model: those of the objective.
        steps: of the run.

    Raises:
        UserError: for numbers out of range, and as `check_shares`.
    """
    names = ("batch_size", "sequence_length", "alpha", "mask_rate")
    check_schedules(**{name: data[name] for name in names if name in data})
    sizes = {first: size for first, size in by_step(data.get("batch_size", 0)).items() if not first or first < steps}
    check_shares(sizes, model.get("micro_batches", 1))


def check_length(data: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
    """Checks the longest rows of a stage or a part against an encoder, from the arguments of both.

    Raises:
        UserError: for rows that are too long.
    """
    if _may_exceed(data, sizes) and "num_layers" in sizes:
        check_sequence_length(_longest_of(data), longest_row(sizes))


def _may_exceed(data, sizes):
    """Whether rows are longer than a table of positions, should the encoder have one."""
    length, longest = _longest_of(data), sizes.get("max_sequence_length")
    return isinstance(length, int) and isinstance(longest, int) and length > longest


def _longest_of(data):
    length = data.get("sequence_length")
    return max(length.values(), default=None) if isinstance(length, dict) else length
