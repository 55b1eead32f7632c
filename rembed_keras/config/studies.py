"""From a study's file to its plan: the file is read as recipes are, and so is every arm, before anything is run."""

import contextlib
import hashlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rembed_keras.analysis.studies.definition import Arm, Measure, Study
from rembed_keras.analysis.studies.kept import definition_of, finished_runs, known_runs
from rembed_keras.analysis.studies.measures import may_score
from rembed_keras.analysis.studies.plan import Plan, PlannedArm, PlannedCorpus, PlannedRun
from rembed_keras.analysis.studies.record import read_record
from rembed_keras.config.execution import PREPARE, call, give_to_gin
from rembed_keras.config.initial import PRETRAIN
from rembed_keras.config.ledgers import ledger_of, pretraining
from rembed_keras.config.recipes.parse import STUDIES, load, override, read
from rembed_keras.config.recipes.recipe import SCORED, Recipe, stages
from rembed_keras.config.recipes.signatures import is_ours
from rembed_keras.config.recipes.statements import Reference, items_of
from rembed_keras.config.sharing import identity
from rembed_keras.errors import UserError, did_you_mean
from rembed_keras.training.loop.same_recipe import refuse_another_recipe, says_where

OF_A_RUN = ("SEED", "WORKDIR")  # knobs that the study sets


def is_study(path: str, allow_import: Sequence[str] = ()) -> bool:
    """Whether a gin file describes a study, and not a recipe."""
    return STUDIES in read(path, allow_import).imports.values()


def plan_study(path: str, bindings: Sequence[str] = (), allow_import: Sequence[str] = ()) -> Plan:
    """Reads a study and all its arms' recipes, and checks them; nothing is run.

    Args:
        path: the gin file, looked for as recipes are.
        bindings: `KNOB=VALUE`: of a knob of the study, or of every arm that has it.
        allow_import: packages that the study and its arms may import.

    Raises:
        UserError: for a study that is malformed or names what is not there, an arm whose recipe cannot be run, a
            measure that no arm produces, and a run's folder that is of another recipe.
    """
    file = read(path, allow_import)
    if STUDIES not in file.imports.values():
        raise UserError(f"{path} is not a study: it imports no {STUDIES}; see `rembed run`")
    file.root = f"{STUDIES}.Study"
    ours = [text for text in bindings if _is_of_study(_key(text), file)]
    for text in ours:
        override(text, file)
    file.check()
    give_to_gin(file)
    study = call(importlib.import_module(STUDIES).Study)
    study.check()
    for_all = [text for text in bindings if text not in ours]
    _check_knobs(study, for_all, file, allow_import)
    words = {arm.name: _bindings(study, arm, for_all, allow_import) for arm in study.arms}
    _check_taken(study, for_all, words)
    return _planned(study, words, allow_import)


def _planned(study: Study, bindings: Mapping[str, list[str]], allow_import: Sequence[str]) -> Plan:
    folder, trust = Path(study.workdir), [word for each in allow_import for word in ("--allow-import", each)]
    arms, runs = [], []
    corpora: dict[Path, PlannedCorpus] = {}
    produced: dict[str, Mapping] = {}
    for arm in study.arms:
        words = [arm.recipe, *bindings[arm.name]]
        for seed in study.seeds:
            place = folder / "runs" / f"{arm.name}-seed{seed}"
            own = [*words, f"SEED={seed}", f"WORKDIR={place}"]
            recipe = _loaded(arm, own, allow_import)
            _refuse_changes(arm, recipe, place)
            corpus = None
            if (prepared := _prepared_by(recipe)) is not None:
                corpus = folder / "corpora" / prepared / "corpus"
                command = ["budget", *words, f"SEED={seed}", f"WORKDIR={corpus.parent}", *trust]
                shared = corpora.setdefault(corpus, PlannedCorpus(corpus, command, ()))
                corpora[corpus] = replace(shared, arms=(*dict.fromkeys((*shared.arms, arm.name)),))
            runs.append(PlannedRun(arm.name, seed, place, ["run", *own, *trust], corpus))
        produced[arm.name] = _stages(recipe)
        what = [text for text in own if _key(text) in OF_A_RUN or not says_where(_key(text))]
        checksum = _checksum(recipe if what == own else _loaded(arm, what, allow_import))
        arms.append(_planned_arm(arm, recipe, checksum, study, produced[arm.name]))
    _check_measures(study, produced)
    by_seed = sorted(runs, key=lambda run: study.seeds.index(run.seed))
    return _with_recorded(Plan(study, arms, by_seed, list(corpora.values())))


def _with_recorded(plan: Plan) -> Plan:
    """The plan with the runs that the study's results have, if it keeps them apart from its runs, or other studies'."""
    own = read_record(plan.results / "study.json") if plan.study.results is not None else None
    if own is not None:
        _refuse_changed_arms(plan, own)
    others = {folder: read_record(Path(folder) / "study.json") for folder in plan.study.known_results}
    kept = [own] if own is not None else []
    kept += [known_runs(other, plan) | {"place": folder} for folder, other in others.items() if other is not None]
    finished = {found for record in kept for found in finished_runs(record)}
    runs = [replace(run, is_recorded=(run.arm, run.seed) in finished) for run in plan.runs]
    return replace(plan, runs=runs, kept=kept)


def _refuse_changed_arms(plan: Plan, record: Mapping) -> None:
    ran = {arm for arm, _ in finished_runs(record)}
    checksums = {row["name"]: row["checksum"] for row in record["arms"]}
    for arm in plan.arms:
        if arm.name in ran and checksums.get(arm.name, arm.checksum) != arm.checksum:
            raise UserError(
                f"arm {arm.name} was changed since its runs in {plan.results / 'study.json'}: bind another "
                "studies.Study.results, or give the arm another name"
            )


def _loaded(arm: Arm, words: Sequence[str], allow_import: Sequence[str]) -> Recipe:
    try:
        return load(words[0], words[1:], allow_import)
    except UserError as error:
        raise UserError(f"arm {arm.name}: {error}") from None


def _checksum(recipe):
    text = recipe.text(has_comments=False, by_name=True)
    lines = [line for line in text.splitlines() if line.partition(" = ")[0] not in OF_A_RUN]
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()


def _planned_arm(arm, recipe, checksum, study, produced):
    try:
        ledger = ledger_of(recipe)
    except UserError as error:
        raise UserError(f"arm {arm.name}: {error}") from None
    kept, dropped = (ledger.kept, ledger.dropped) if ledger else (None, None)
    return PlannedArm(arm.name, checksum, [m.name for m in study.measures if m.is_made_by(produced)], kept, dropped)


def _refuse_changes(arm, recipe, folder):
    try:
        refuse_another_recipe(folder, recipe.text())
    except UserError as error:
        said, remedy = str(error), "remove that folder, or give the arm another name"
        raise UserError(f"arm {arm.name} was changed: {said.rpartition(';')[0] or said}; {remedy}") from None


def _key(text: str) -> str:
    return text.partition("=")[0].strip()


def _is_of_study(key: str, file: Recipe) -> bool:
    """Whether what is bound on the command line is the study's: a knob of its file, or a parameter of its parts."""
    selector = key.rpartition("/")[2]
    return key in file.macros or file.imports.get(selector.partition(".")[0]) == STUDIES


def _check_knobs(study, for_all, file, allow_import):
    """Checks that each knob is one of some arm, and none that the study sets."""
    recipes = {arm.name: _read(arm, allow_import) for arm in study.arms}
    known = {name for recipe in recipes.values() for name in recipe.macros}
    for arm in study.arms:
        for name in OF_A_RUN:
            if name not in recipes[arm.name].macros:
                raise UserError(
                    f"arm {arm.name}: {arm.recipe} has no knob {name}, which the study has to set: include it in a "
                    "recipe of yours that has one"
                )
    for text in (*for_all, *study.bindings, *(text for arm in study.arms for text in arm.bindings)):
        if _key(text) in OF_A_RUN:
            raise UserError(f"{text}: the study sets {_key(text)} of its runs; see its seeds and its workdir")
    for text in (*for_all, *study.bindings):
        if "." not in _key(text) and _key(text) not in known:
            meant = did_you_mean(_key(text), [*file.macros, *known])
            raise UserError(f"neither the study nor one of its arms has a knob {_key(text)}{meant}")


def _read(arm, allow_import):
    try:
        return read(arm.recipe, allow_import)
    except UserError as error:
        raise UserError(f"arm {arm.name}: {error}") from None


def _bindings(study, arm, for_all, allow_import) -> list[str]:
    """What is bound in an arm, later ones winning: of all arms, its own, of the command line."""

    def bound(knobs):
        shared, asked = (
            [text for text in texts if "." in _key(text) or _key(text) in knobs] for texts in (study.bindings, for_all)
        )
        return list({_key(text): text for text in (*shared, *arm.bindings, *asked)}.values())

    return bound(_knobs(_read(arm, allow_import), bound(())))


def _knobs(recipe, bindings):
    """The knobs of a recipe, without those of a part that some bindings replace, such as another optimizer's."""
    there = {*recipe.macros}
    with contextlib.suppress(UserError):  # which is reported of the arm as it would run
        for text in bindings:
            override(text, recipe)
        recipe.check()
        return {*recipe.macros}
    return there


def _check_taken(study, for_all, words):
    """Checks that each knob is bound in some arm: all of them may have replaced what it was for."""
    taken = {_key(text) for own in words.values() for text in own}
    for text in (*for_all, *study.bindings):
        if _key(text) not in taken:
            raise UserError(f"{text}: no arm of the study has the knob {_key(text)}: each replaces the part it is of")


def _prepared_by(recipe: Recipe) -> str | None:
    """A short checksum of how a recipe prepares its corpus; None if it prepares none of its own."""
    stage = recipe.arguments(pretraining(recipe))
    prepare = next((each for each in stages(recipe) if each.target.startswith(PREPARE)), None)
    if prepare is None or stage.get("corpus") is not None or not isinstance(stage.get("mixture"), Reference):
        return None
    prepared = identity(recipe, replace(prepare, is_call=True), prepare.scope)
    return hashlib.sha256(repr(prepared).encode("utf-8")).hexdigest()[:12]


def _stages(recipe: Recipe) -> dict[str, list[str] | None]:
    """The stages of a recipe, and the tasks that those of each name score; None where that cannot be known.

    What a stage of a user's own scores cannot: it may call the scores of its tasks as it likes.
    """
    found: dict[str, list[str] | None] = {}
    for stage in stages(recipe):
        arguments = recipe.arguments(stage)
        scored = [_name_of(recipe, stage, each) for key in SCORED for each in _items(arguments.get(key))]
        own = arguments.get("name")  # of a stage, as `mine`, whose texts have none
        names = [own] if isinstance(own, str) else scored
        known = [name for name in names if name is not None]
        called = stage.target.rpartition(".")[2]
        before = found.get(called, [])
        is_known = is_ours(stage.target) and len(known) == len(names)
        found[called] = [*before, *known] if before is not None and is_known else None
        if stage.target == PRETRAIN and arguments.get("eval_every") is not None:
            found["evaluation"] = []
    return found


def _items(value):
    return items_of(value) if value is None or isinstance(value, list | tuple | dict) else [value]


def _name_of(recipe, stage, value):
    """The task's name of a task, or of parallel text, in scores."""
    value = recipe.resolve(value)
    if not isinstance(value, Reference):
        return None
    arguments = recipe.arguments(replace(value, scope=value.scope or stage.scope))
    name, folder = arguments.get("name"), arguments.get("folder")
    if isinstance(folder, Reference) and is_ours(folder.target) and not list(recipe.bindings_of("", folder.target)):
        module, _, function = folder.target.rpartition(".")
        folder = str(getattr(importlib.import_module(module), function)())
    if isinstance(name, str):
        return name
    return f"retrieval/{Path(folder).name}" if isinstance(folder, str) else None


def _check_measures(study: Study, produced: Mapping[str, Mapping]) -> None:
    measures: dict[str, Measure] = {measure.name: measure for measure in study.measures}
    for measure in study.measures:
        definition_of(measure)  # before the first run: its values are kept with it
        if not any(measure.is_made_by(found) for found in produced.values()):
            advice = getattr(measure, "advice", "") or _scored(produced.values())
            said = "; ".join(filter(None, (f"measure {measure.name}: no stage of any arm produces it", advice)))
            raise UserError(said)
    for each in study.hypotheses:
        for arm in (each.arm, each.against):
            if not measures[each.measure].is_made_by(produced[arm]):
                raise UserError(f"hypothesis {each.name}: no stage of arm {arm} produces measure {each.measure}")


def _scored(produced):
    """What arms score, as measures name it; empty if they score nothing."""
    scoring = [(stage == "probe", names) for found in produced for stage, names in found.items() if may_score(stage)]
    whole, probed = (
        ", ".join(dict.fromkeys(name for is_probe, names in scoring if is_probe is by_layer for name in names or ()))
        for by_layer in (False, True)
    )
    said = " and ".join(filter(None, (whole, probed and f"by layer, for a LayerScore, {probed}")))
    return said and f"the arms score {said}"
