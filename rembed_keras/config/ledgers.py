"""The ledger of the model that a recipe pre-trains, made of what the recipe says: nothing is imported or built.

What cannot be built is found meanwhile, by the same functions that the constructors check their arguments with.
"""

import inspect
from dataclasses import replace
from functools import partial
from pathlib import Path

from rembed_keras.analysis.cost.ledger import Ledger, ledger
from rembed_keras.analysis.cost.phases import phase_costs
from rembed_keras.analysis.cost.shards import Held, activations_of, held_by_each
from rembed_keras.config.backend import import_framework
from rembed_keras.config.initial import check_initial, initial_arguments, said_of
from rembed_keras.config.making import attempted, handed, identity, imported, kinds_of, made, sizes_of, within
from rembed_keras.config.misfits.evaluation import check_evaluations
from rembed_keras.config.misfits.optimizers import check_optimizers
from rembed_keras.config.misfits.stages import PREPARE, check_batches, check_length, check_stages, encoder_of
from rembed_keras.config.misfits.words import check_words
from rembed_keras.config.recipes.classes import static_method
from rembed_keras.config.recipes.recipe import RUN, Recipe, stages
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.config.terms import check_compared, check_rows, is_teacher, teachers_asked, teachers_of, terms_of
from rembed_keras.data.pipeline.schedules import shapes, up_to
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks.stack import check_packed_rows
from rembed_keras.modeling.cost import adam_slots
from rembed_keras.modeling.sizes import check_pieces

PRETRAIN = Reference("", "training.pretrain", "rembed_keras.training.pretrain", False)


def ledger_of(recipe: Recipe) -> Ledger | None:
    """The ledger of the model that a recipe pre-trains; None if it pre-trains none.

    Of several pre-trainings, each of which is checked and which train the same model, it is that of the one with the
    longest rows; its phases are those of all.

    Raises:
        UserError: if a size of the model is not bound, or the recipe asks for what cannot be built.
    """
    listed = [*stages(recipe)]
    check_stages(recipe, listed)
    check_words(recipe, listed)
    for each in listed:
        check_initial(recipe, each)
        terms_of(recipe, each)
    check_evaluations(recipe, listed)
    check_optimizers(recipe, listed)
    pretrains = pretrainings(recipe)
    prepares = [each for each in listed if each.target == PREPARE]
    ends = [recipe.arguments(each).get("steps") for each in pretrains]
    begins = [0, *ends[:-1]] if len(pretrains) > 1 else [None]
    ledgers = [_ledger_of(recipe, *each, prepares) for each in zip(pretrains, begins, strict=True)]
    for stage, own in zip(pretrains[1:], ledgers[1:], strict=True):
        _check_goes_on(recipe, (pretrains[0], stage), (ledgers[0], own))
        _check_encoders(recipe, (pretrains[0], stage))
    if len(pretrains) == 1 or None in ledgers:
        return ledgers[0]
    longest = max(ledgers, key=lambda each: (each.sequence_length, each.training_flops["total"]))
    return replace(longest, phases=tuple(phase for each in ledgers for phase in each.phases))


def _check_goes_on(recipe, pair, ledgers):
    """Checks that of two pre-trainings the second has what the checkpoints of the first hold."""
    held: dict[str, list] = {"loss terms": [[term.name for term in terms_of(recipe, each)] for each in pair]}
    if None not in ledgers:
        held["parameters"] = [sorted(shape for entry in each.entries for shape in entry.shapes) for each in ledgers]
        held["slots"] = [sum(each.slots) for each in ledgers]
    held["teachers"] = [[str(teacher.place) for teacher in teachers_asked(recipe, each)] for each in pair]
    for name in ("callbacks", "optimizer"):
        held[name] = [_names_of(recipe, recipe.arguments(each).get(name)) for each in pair]
    held["corpus"] = [_corpus_of(recipe, each) for each in pair]
    if recipe.arguments(pair[1]).get("initial") is not None:  # which it would not read
        held["initial weights"] = [identity(recipe, recipe.arguments(each).get("initial"), each.scope) for each in pair]
    for name, (there, here) in held.items():
        if there != here:
            raise UserError(
                f"{pair[1]!r} goes on from the checkpoints of {pair[0]!r} in the same WORKDIR, and has other {name}: "
                "give both one encoder, model, optimizer and corpus, and the same terms, callbacks and INITIAL, "
                "or it a recipe of its own whose INITIAL is this run"
            )


def _check_encoders(recipe, pair):
    """Checks that the weights of the encoder of one pre-training mean the same in that of another, which reads them."""
    given = [recipe.arguments(each).get("encoder") for each in pair]
    if not all(isinstance(each, Reference) for each in given):
        return  # of initial weights, which both have in common
    from rembed_keras.training.initial.weights import check_same

    theirs, ours = (within(stage, encoder) for stage, encoder in zip(pair, given, strict=True))
    with said_of(recipe, pair[1], ours):
        check_same(sizes_of(recipe, theirs), sizes_of(recipe, ours), f"the checkpoints of {pair[0]!r}")


def _names_of(recipe, value):
    """The names of classes and functions that a parameter, or each in its list, refers to, without their modules."""
    values = [recipe.resolve(each) for each in (value if isinstance(value, list | tuple) else [value])]
    return [each.target.rpartition(".")[2] for each in values if isinstance(each, Reference)]


def _corpus_of(recipe, pretrain):
    """Where a pre-training reads its corpus; None for where the run prepares it."""
    corpus, workdir = recipe.arguments(pretrain).get("corpus"), recipe.arguments(RUN).get("workdir")
    place = Path(corpus).resolve() if isinstance(corpus, str) else None
    return None if isinstance(workdir, str) and place == (Path(workdir) / "corpus").resolve() else place


def _ledger_of(recipe, pretrain, begin, prepares):
    """The ledger of a stage that pre-trains, from a step on where it is one of several.

    None if it says no model, or its encoder is not known yet.
    """
    stage = recipe.arguments(pretrain)
    if not isinstance(stage.get("model"), Reference):
        return None
    model = within(pretrain, stage["model"])
    encoder, sizes = pretrain, initial_arguments(recipe, pretrain)
    if isinstance(stage.get("encoder"), Reference):
        encoder, sizes = within(pretrain, stage["encoder"]), None
    mixture = within(pretrain, stage["mixture"]) if isinstance(stage.get("mixture"), Reference) else None
    parts = [encoder, model, mixture or pretrain]
    try:
        data = recipe.arguments(mixture) if mixture else {}
        check_batches(data, recipe.arguments(model), stage.get("steps"))
        if sizes is None and encoder is pretrain:
            return None
        counted = _ledger(
            recipe,
            pretrain,
            encoder,
            sizes,
            model,
            mixture,
            begin,
            _slots_of(recipe, pretrain, stage.get("optimizer")),
            terms_of(recipe, pretrain),
        )
        if prepares and not stage.get("corpus"):
            parts.append(prepares[0])
            _check_tokenizer(recipe.arguments(prepares[0]), sizes or recipe.arguments(encoder))
        return counted
    except KeyError as missing:
        raise UserError(f"{encoder.selector} has no {missing.args[0]}: bind it in the recipe") from None
    except UserError as error:
        raise UserError(f"{error}{recipe.places(str(error), parts)}") from None
    except (TypeError, ValueError, ArithmeticError):
        raise UserError(f"a size of {encoder.selector} or {model.selector} is not a number") from None


def _ledger(recipe, stage, encoder, sizes, model, mixture, begin, slots, terms):
    sizes = sizes_of(recipe, encoder) if sizes is None else sizes
    config = _objective(recipe, model)
    config["encoder"] = sizes
    data = recipe.arguments(mixture) if mixture else {}
    steps = recipe.arguments(stage).get("steps")
    read = (data.get("batch_size"), data.get("sequence_length"), data.get("mask_rate", 0.15))
    batch, length, rate = (up_to(value, steps) if isinstance(steps, int) else value for value in read)
    highest = max(rate.values()) if isinstance(rate, dict) else rate
    entries, teachers = _entries_of(model.target), teachers_of(recipe, stage)

    def at(length, rate):
        return ledger(config, length, rate, entries, slots, terms, teachers)

    counted = at(max(length.values()) if isinstance(length, dict) and length else length, highest)
    if isinstance(batch, dict) or isinstance(length, dict) or None not in (begin, batch, length):
        costs = phase_costs(shapes(batch, length), steps, rate, lambda *of: at(*of).training_flops["total"], begin or 0)
        counted = replace(counted, phases=costs)
    check_length(data, sizes)
    if mixture:
        check_packed_rows(sizes)
    check_rows(data, teachers, is_packed=bool(mixture))
    check_compared(recipe, stage, model.target, config)
    return counted


def _check_tokenizer(prepare, sizes):
    """Checks what is asked of a given tokenizer, and that an encoder has rows for its pieces, or those of one to train.

    A tokenizer that is not there may be made yet, and that of initial weights is held against theirs.
    """
    given = prepare.get("tokenizer")
    if given is not None:
        from rembed_keras.data.prepare.corpora import check_given_tokenizer  # which takes a quarter of a second
        from rembed_keras.data.tokenizers.opening import open_tokenizer

        check_given_tokenizer(prepare["byte_fallback"], prepare["normalization"])
        if prepare.get("initial") is None and isinstance(given, str) and Path(given).exists():
            check_pieces(open_tokenizer(given).vocabulary_size, sizes["vocabulary_size"])
    elif prepare.get("initial") is None:
        check_pieces(prepare["vocabulary_size"], sizes["vocabulary_size"])


def pretraining(recipe: Recipe) -> Reference:
    """The stage that pre-trains, the first of several, in the scope that it is listed with."""
    return pretrainings(recipe)[0]


def pretrainings(recipe: Recipe) -> list[Reference]:
    """The stages that pre-train, each once; the one that would where a recipe lists none."""
    return [*dict.fromkeys(stage for stage in stages(recipe) if stage.target == PRETRAIN.target)] or [PRETRAIN]


def _entries_of(objective: str):
    """The function that gives an objective's ledger entries.

    Raises:
        UserError: for an objective that there is not, or that does not say what it costs.
    """
    entries = _entries_in(objective)
    if entries is None and not is_ours(objective) and imported(objective) is None:
        raise UserError(f"there is no {objective}")
    if entries is None:
        raise UserError(f"{objective} does not say what it costs: give it ledger_entries")
    return entries


def _entries_in(path):
    """Ledger entries of what a dotted path leads to, of ours without importing a framework; None where it has none."""
    if not is_ours(path):
        return getattr(imported(path), "ledger_entries", None)
    function = static_method(path, "ledger_entries")
    return imported(function) if function else None


def _slots_of(recipe, outer, optimizer):
    """The function that says what an optimizer remembers; where it does not say, it is made and built to be counted.

    Raises:
        UserError: when it is called, for an optimizer that cannot be made or wrapped.
    """
    if not isinstance(optimizer, Reference):
        return adam_slots
    path = static_method(optimizer.target, "ledger_slots") if is_ours(optimizer.target) else None
    if path:
        return imported(path)
    import_framework()
    kind = imported(optimizer.target)
    if isinstance(kind, type) and "ledger_slots" in vars(kind):  # a base's would not know what it adds
        return getattr(kind, "ledger_slots", None)
    from rembed_keras.training.optimizers.slots import slots_when_built

    return partial(slots_when_built, partial(attempted, recipe, outer, optimizer, "optimizer"))


def held_of(recipe: Recipe, counted: Ledger, devices: int) -> dict[str, Held]:
    """What each of several devices holds in a recipe's pre-training, by strategy.

    Args:
        recipe: the recipe.
        counted: its ledger.
        devices: how many there are.
    """
    pretrain = pretraining(recipe)
    optimizer = recipe.arguments(pretrain).get("optimizer")
    encoder = encoder_of(recipe, pretrain)[1] or {}
    kept = activations_of(counted, encoder, encoder.get("rematerialize", False))
    return held_by_each(counted, devices, _slots_of(recipe, pretrain, optimizer), kept)


def _objective(recipe, objective):
    """The arguments of an objective, with parts as it is given them."""
    arguments = _defaults_of(objective.target) | recipe.arguments(objective)
    kinds = kinds_of(recipe, objective, arguments)
    return {name: kinds.get(name) or _described(recipe, objective, value) for name, value in arguments.items()}


def _defaults_of(target):
    """Defaults of a class that is not ours; those of ours are among the arguments that a recipe gives."""
    make = None if is_ours(target) else getattr(imported(target), "__init__", None)
    known = inspect.signature(make).parameters if make else {}
    return {name: each.default for name, each in known.items() if each.default is not each.empty}


def _described(recipe, outer, value):
    """An argument of an objective, with objectives among it as configurations that bring their ledger entries."""
    if isinstance(value, list | tuple):
        return [_described(recipe, outer, each) for each in value]
    if not isinstance(value, Reference):
        return value
    part = within(outer, value)
    if is_teacher(part):
        return made(recipe, outer, value)
    if part.target == outer.target:
        raise UserError(f"{outer.selector} cannot be an objective of its own")
    if not is_ours(outer.target) and _entries_in(part.target) is None:  # another's objective may be given other things
        return handed(recipe, outer, value)
    return {"config": _objective(recipe, part), "ledger_entries": _entries_of(part.target)}
