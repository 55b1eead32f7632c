"""A smoke run: what costs is bounded in any recipe, what the command line says stays, and a real run is not touched."""

import json
from pathlib import Path

import pytest

from rembed_keras import config
from rembed_keras.analysis.pages.records import SMOKE
from rembed_keras.config.recipes.recipe import ROOT as RUN_ROOT
from rembed_keras.config.recipes.recipe import RUN
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.config.recipes.uses import Uses
from rembed_keras.errors import UserError
from rembed_keras.training.loop.same_recipe import begin_smoke
from rembed_keras.training.stages.run import RunRecord, run

ROOT = Path(__file__).parents[3]
RECIPES = {
    "quickstart": "recipes/quickstart.gin",
    "overnight": "recipes/overnight.gin",
    "bands": "recipes/options/embeddings/bands.gin",
    "probes": "recipes/options/probes.gin",
    "deeper": "recipes/paper/english/twelve_more_layers.gin",
    "billions": "recipes/allocations/xlmr_xxl.gin",
    "a head wider than its table": "recipes/allocations/mobilebert.gin",
    "two heads for a generator": "recipes/studies/arms/modern_replaced_tokens.gin",
    "healing": "recipes/reallocate/heal_distill.gin",
    "official": "recipes/finetune/xtreme/xnli.gin",
    "mining": "recipes/finetune/xtreme/bucc2018.gin",
    "one task after another": "recipes/finetune/stilts.gin",
    "own parts": "examples/own_parts/recipe.gin",
}
MOST = {
    "steps": 20,
    "warmup_steps": 5,
    "epochs": 1,
    "batch_size": 16,
    "sequence_length": 128,
    "checkpoint_every": 10,
    "most": 64,
    "most_lines": 64,
    "excerpt_megabytes": 0.5,
    "rows": 32,
    "vocabulary_size": 3000,
}


def smoked(name, *bindings):
    trusted = ["own_parts"] if name == "own parts" else []
    recipe = config.load(str(ROOT / RECIPES[name]), bindings, trusted)
    bound = config.smoke(recipe)
    return recipe, bound, recipe.arguments(RUN)["workdir"]


@pytest.mark.parametrize("name", RECIPES)
def test_what_costs_is_bounded_in_any_recipe(name):
    recipe, _, workdir = smoked(name)
    assert workdir.startswith("runs/") and workdir.endswith("-smoke")
    bound = {binding.key: recipe.resolve(binding.value) for binding in recipe.bindings.values()}
    over = {key: value for key, value in bound.items() if isinstance(value, int | float) and not isinstance(value, bool)
            and value > MOST.get(key.rpartition(".")[2], float("inf"))}  # fmt: skip
    assert not over
    for key, value in bound.items():
        if key.endswith((".seeds", ".learning_rates")):
            assert len(value) == 1, key
    for target, scope in Uses(recipe.history, RUN_ROOT).called():
        splits = recipe.arguments(Reference(scope, "", target, False)).get("splits")
        assert splits is None or target.endswith(".excerpt") or splits.target.endswith("tasks.excerpt"), target
    ledger = config.ledger_of(recipe) if name != "own parts" else None  # whose modules are not on the path here
    assert ledger is None or ledger.total < 2_000_000
    again = config.load(str(ROOT / RECIPES[name]), (), ["own_parts"])
    assert recipe.text() != again.text()


def test_what_the_command_line_says_stays():
    recipe, bound, workdir = smoked("deeper", "STEPS=33", "WORKDIR=mine", "modeling.Encoder.num_heads=12")
    assert workdir == "mine" and {"STEPS", "WORKDIR"}.isdisjoint(each.key for each in bound)
    values = recipe.configuration()
    assert recipe.knobs()["STEPS"]["value"] == 33
    assert (values["modeling.Encoder.num_heads"], values["modeling.Encoder.hidden_dim"]) == (12, 768)  # they agree
    assert recipe.knobs()["NUM_LAYERS"]["value"] == 2
    config.ledger_of(recipe)


def test_examples_that_have_every_label_are_chosen_from_all_that_the_recipe_reads():
    recipe, bound, _ = smoked("quickstart")
    assert recipe.knobs()["FINETUNE_EXAMPLES"]["value"] == 500, "the first 64 of a file may have one label alone"
    assert "FINETUNE_EXAMPLES" not in {each.key for each in bound}


def test_each_of_several_pretrainings_ends_later_than_the_one_before(tmp_path):
    lines = ["from __gin__ import dynamic_registration", "from rembed_keras import training"]
    lines += [f'include "{ROOT}/recipes/quickstart.gin"', "more/training.pretrain.steps = 3000"]
    lines += ["more/training.WarmupLinearDecay.total_steps = 3000"]
    lines += ["training.run.stages = [@training.prepare, @training.pretrain, @more/training.pretrain]", ""]
    (tmp_path / "recipe.gin").write_text("\n".join(lines))
    recipe = config.load(str(tmp_path / "recipe.gin"))
    config.smoke(recipe)
    assert [phase.steps for phase in config.ledger_of(recipe).phases] == [20, 20]
    assert not config.cautions(recipe)


def two_pretrainings(folder, *bindings):
    """A smoke run of a recipe with two pre-trainings, of which the second has a knob for its steps."""
    lines = ["from __gin__ import dynamic_registration", "from rembed_keras import training"]
    lines += [f'include "{ROOT}/recipes/quickstart.gin"', "MORE = 3000", "more/training.pretrain.steps = %MORE"]
    lines += ["more/training.WarmupLinearDecay.total_steps = %MORE"]
    lines += ["training.run.stages = [@training.prepare, @training.pretrain, @more/training.pretrain]", ""]
    (folder / "recipe.gin").write_text("\n".join(lines))
    recipe = config.load(str(folder / "recipe.gin"), bindings)
    config.smoke(recipe)
    return recipe


def test_a_knob_of_several_parts_is_bounded_once(tmp_path):
    recipe = two_pretrainings(tmp_path)
    assert [phase.steps for phase in config.ledger_of(recipe).phases] == [20, 20]
    assert recipe.knobs()["OUTPUT_EMBEDDING_DIM"]["value"] == 128 + 256 // 32


def test_a_pretraining_goes_on_from_the_end_that_the_command_line_gives_the_one_before(tmp_path):
    recipe = two_pretrainings(tmp_path, "STEPS=50")
    assert [phase.steps for phase in config.ledger_of(recipe).phases] == [50, 20]


MANY = ("Blocks", "Reinitialize", "FisherChosen", "RoAd")


def test_what_fits_the_whole_model_fits_the_small_one(tmp_path):
    lines = [
        "from __gin__ import dynamic_registration",
        "from rembed_keras.adaptation import methods",
        "from rembed_keras import modeling",
        "from rembed_keras import training",
        'include "recipes/quickstart.gin"',
        "NUM_LAYERS = 6",
        "STEPS = 9000",
        "BATCH_SIZE = {0: 2048, 4000: 512}",
        "SEQUENCE_LENGTH = {0: 64, 4000: 128}",
        "modeling.MaskedLM.micro_batches = 32",
        "modeling.Encoder.hidden_dim = 768",
        "modeling.Encoder.num_heads = 12",
        f"training.finetune.methods = [{', '.join(f'@methods.{each}()' for each in MANY)}]",
        "methods.FisherChosen.units = 'blocks'",
        "methods.FisherChosen.count = 3",
        "methods.RoAd.group_size = 96",
        "methods.Blocks.layers = [4, 5]",
        "methods.Reinitialize.num_layers = 3",
    ]
    (tmp_path / "recipe.gin").write_text("\n".join([*lines, ""]))
    recipe = config.load(str(tmp_path / "recipe.gin"))
    config.ledger_of(recipe)
    config.smoke(recipe)
    knobs, values = recipe.knobs(), recipe.configuration()
    assert knobs["BATCH_SIZE"]["value"] == {"0": 32, "4000": 32}  # rows that 32 micro-batches share
    assert knobs["SEQUENCE_LENGTH"]["value"] == {"0": 64, "4000": 128}
    assert (values["methods.Blocks.layers"], values["methods.Reinitialize.num_layers"]) == ([1], 2)
    assert (values["methods.FisherChosen.count"], values["methods.RoAd.group_size"]) == (2, None)
    config.ledger_of(recipe)
    (tmp_path / "kept.gin").write_text("\n".join([*lines, "modeling.MaskedLM.kept_layers = 6", ""]))
    kept = config.load(str(tmp_path / "kept.gin"), ["modeling.MaskedLM.micro_batches=4"])
    config.smoke(kept)
    assert kept.configuration()["methods.Blocks.layers"] == [0] and kept.knobs()["BATCH_SIZE"]["value"]["0"] == 16


def test_what_becomes_training_data_is_cut_once_it_is(tmp_path):
    """Of test examples that are sorted by their label the first ones may have one alone."""
    lines = ["from __gin__ import dynamic_registration", "from rembed_keras import tasks"]
    lines += [f'include "{ROOT}/recipes/quickstart.gin"', 'tasks.in_language.language = "de"']
    lines += ["tasks.in_language.splits = @tasks.labelled_folder()", "tasks.labelled_folder.folder = 'labelled'"]
    lines += ["tasks.Classification.splits = @tasks.in_language()", ""]
    (tmp_path / "recipe.gin").write_text("\n".join(lines))
    recipe = config.load(str(tmp_path / "recipe.gin"))
    config.smoke(recipe)
    called = dict(Uses(recipe.history, RUN_ROOT).called())
    assert "rembed_keras.tasks.excerpt" in called
    inner = recipe.arguments(
        Reference(called["rembed_keras.tasks.in_language"], "", "rembed_keras.tasks.in_language", False)
    )
    assert inner["splits"].target == "rembed_keras.tasks.labelled_folder"


def test_an_excerpt_of_ones_own_is_cut_by_its_size(tmp_path):
    lines = ["from __gin__ import dynamic_registration", "from rembed_keras import tasks", "tasks.excerpt.most = 200"]
    lines += [f'include "{ROOT}/recipes/finetune/own_files.gin"', "tasks.Classification.splits = @tasks.excerpt()"]
    (tmp_path / "recipe.gin").write_text("\n".join([*lines, "tasks.excerpt.splits = @tasks.labelled_files()", ""]))
    recipe = config.load(str(tmp_path / "recipe.gin"))
    config.smoke(recipe)
    found = recipe.configuration()
    assert found["tasks.excerpt.most"] == 64 and len([key for key in found if "excerpt.splits" in key]) == 1


def test_a_student_stays_as_wide_as_its_teacher_asks(tmp_path):
    text = """
from __gin__ import dynamic_registration
from rembed_keras import adaptation
from rembed_keras import modeling
from rembed_keras import training
from rembed_keras.adaptation import teachers
include "recipes/options/embeddings/coupled.gin"
modeling.Encoder.num_heads = 12
modeling.Encoder.hidden_dim = 768
NUM_LAYERS = 4
training.pretrain.model = @adaptation.Distillation
adaptation.Distillation.teacher = @teachers.Teacher()
adaptation.Distillation.states = [0, 4]
adaptation.Distillation.relation_heads = 48
teachers.Teacher.place = "theirs"
"""
    (tmp_path / "recipe.gin").write_text(text)
    recipe = config.load(str(tmp_path / "recipe.gin"))
    config.smoke(recipe)
    values = recipe.configuration()
    assert values["adaptation.Distillation.states"] == [0] and recipe.knobs()["NUM_LAYERS"]["value"] == 2
    assert (values["modeling.Encoder.num_heads"], values["modeling.Encoder.hidden_dim"]) == (12, 768)


def test_a_model_that_is_taken_from_a_folder_keeps_its_sizes(pretrained):
    recipe, _, _ = smoked("billions", f"INITIAL={pretrained}")
    assert recipe.configuration()["modeling.Encoder.hidden_dim"] == 4096


def test_a_folder_of_another_run_is_left_alone(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/scores.json").write_text("[]")
    with pytest.raises(UserError, match="has files that no smoke run made"):
        begin_smoke(str(tmp_path / "real"))
    assert (tmp_path / "real/scores.json").read_text() == "[]"
    begin_smoke(str(tmp_path / "smoke"))
    (tmp_path / "smoke/checkpoints").mkdir()
    begin_smoke(str(tmp_path / "smoke"))
    assert {each.name for each in (tmp_path / "smoke").iterdir()} == {".lock", SMOKE}


def test_the_folder_of_a_smoke_run_takes_no_other_run(tmp_path):
    folder = str(tmp_path / "smoke")
    begin_smoke(folder)  # and the smoke run fails
    with pytest.raises(UserError, match=r"is of a smoke run, see SMOKE\.txt in it: remove the folder"):
        run([], folder, RunRecord("STEPS = 3\n", str))
    assert {each.name for each in (tmp_path / "smoke").iterdir()} == {".lock", SMOKE}
    run([], folder, RunRecord("STEPS = 3\n", str, is_smoke=True))


PRETRAINS = """\
include "gin/models/tiny.gin"
include "gin/objectives/masked_lm.gin"
include "gin/optimizers/adamw.gin"
include "gin/runtime/pretrain.gin"
include "gin/data/folder.gin"
from __gin__ import dynamic_registration
from rembed_keras import training
VOCABULARY_SIZE = 900
WORKDIR = "real"
HELD_OUT = 0.01
EVAL_EVERY = 500
training.run.stages = [@training.prepare, @training.pretrain]
"""


def test_a_smoke_run_that_is_refused_makes_and_empties_no_folder(tmp_path, text_dir, command):
    (tmp_path / "recipe.gin").write_text(PRETRAINS)
    begin_smoke(str(tmp_path / "earlier"))
    (tmp_path / "earlier/ledger.json").write_text("{}")
    mistakes = {
        "WORKDIR=~/run": "begins with ~",
        "WORKDIR=''": "is empty",
        f"WORKDIR={text_dir}/run": "in the folder of the text",
        "modeling.Encoder.num_heads=7": "it must divide hidden_dim",
    }
    for word, said in mistakes.items():
        words = f"TEXT_DIR={text_dir}", word, *(() if "WORKDIR" in word else ("WORKDIR=earlier",))
        code, _, err = command("run", "recipe.gin", "--smoke", *words, cwd=tmp_path)
        assert code == 2 and said in err, err
    assert {each.name for each in tmp_path.iterdir()} == {"recipe.gin", "earlier"}
    assert (tmp_path / "earlier/ledger.json").exists() and not (text_dir / "run").exists()


@pytest.mark.usefixtures("without_graphs")
def test_a_smoke_run_ends_and_says_that_it_means_nothing(tmp_path, text_dir, command):
    (tmp_path / "recipe.gin").write_text(PRETRAINS)
    folder = tmp_path / "real-smoke"
    begin_smoke(str(folder))  # an earlier smoke run, of which it finds nothing
    (folder / "metrics.jsonl").write_text('{"run": "earlier", "step": 99}\n')
    (folder / "checkpoints/step-00000099").mkdir(parents=True)
    words = ("run", "recipe.gin", "--smoke", f"TEXT_DIR={text_dir}", "STEPS=3", "SEQUENCE_LENGTH=16")
    code, out, err = command(*words, cwd=tmp_path)
    assert code == 0, err
    lines = out.splitlines()
    assert "Nothing that it prints or writes means anything." in lines[0]
    assert lines[-1] == "Smoke run: it went through. Nothing that it prints or writes means anything."
    listed = lines[1 : next(i for i, line in enumerate(lines) if line.startswith("tensorboard"))]
    assert "excerpt_megabytes = 0.5" in " ".join(listed) and all(len(line) <= 80 for line in listed)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {row["run"] for row in rows} == {"pretrain", "evaluation"} and max(row["step"] for row in rows) == 3
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-00000003"]
    assert sum(path.stat().st_size for path in (folder / "excerpt").iterdir()) < 600_000
    assert (folder / SMOKE).is_file()  # so that the next one may empty it
    assert not (tmp_path / "real").exists()
