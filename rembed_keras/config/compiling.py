"""From a recipe to its train step, compiled for chips that are not here."""

from dataclasses import dataclass
from typing import Any

from rembed_keras.analysis.cost.shards import uneven_tables
from rembed_keras.config.backend import import_framework, settle_environment, suppressed_stderr
from rembed_keras.config.execution import bound, call, pretraining_of
from rembed_keras.config.ledgers import ledger_of, pretraining, pretrainings
from rembed_keras.config.making import imported, within
from rembed_keras.config.recipes.parse import override
from rembed_keras.config.recipes.recipe import PACKAGE, Recipe
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.config.terms import teachers_asked
from rembed_keras.data.pipeline.schedules import shapes, up_to
from rembed_keras.errors import UserError
from rembed_keras.training.compiling import NO_TEACHER, fitting, topologies
from rembed_keras.training.compiling.fitting import Plan


@dataclass(frozen=True)
class Outcome:
    """A step that was compiled, and what the ledger says of it.

    Attributes:
        compiled: a `training.compiling.compiled.Compiled`.
        predicted: tokens a second of the ledger's FLOPs at the chips' published rate.
        forecast: bytes of a chip that the step takes by the ledger's closed form.
        notes: what would be shared better otherwise.
        nearest: where the step does not fit, the nearest plan that should; None if it fits or none does.
    """

    compiled: Any
    predicted: float
    forecast: float
    notes: list[str]
    nearest: Plan | None


OF_PHASES = ("batch_size", "sequence_length", "mask_rate")  # of a mixture, which may change with the step
FROM_PRETRAINING = ("encoder", "model", "optimizer", "clip_norm", "skip_nonfinite", "terms", "strategy")


def compile_for(recipe: Recipe, topology: str) -> Outcome:
    """Compiles the train step of a recipe's pre-training; of several, or several phases, that of the largest batches.

    Args:
        recipe: which pre-trains.
        topology: the chip and the sides of the slice, for example "v5e:4x4".

    Raises:
        UserError: if the recipe pre-trains nothing or what has no batches without a corpus, takes its encoder or a
            teacher from a folder, for a topology that is not known, and as `training.compile_step` does.
    """
    settle_environment(topologies.SETTINGS)  # before an optimizer that does not say its slots is built to count them
    if len(pretrainings(recipe)) > 1:
        _take_largest_pretraining(recipe)
    stage = pretraining_of(recipe)
    _check_recipe_is_whole(recipe, stage)
    ledger = ledger_of(recipe)
    if ledger is not None and _take_largest_phase(recipe, stage):
        ledger = ledger_of(recipe)
    if ledger is None:
        raise UserError("the recipe pre-trains nothing: training.pretrain has no encoder or no model")
    import_framework()
    with suppressed_stderr():
        devices = topologies.devices_of(topology)
    batch = _batch(recipe, stage)
    outer = pretraining(recipe)
    for name in FROM_PRETRAINING:
        if name in stage:
            override(f"{PACKAGE}.compile_step.{name}={_text(outer, stage[name])}", recipe)
    done = call(bound(recipe).compile_step, topology=topology, devices=devices, batch=batch)
    predicted = done.chips * done.chip.flops / ledger.training_flops["total"]
    sizes, plan = _plan(recipe, stage, ledger, done, rows=len(batch[1]))
    nearest = None if done.fits else fitting.nearest(plan, sizes, done.used_bytes, done.room)
    notes = uneven_tables(ledger, done.chips) if plan.spreads_tables else []
    return Outcome(done, predicted, sizes.bytes_of(plan), notes, nearest)


def _check_recipe_is_whole(recipe, stage):
    """Checks that the recipe alone says what is computed, and not a model in a folder too."""
    outer = pretraining(recipe)
    if stage.get("initial") is not None and stage.get("encoder") is None:
        raise UserError(
            f"{outer.selector} takes its encoder from initial weights, which are not read to compile: bind "
            f"{outer.selector}.encoder to @modeling.Encoder, and its sizes"
        )
    if teachers_asked(recipe, outer):
        raise UserError(f"{outer.selector}: {NO_TEACHER}")


def _plan(recipe, stage, ledger, done, rows):
    """What the closed form counts a step with, and how the step is laid out."""
    outer = pretraining(recipe)
    encoder = recipe.arguments(within(outer, stage["encoder"]))
    model = recipe.arguments(within(outer, stage["model"]))
    number = 4 if encoder.get("dtype") in (None, "float32") else 2
    sizes = fitting.Sizes.of(ledger, encoder, number)
    parts, rematerialize = model.get("micro_batches", 1), bool(encoder.get("rematerialize"))
    return sizes, fitting.Plan(done.chips, rows, done.strategy, parts, rematerialize)


def _text(outer, value):
    """A value of a recipe, as gin writes it, whose references are in the scope of what it is bound to."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(outer, each) for each in value)}]"
    return repr(within(outer, value) if isinstance(value, Reference) else value)


def _take_largest_pretraining(recipe):
    """Has a recipe of several pre-trainings have the one with the largest batches alone, and these batches alone."""
    several, ledger = pretrainings(recipe), ledger_of(recipe)
    if ledger is None or not ledger.phases:
        return
    largest = max(ledger.phases, key=lambda phase: (phase.batch_size * phase.sequence_length, phase.sequence_length))
    stage = next(each for each in several if largest.first_step < recipe.arguments(each)["steps"])
    mixture = within(stage, recipe.arguments(stage)["mixture"])
    override(f"{PACKAGE}.run.stages=[{stage!r}]", recipe)
    for name, value in (("batch_size", largest.batch_size), ("sequence_length", largest.sequence_length)):
        override(f"{mixture!r}.{name}={value}".removeprefix("@"), recipe)


def _take_largest_phase(recipe, stage):
    """Has a recipe in phases take the batches of the one with most tokens a step, of equal ones that with longer rows.

    Returns:
        Whether it was in phases, or its mask rate was, of which the highest stays.
    """
    mixture = within(pretraining(recipe), stage["mixture"])
    asked = recipe.arguments(mixture)
    given = {name: up_to(asked[name], stage["steps"]) for name in OF_PHASES if isinstance(asked.get(name), dict)}
    if {"batch_size", "sequence_length"} & given.keys():
        sizes = [given.get(name, asked[name]) for name in ("batch_size", "sequence_length")]
        _, rows, length = max(shapes(*sizes), key=lambda shape: (shape[1] * shape[2], shape[2]))
        given |= {"batch_size": rows, "sequence_length": length}
    if "mask_rate" in given:
        given["mask_rate"] = max(given["mask_rate"].values())
    for name, value in given.items():
        override(f"{mixture!r}.{name}={value}".removeprefix("@"), recipe)
    return bool(given)


def _batch(recipe, stage):
    """A batch without numbers, of the mixture that a recipe's pre-training reads."""
    mixture = within(pretraining(recipe), stage["mixture"])
    make = getattr(imported(mixture.target), "blank", None)
    if make is None:
        raise UserError(f"{mixture.selector} does not say what its batches are: give it blank, as data.Mixture has it")
    asked: dict[str, Any] = recipe.arguments(mixture)
    return make(**{name: asked[name] for name in OF_PHASES if name in asked})
