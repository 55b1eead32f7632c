"""From a checked recipe to a run: gin binds the recipe's text and calls its root, `training.run`."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import gin

from rembed_keras import compat
from rembed_keras.config.backend import TRAINING, import_framework, settle_environment
from rembed_keras.config.forecasts import batches, choices, strategies, tokens_by_task
from rembed_keras.config.initial import check_start
from rembed_keras.config.ledgers import PREPARE, ledger_of, pretraining, pretrainings
from rembed_keras.config.making import within
from rembed_keras.config.recipes.parse import override
from rembed_keras.config.recipes.recipe import PACKAGE, ROOT, RUN, Recipe, check_stage, stages
from rembed_keras.config.recipes.statements import Reference, targets_of
from rembed_keras.config.sharing import made_once
from rembed_keras.config.terms import check_teachers, check_tokenizers
from rembed_keras.errors import UserError, check_spelled_out, first_line, import_failure
from rembed_keras.training.loop.same_recipe import begin_smoke

BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


def run(recipe: Recipe, chosen: Sequence[int] | None = None, is_smoke: bool = False) -> None:
    """Runs a recipe's stages on its workdir.

    Args:
        recipe: what to run.
        chosen: which of its stages, by number, see `stages_named`; all by default. The folder is then not finished, and
            another command on it goes on.
        is_smoke: whether the recipe was made small by `smoke`, in a folder that is marked for that, and emptied.

    Raises:
        UserError: for a KERAS_BACKEND that this package does not run on, and as the stages do.
    """
    listed = [*stages(recipe)]
    ledger = _checked(recipe, listed, listed if chosen is None else [listed[number] for number in chosen])
    for stage in listed:
        check_stage(recipe, stage)
    check_folders(recipe)
    workdir = recipe.arguments(RUN).get("workdir")
    if is_smoke and isinstance(workdir, str):
        begin_smoke(workdir)
    _run(recipe, ledger, chosen, is_smoke)


def _checked(recipe, trained, asked):
    """The ledger of a recipe some of whose stages train, once what does not fit was refused.

    Teachers must be there for the stages that are asked for now.
    """
    settle_environment(TRAINING)  # before an optimizer that does not say its slots is built to count them
    ledger = ledger_of(recipe)  # what cannot be built is found before the stages are imported
    check_teachers(recipe, asked)
    check_start(recipe, pretraining(recipe))
    prepare, workdir = _preparing(recipe), recipe.arguments(RUN).get("workdir")
    is_prepared = isinstance(workdir, str) and (Path(workdir) / "corpus").exists()
    check_tokenizers(recipe, None if is_prepared else prepare, trained)
    return ledger


def check_folders(recipe: Recipe) -> None:
    """Checks that the run does not write among the text that it reads, which would be other text the next time.

    Raises:
        UserError: if it does, and for a WORKDIR that no run takes.
    """
    workdir = recipe.arguments(RUN).get("workdir")
    if workdir == "":
        raise UserError("training.run.workdir is empty: name a folder")
    if isinstance(workdir, str):
        check_spelled_out("WORKDIR", workdir)
    for stage in stages(recipe):
        text = recipe.arguments(stage).get("text_dir")
        if isinstance(workdir, str) and isinstance(text, str):
            run, source = Path(workdir).resolve(), Path(text).resolve()
            if run == source:
                raise UserError(f"WORKDIR {workdir} is the folder of the text: choose another")
            if source in run.parents:
                raise UserError(f"WORKDIR {workdir} is in the folder of the text, {text}: choose one elsewhere")


def _run(recipe, ledger, chosen=None, is_smoke=False):
    training = bound(recipe)
    _check_functions(stages(recipe))
    _, _, name = ROOT.rpartition(".")
    record = training.RunRecord(
        recipe.text(),
        gin.operative_config_str,
        ledger,
        tokens_by_task(recipe),
        is_smoke,
        choices(recipe),
        batches(recipe),
        strategies(recipe),
    )
    with made_once(recipe):
        call(getattr(training, name), record=record, chosen=chosen)


def _check_functions(listed):
    """Checks that stages, which are imported, take the run's folder: one of a user's own may not."""
    for stage in listed:
        module, _, name = stage.target.rpartition(".")
        function = getattr(sys.modules.get(module), name, None)
        if stage.is_call or not inspect.isfunction(function):
            continue
        first = next(iter(inspect.signature(function).parameters.values()), None)
        if first is None or first.kind in BY_NAME:
            raise UserError(f"{stage.selector} is no stage: the first argument of one is the run's workdir")


def stages_until(recipe: Recipe, name: str) -> list[int]:
    """The numbers of a recipe's stages up to one.

    Raises:
        UserError: for a stage that the recipe does not list.
    """
    return [*range(stages_named(recipe, name)[-1] + 1)]


def stages_named(recipe: Recipe, names: str) -> list[int]:
    """The numbers of some of a recipe's stages, in its order.

    Args:
        recipe: lists them.
        names: separated by commas, as `pretrain` or with their scope, `topics/finetune`.

    Raises:
        UserError: for a stage that the recipe does not list.
    """
    listed = [_names(stage) for stage in stages(recipe)]
    asked = [name.strip() for name in names.split(",") if name.strip()]
    known = list(dict.fromkeys(each[-1] for each in listed))
    strange = next((name for name in asked if not any(name in each for each in listed)), None)
    if strange is not None or not asked:
        raise UserError(f"the recipe has no stage {(strange or names)!r}: its stages are {', '.join(known)}")
    return [number for number, each in enumerate(listed) if not set(asked).isdisjoint(each)]


def _names(stage):
    """What a stage can be called: without its scope, and with it."""
    _, _, name = stage.target.rpartition(".")
    return [name, f"{stage.scope}/{name}"] if stage.scope else [name]


def bound(recipe: Recipe) -> ModuleType:
    """Gives a recipe to gin, and returns the module of the stages."""
    import_framework()
    from rembed_keras import training

    give_to_gin(recipe)
    return training


def give_to_gin(recipe: Recipe) -> None:
    """Imports what a recipe names, and binds all that it says.

    Raises:
        UserError: for what cannot be imported or bound.
    """
    for module in recipe.imports.values():
        _load(module)
    for binding in (*recipe.macros.values(), *recipe.bindings.values()):
        for target, _ in targets_of(binding):
            _load_on_the_way(target)
    gin.clear_config(clear_constants=True)
    try:
        gin.parse_config(recipe.text())
    except (AttributeError, TypeError, ValueError) as error:  # names in packages of others
        raise UserError(f"the recipe cannot be bound: {first_line(error)}") from error


def _load_on_the_way(target):
    """Imports the modules on a dotted path that those before them do not: `import package` is enough in a recipe."""
    outer, *names = target.split(".")[:-1]
    for name in names:
        inner = f"{outer}.{name}"
        if outer not in sys.modules or (not hasattr(sys.modules[outer], name) and not importlib.util.find_spec(inner)):
            return  # a class, or nothing: gin says so
        if not hasattr(sys.modules[outer], name):
            _load(inner)
        outer = inner


def _load(module):
    """Imports what a recipe names, which may be another's, before gin does."""
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:  # it raises what it likes
        raise UserError(f"the recipe imports {module}, which cannot be imported: {import_failure(error)}") from error


def call(function: Callable, **arguments):
    """Calls a function with what is bound to it.

    Raises:
        UserError: for a parameter without a default that is not bound.
    """
    try:
        return gin.get_configurable(function)(**arguments)
    except TypeError as error:
        missing = compat.unbound_arguments(error)
        if missing is None:
            raise
        name, lacks = missing
        raise UserError(f"{name} has no {lacks}: bind it in the recipe") from error


def budget(recipe: Recipe):
    """What a recipe's pre-training will read, a `training.Budget`; prepares the text if that was not done.

    Raises:
        UserError: if the recipe pre-trains nothing, for a WORKDIR that no run takes, and as `training.budget` does.
    """
    stage = pretraining_of(recipe)
    ledger_of(recipe)
    check_folders(recipe)
    own = {name: repr(stage.get(name)) for name in ("steps", "corpus")}
    own |= {"workdir": repr(recipe.arguments(RUN).get("workdir")), "prepare": repr(_preparing(recipe))}
    own["mixture"] = repr(within(pretraining(recipe), stage["mixture"]))
    own["later"] = f"[{', '.join(_later_reading(recipe))}]"
    for name, value in own.items():
        override(f"{PACKAGE}.budget.{name}={value}", recipe)
    return call(bound(recipe).budget)


def _later_reading(recipe):
    """Yields the mixture of each pre-training after the first, and the step that it ends at."""
    for stage in pretrainings(recipe)[1:]:
        own = recipe.arguments(stage)
        if not isinstance(own.get("mixture"), Reference):
            raise UserError(f"{stage!r} has no mixture: bind it in the recipe")
        yield f"({within(stage, own['mixture'])!r}, {own['steps']})"


def benchmark(recipe: Recipe, workdir: str, steps: int) -> None:
    """Times some steps of a recipe's pre-training, in a workdir of its own, instead of running its stages.

    Raises:
        UserError: if the recipe pre-trains nothing, and as the stages do.
    """
    stage, outer, prepare = pretraining_of(recipe), pretraining(recipe), _preparing(recipe)
    ledger = _checked(recipe, [outer], [outer])
    corpus, place = stage.get("corpus"), recipe.arguments(RUN).get("workdir")
    if corpus is None and prepare is None and isinstance(place, str):
        corpus = str(Path(place) / "corpus")
    own = {
        "run.workdir": repr(workdir),
        "run.stages": f"[{f'{prepare}, ' if prepare and corpus is None else ''}@{PACKAGE}.benchmark]",
        "benchmark.pretrain": repr(outer),
        "benchmark.mixture": repr(within(outer, stage["mixture"])),
        "benchmark.corpus": repr(corpus),
        "benchmark.steps": str(steps),
        "benchmark.strategy": repr(stage.get("strategy", "one_device")),
    }
    if ledger:
        own["benchmark.dtype"] = repr(ledger.dtype)
    for name, value in own.items():
        override(f"{PACKAGE}.{name}={value}", recipe)
    _run(recipe, ledger)


def _preparing(recipe):
    """The stage that prepares text; None if the recipe lists none."""
    return next((each for each in stages(recipe) if each.target == PREPARE), None)


def pretraining_of(recipe: Recipe) -> dict:
    """The arguments of the stage that pre-trains.

    Raises:
        UserError: if there is none.
    """
    stage = recipe.arguments(pretraining(recipe))
    if not isinstance(stage.get("mixture"), Reference):
        raise UserError("the recipe pre-trains nothing: training.pretrain.mixture is not bound")
    return stage
