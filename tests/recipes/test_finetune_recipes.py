"""Every recipe of fine-tuning runs to its end on files in the official formats, from a run that pre-trained."""

import json
import re
from pathlib import Path

import pytest

from rembed_keras import config
from rembed_keras.config.ledgers import pretraining
from rembed_keras.config.making import sizes_of
from tests.tasks import official

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes/finetune").rglob("*.gin"))
MANY = {"xnli": "en de th", "udpos": "en de kk", "panx": "en de th", "tatoeba": "de th"}  # some of up to 40 languages
BUNDLED = ("finetune", "methods", "terms")  # folders of recipes on data that is no suite's
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("without_graphs"),  # graphs of each kind of task are tested in training/stages
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for suite in ("glue", "superglue", "xtreme"):
        getattr(official, suite)(folder / suite)
    return folder


def name_of(recipe):
    return recipe.relative_to(ROOT / "recipes/finetune").with_suffix("").as_posix()


def write_labelled(folder, **times):
    folder.mkdir()
    for part in ("train.en", "dev.en", "test.en", "test.de"):
        rows = "open the door\ta\nclose it\tb\n" * (2 if part == "train.en" else times.get(part.partition(".")[2], 1))
        (folder / f"{part}.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")


FISHER = "methods.FisherChosen"
OWN = {
    "own_files": (
        [{"text": "open", "label": "a", "next": "the door"}, {"text": "close", "label": "b", "next": "it"}],
        {"PAIR": "next", "TRAIN_LANGUAGE": "de"},
    ),
    "own_tags": ([{"tokens": ["open", "Base"], "ner_tags": ["O", "B-APP"]}], {"TAGS": "ner_tags"}),
    "own_questions": (
        [{"question": "what", "context": "the door", "answers": {"text": ["door"], "answer_start": [4]}}],
        {},
    ),
}


def write_own(folder, name):
    rows, knobs = OWN[name]
    for part in ("train", "test.de", "test.en"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{part}.jsonl").write_text(text, encoding="utf-8")
    return {"TRAIN": folder / "train.jsonl", "TEST": f"{folder}/test.{{language}}.jsonl"} | knobs


def write_sections(folder, recipe):
    write_labelled(folder / "sections")
    small = {name: [-1] for name in ("MIDDLE_LAYERS", "UPPER_LAYERS") if name in recipe.knobs()}  # there is one block
    small |= {f"{FISHER}.batches": 1} if f"{FISHER}.units" in recipe.configuration() else {}  # all are the same
    return {"TASK_DIR": folder / "sections"} | small


def write_bundled(folder, recipe):
    """A folder for each table and each parallel text that a recipe names."""
    write_labelled(folder / "task", de=10 if "tasks.in_language.language" in recipe.configuration() else 1)
    there = []
    for key in recipe.configuration():
        if key.endswith("tasks.labelled_folder.folder"):
            there.append((key, folder / "task"))
        elif key.endswith("tasks.ParallelText.folder"):
            there.append((key, folder / "parallel" / key.partition("/")[0]))
            there[-1][1].mkdir(parents=True)
            for language in ("de", "en"):
                (there[-1][1] / f"{language}.txt").write_text(f"{language} one\n{language} two\n", encoding="utf-8")
    small = {"TASK_DIR": folder / "task", "KEPT_LAYERS": 1, "FINETUNE_EXAMPLES": None}
    bound = {key: path for key, path in there if recipe.configuration()[key] != "%TASK_DIR"}
    return bound | {key: value for key, value in small.items() if key in recipe.knobs()}


def few_languages(task):
    """Of tasks in many languages; tests/tasks/suites reads them all, and pawsx is scored in all that it has."""
    chosen = MANY.get(task, "").split()
    given = {"languages": chosen, "dev_languages": [each for each in chosen if each != "kk"]}
    given = given if task != "tatoeba" else {"languages": chosen}
    return {f"xtreme.{task}.{name}": repr(languages) for name, languages in given.items() if chosen}


@pytest.mark.filterwarnings("ignore:.*skipped .* broken rows:UserWarning")
@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipe_of_fine_tuning_runs_to_its_end(recipe, pretrained, data, tmp_path):
    loaded = config.load(str(recipe))
    suite = recipe.parent.name
    bound = {"PRETRAINED": pretrained, "WORKDIR": tmp_path / "run"}
    bound |= {"TASK_DIR": data / suite} if (data / suite).exists() else {}
    if "training.finetune.seeds" in loaded.configuration():
        bound |= {"FINETUNE_EPOCHS": 1, "FINETUNE_SEEDS": "(0,)", "FINETUNE_LEARNING_RATES": "(1e-3,)"}
        bound |= {"FINETUNE_SEQUENCE_LENGTH": 32, "FINETUNE_BATCH_SIZE": 4, "training.finetune.jit_compile": False}
        bound |= {"training.evaluate.jit_compile": False, "FINETUNE_STARTS": "('pretrained',)"}  # quickstart has both
    if recipe.stem in OWN:
        bound |= write_own(tmp_path, recipe.stem)
    elif suite in BUNDLED:
        bound |= (write_bundled if suite == "finetune" else write_sections)(tmp_path, loaded)
    bound |= few_languages(recipe.stem)
    if recipe.stem == "tydiqa":
        bound["xtreme.tydiqa.dev_size"] = 1
    config.run(config.load(str(recipe), [f"{key}={value}" for key, value in bound.items()]))
    run = tmp_path / "run"
    assert (run / "finished.json").exists()
    if recipe.stem in OWN:
        assert {score["language"] for score in json.loads((run / "scores.json").read_text())} == {"de", "en"}
        return
    if recipe.stem == "layers":
        assert (run / "layers.png").exists()
        tasks = {score["task"].split("/")[1] for score in json.loads((run / "scores.json").read_text())}
        assert tasks == {"sections", "intents", "intents_de", "libreoffice", "wesnoth", "gnome", "udhr"}
        return
    if suite in BUNDLED:
        report = (run / "report/report.md").read_text()
        tasks = json.loads((run / "ledger.json").read_text())["tasks"]
        assert tasks and all(name in report and task["trainable"] > 0 for name, task in tasks.items())
        return
    if recipe.stem != "tatoeba":  # it has no gold pairs
        scores = json.loads((run / "scores.json").read_text())
        assert {score["task"] for score in scores} == {recipe.stem}
    assert list((run / "submission").rglob("*"))


@pytest.mark.parametrize("name", ["glue/mrpc", "superglue/copa", "xtreme/bucc2018"])
def test_a_recipe_of_fine_tuning_is_smoked(name, pretrained, data, tmp_path):
    knobs = {"PRETRAINED": pretrained, "WORKDIR": tmp_path / "run", "TASK_DIR": data / name.partition("/")[0]}
    bindings = [f"{key}={value}" for key, value in knobs.items()]
    bindings += (
        [] if name.endswith("bucc2018") else ["FINETUNE_SEQUENCE_LENGTH=32", "training.finetune.jit_compile=False"]
    )
    recipe = config.load(str(ROOT / "recipes/finetune" / f"{name}.gin"), bindings)
    config.smoke(recipe)
    config.run(recipe)
    assert (tmp_path / "run/finished.json").exists() and list((tmp_path / "run/submission").rglob("*"))


SOURCES = {"runs/coupled_encoder": "reallocate/coupled_encoder", "runs/overnight": "overnight"}


@pytest.mark.parametrize("recipe", [each for each in RECIPES if each.parent.name in BUNDLED], ids=name_of)
def test_a_recipe_suits_the_encoder_that_it_names(recipe, monkeypatch):
    named = [*re.findall("rembed run .* PRETRAINED=(\\S+)", recipe.read_text(encoding="utf-8"))]
    loaded = config.load(str(recipe), [f"PRETRAINED={each}" for each in named])
    place = loaded.knobs()["PRETRAINED"]["value"]
    source = config.load(str(ROOT / f"recipes/{SOURCES.get(place, Path(place).name)}.gin"))
    sizes = sizes_of(source, source.arguments(pretraining(source))["encoder"])
    monkeypatch.setattr("rembed_keras.config.misfits.stages.initial_arguments", lambda *given, **options: sizes)
    config.ledger_of(loaded)
