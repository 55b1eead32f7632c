"""Every recipe is parsed, built and stepped twice, all stages of it, at tiny sizes."""

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest

from rembed_keras import config
from rembed_keras.config.execution import stages_until
from tests.analysis.reports.test_terminal import printed, words
from tests.conftest import write_tiny_task

ROOT = Path(__file__).parents[2]
EVERY_RECIPE = sorted((ROOT / "recipes").rglob("*.gin"))
STUDIES = sorted((ROOT / "recipes/studies").glob("*.gin"))
RECIPES = [
    path for path in EVERY_RECIPE if path not in STUDIES and not {"finetune", "reallocate"} & {*path.parts}
]  # those that pre-train; training/stages/test_healing.py runs those of recipes/reallocate
KNOBS = {
    "STEPS",
    "BATCH_SIZE",
    "SEQUENCE_LENGTH",
    "LEARNING_RATE",
    "SEED",
    "CHECKPOINT_EVERY",
    "LOG_EVERY",
    "EVAL_EVERY",
    "HELD_OUT",
    "STRATEGY",
    "DTYPE",
    "WORKDIR",
}
SMALL = {
    "STEPS": 2,
    "BATCH_SIZE": 4,
    "SEQUENCE_LENGTH": 16,
    "CHECKPOINT_EVERY": 1,
    "LOG_EVERY": 1,
    "WARMUP_STEPS": 1,
    "VOCABULARY_SIZE": 900,
    "LANGUAGES": None,
    "INPUT_EMBEDDING_DIM": 8,
    "OUTPUT_EMBEDDING_DIM": 12,
    "NUM_LAYERS": 1,
    "KEPT_LAYERS": 1,
    "NUM_GROUPS": 1,
    "DECODER_LAYERS": 1,
    "GENERATOR_LAYERS": 1,
    "FINETUNE_EPOCHS": 1,
    "FINETUNE_SEEDS": "(0,)",
    "FINETUNE_EXAMPLES": 8,
}
# settings that say how pre-training takes its steps, and nothing of what follows
OF_TRAINING = re.compile(
    r"(?!finetune/)(.*/)?(training\.([A-Z]|pretrain\.(optimizer|steps|evaluators|keep_best))|data\.Mixture\.|"
    r"keras\.optimizers\.|evaluators\.)"
)
# those that say what is trained around the encoder
OF_OBJECTIVES = re.compile(r"training\.pretrain\.|modeling\.(?!Encoder)|objectives\.")


@pytest.fixture
def small(text_dir, corpus, held_out_corpus, pretrained, tmp_path):
    """Bindings of the command line that make a recipe small; its corpus is prepared already."""
    shutil.copytree(corpus.path, tmp_path / "run" / "corpus")
    write_tiny_task(tmp_path / "task")
    for name in ("help", "udhr"):
        (tmp_path / name).mkdir()
        for language in ("de", "en"):
            lines = [f"{language} The line {i} {'Ωμέγα ' * 6 * (i % 2)}\n" for i in range(12)]  # for all derived tasks
            (tmp_path / name / f"{language}.txt").write_text("".join(lines), encoding="utf-8")
    paths = {
        "training.prepare.text_dir": text_dir,
        "tasks.labelled_folder.folder": tmp_path / "task",
        "help/tasks.ParallelText.folder": tmp_path / "help",
        "declarations/tasks.ParallelText.folder": tmp_path / "udhr",
    }
    stages = ("pretrain", "finetune", "evaluate")

    def bindings(recipe):
        there = config.load(str(recipe))
        knobs = SMALL | {"WORKDIR": tmp_path / "run", "TEXT_DIR": text_dir, "TEACHER": pretrained}
        sizes = {"num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
        bound = {f"modeling.Encoder.{key}": value for key, value in sizes.items()}
        bound |= {key: path for key, path in paths.items() if key in there.configuration()}
        bound |= {
            f"training.{stage}.jit_compile": False
            for stage in stages
            if f"training.{stage}.encoder" in there.configuration()
        }
        if recipe.stem != "quickstart" and "training.finetune.encoder" in there.configuration():
            bound |= {f"training.{stage}.starts": "('pretrained',)" for stage in stages[1:]}  # quickstart has both
        if "PROBED" in there.knobs():  # all of them are read, and one of each kind is probed
            bound["training.probe.tasks"] = "[@tasks.Classification(), @capitals/tasks.Tagging()]"
            bound["training.probe.inverse_strengths"] = "(0.1, 1.0)"
        if "TEXT_DIR" in there.knobs():
            del bound["training.prepare.text_dir"]
        if there.knobs()["COUPLING"]["value"] in ("coupled", "gdes"):  # one width for both
            knobs["OUTPUT_EMBEDDING_DIM"] = knobs["INPUT_EMBEDDING_DIM"]
        if there.knobs()["EVAL_EVERY"]["value"] is not None:
            shutil.rmtree(tmp_path / "run" / "corpus")
            shutil.copytree(held_out_corpus.path, tmp_path / "run" / "corpus")
            held_out = held_out_corpus.manifest["settings"]["held_out"]
            knobs |= {"EVAL_EVERY": 2, "BATCH_SIZE": 16, "HELD_OUT": held_out}  # rows are read in batches, eagerly
            evaluators = str(there.configuration()["training.pretrain.evaluators"])
            bound |= {f"evaluators.{name}.rows": 4 for name in ("HeldOutLoss", "BitsPerByte") if name in evaluators}
        bound |= {key: value for key, value in knobs.items() if key in there.knobs()}
        bound |= {key: "(100,)" for key in there.configuration() if key.endswith("_cutoffs")}
        return [f"{key}={value}" for key, value in bound.items()]

    return bindings


def name_of(recipe):
    return recipe.relative_to(ROOT / "recipes").with_suffix("").as_posix()


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipe_says_what_it_costs_and_has_the_public_knobs(recipe):
    lines = recipe.read_text().splitlines()
    assert lines[0].startswith("# ") and any(line.startswith("#   rembed ") for line in lines)
    assert sum(" = " in line and not line.startswith("#") for line in lines) <= 20
    loaded = config.load(str(recipe))
    assert set(loaded.knobs()) >= KNOBS
    assert all(knob["about"] for knob in loaded.knobs().values())
    breakdown = config.ledger_of(loaded)
    assert breakdown.kept > 0
    stated = re.search(r"(\d+)M in pre-training(?: and kept|, (\d+)M kept)", " ".join(lines))
    if stated:  # the paper truncates or rounds
        total, kept = (int(number or stated[1]) for number in stated.groups())
        for millions, count in ((total, breakdown.paper_total), (kept, breakdown.paper_kept)):
            assert millions in (count // 10**6, round(count / 1e6))


@pytest.mark.parametrize("study", STUDIES, ids=name_of)
def test_a_study_can_be_run_keeps_its_results_under_its_name_and_breaks_no_word(study):
    plan = config.plan_study(str(study))  # takes seconds, and is done of each study here alone
    assert len({arm.checksum for arm in plan.arms}) == len(plan.arms)
    if study.stem != "smoke":
        assert plan.study.results == f"docs/results/{study.stem}"
    for table, width in itertools.product(plan.tables(None), (40, 80, 200)):
        shown = printed(table, width)
        assert words(table) <= set(shown.replace(":", " ").split()) | set(shown.split())
        assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize("block", sorted((ROOT / "gin").rglob("*.gin")), ids=lambda path: path.stem)
def test_every_block_is_part_of_a_recipe(block):
    name = block.relative_to(ROOT).as_posix()
    assert any(f'include "{name}"' in path.read_text() for path in (*EVERY_RECIPE, *(ROOT / "gin").rglob("*.gin")))


@pytest.fixture(scope="module")
def stepped():
    """What was run. Recipes that differ in sizes alone are the same at tiny sizes and run once, and stages that follow
    pre-training once for each objective, and once for each of their own settings and those of the encoder."""
    return set()


@pytest.mark.slow
@pytest.mark.usefixtures("without_graphs")  # graphs of all kinds of models are tested in modeling/
@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipe_takes_two_steps(recipe, small, stepped, tmp_path):
    loaded = config.load(str(recipe), small(recipe))
    values = {name: knob["value"] for name, knob in loaded.knobs().items()}
    bound = loaded.configuration()
    model = {key: value for key, value in bound.items() if not OF_TRAINING.match(key)}
    objective = {key: value for key, value in model.items() if OF_OBJECTIVES.match(key)}
    others = {key: value for key, value in model.items() if key not in objective}
    whole, *rest = (json.dumps(each).replace(str(tmp_path), "") for each in ([values, bound], objective, others))
    if whole in stepped:
        return
    chosen = stages_until(loaded, "pretrain") if stepped.issuperset(rest) else None
    stepped.update((whole, *rest))
    config.run(loaded, chosen)
    assert (tmp_path / "run/checkpoints/step-00000002/encoder.safetensors").exists()
    assert (tmp_path / "run/finished.json").exists() == (chosen is None)


@pytest.mark.slow
@pytest.mark.usefixtures("mirrored")
def test_two_replicas_are_fine_tuned_as_one_device_is(pretrained, tmp_path):
    write_tiny_task(tmp_path / "task")
    bound = {
        "training.finetune.jit_compile": False,
        "PRETRAINED": pretrained,
        "tasks.labelled_folder.folder": tmp_path / "task",
        "FINETUNE_METHODS": [],
        "FINETUNE_EXAMPLES": 8,
        "FINETUNE_SEQUENCE_LENGTH": 16,
        "FINETUNE_EPOCHS": 2,
        "FINETUNE_BATCH_SIZE": 4,
        "FINETUNE_SEEDS": "(0,)",
        "training.finetune.log_every": 1,
        "training.finetune.dropout": 0.0,  # each replica draws its own
    }
    logs = []
    for strategy in ("one_device", "mirrored"):
        given = bound | {"STRATEGY": strategy, "WORKDIR": tmp_path / strategy}
        recipe = config.load(str(ROOT / "recipes/finetune/topics.gin"), [f"{key}={given[key]}" for key in given])
        config.run(recipe, stages_until(recipe, "finetune"))
        rows = (tmp_path / strategy / "metrics.jsonl").read_text().splitlines()
        logs.append([json.loads(row) for row in rows])
    assert len(logs[0]) == len(logs[1]) > 2
    for one, two in zip(*logs, strict=True):
        assert (one["run"], one["step"]) == (two["run"], two["step"])
        values = [[row[key] for key in ("loss", "accuracy", "grad_norm", "learning_rate")] for row in (one, two)]
        assert values[0] == pytest.approx(values[1], rel=1e-4)
