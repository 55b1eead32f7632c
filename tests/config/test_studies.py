"""A study's file: what is wrong with it, or with an arm, is found before anything is run."""

import json
import re
from pathlib import Path

import pytest

from rembed_keras import config
from rembed_keras.analysis.studies import LayerScore, Score
from rembed_keras.config.studies import _scored, _stages
from rembed_keras.errors import UserError
from tests.analysis.studies.two_arms import STUDY

ONE = 'one/studies.Arm.recipe = "recipes/quickstart.gin"'


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Plans a study of this text, with the bindings of a command line."""
    monkeypatch.chdir(tmp_path)

    def plan(*bindings, text=STUDY):
        Path("own.gin").write_text(text)
        return config.plan_study("own.gin", bindings)

    return plan


def bound(run):
    """What a run's command binds."""
    return dict(word.split("=", 1) for word in run.command if "=" in word)


def test_a_plan_has_a_run_of_each_arm_from_each_seed(planned):
    plan = planned()
    assert [run.name for run in plan.runs] == ["wide-seed0", "one-seed0", "wide-seed1", "one-seed1"]
    one = plan.runs[3]
    assert one.command[:2] == ["run", "recipes/quickstart.gin"]
    expected = {"COUPLING": "coupled", "OUTPUT_EMBEDDING_DIM": "64", "STEPS": "30", "SEED": "1"}
    assert bound(one) == expected | {"WORKDIR": "study/runs/one-seed1"}
    loaded = config.load(one.command[1], one.command[2:])
    assert loaded.knobs()["SEED"]["value"] == 1


def test_arms_have_the_ledgers_of_their_recipes(planned):
    wide, one = planned().arms
    for arm, bindings in ((wide, ["OUTPUT_EMBEDDING_DIM=512"]), (one, ["COUPLING=coupled", "OUTPUT_EMBEDDING_DIM=64"])):
        ledger = config.ledger_of(config.load("recipes/quickstart.gin", bindings))
        assert (arm.kept, arm.dropped) == (ledger.kept, ledger.dropped)


def test_knobs_of_the_command_line_are_the_studys_or_else_every_arms(planned):
    plan = planned("SEEDS=(3,)", "STEPS=5", "modeling.Encoder.dropout=0.0")
    assert [run.name for run in plan.runs] == ["wide-seed3", "one-seed3"]
    assert all((bound(run)["STEPS"], bound(run)["modeling.Encoder.dropout"]) == ("5", "0.0") for run in plan.runs)


def test_the_command_line_wins_over_an_arm_and_an_arm_over_the_study(planned):
    text = STUDY.replace('"COUPLING=coupled"', '"COUPLING=coupled", "STEPS=40"')
    assert [bound(run)["STEPS"] for run in planned(text=text).runs] == ["30", "40"] * 2
    assert [bound(run)["STEPS"] for run in planned("STEPS=5", text=text).runs] == ["5"] * 4


def test_a_knob_that_some_arms_have_is_bound_in_those(planned):
    text = STUDY.replace(ONE, 'one/studies.Arm.recipe = "recipes/options/objectives/late_masking.gin"')
    text = text.replace('["COUPLING=coupled", "OUTPUT_EMBEDDING_DIM=64"]', "[]").replace(
        'measure = "topics"', 'measure = "loss"'
    )
    wide, one = planned("FINETUNE_EPOCHS=1", "SEEDS=(0,)", text=text).runs
    assert "FINETUNE_EPOCHS" in bound(wide) and "FINETUNE_EPOCHS" not in bound(one)


def test_a_knob_of_a_part_that_an_arm_replaces_is_bound_in_the_others(planned):
    lion = '"OUTPUT_EMBEDDING_DIM=64", "training.pretrain.optimizer=@keras.optimizers.Lion"'
    text = STUDY.replace('["STEPS=30"]', '["STEPS=30", "WEIGHT_DECAY=0.1"]').replace('"OUTPUT_EMBEDDING_DIM=64"', lion)
    wide, one = planned("SEEDS=(0,)", text=text).runs
    assert bound(wide)["WEIGHT_DECAY"] == "0.1" and "WEIGHT_DECAY" not in bound(one) and bound(one)["STEPS"] == "30"
    both = text.replace('"OUTPUT_EMBEDDING_DIM=512"', lion)
    with pytest.raises(UserError, match=r"WEIGHT_DECAY=0\.1: no arm of the study has the knob WEIGHT_DECAY: each repl"):
        planned(text=both)


def test_arms_share_a_corpus_if_they_prepare_it_alike(planned):
    alike = planned()
    assert len(alike.corpora) == 1 and alike.corpora[0].arms == ("wide", "one")
    assert {run.corpus for run in alike.runs} == {alike.corpora[0].folder}
    other = planned(text=STUDY.replace('"COUPLING=coupled"', '"COUPLING=coupled", "VOCABULARY_SIZE=4000"'))
    assert [corpus.arms for corpus in other.corpora] == [("wide",), ("one",)]
    own = planned(text=STUDY.replace('"STEPS=30"', '"STEPS=30", "training.pretrain.corpus=\'mine\'"'))
    assert not own.corpora


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('against = "one"', 'against = "on"', "hypothesis wide is better: there is no arm 'on'; did you mean one?"),
        ('against = "one"', 'against = "wide"', "hypothesis wide is better compares arm wide with itself"),
        ('measure = "topics"', 'measure = "topic"', "there is no measure 'topic'; did you mean topics?"),
        ('Arm.name = "one"', 'Arm.name = "wide"', "'wide' names more than one arm of the study"),
        ('Arm.name = "one"', 'Arm.name = "a/b"', "'a/b' cannot name an arm: use letters"),
        ("(0, 1)", "(0, 0)", "the study has a seed twice: 0, 0"),
        ("(0, 1)", "()", "a study needs seeds"),
        ("(0, 1)", "(0, -1)", "SEEDS is (0, -1); it must be a list, each a whole number from 0 to"),
        ('Score.task = "topics"', 'Score.task = "topcs"', "measure topics: no stage of any arm produces it"),
        ('Logged.name = "loss"', 'Logged.name = "loss"\nloss/studies.Logged.run = "warm"', "measure loss: no stage"),
        (
            'Logged.name = "loss"',
            'Logged.name = "loss"\nloss/studies.Logged.run = "evaluation"',
            "measure loss: no stage of any arm produces it; set EVAL_EVERY",
        ),
        ('"higher"', '"more"', "h/studies.Hypothesis.expected is 'more'; it must be one of higher, lower"),
        ('WORKDIR = "study"', 'WORKDIR = ""', "studies.Study.workdir is empty: name a folder"),
        ('WORKDIR = "study"', 'WORKDIR = "study"\nstudies.Study.results = ""', "studies.Study.results is empty: name"),
        ('WORKDIR = "study"', 'WORKDIR = "~/study"', "studies.Study.workdir ~/study begins with ~, which no shell"),
        ("SEEDS =", 'studies.Study.known_results = ["~/a"]\nSEEDS =', "studies.Study.known_results ~/a begins with ~"),
        ('SEEDS =', 'studies.Study.alpha = 1e-300\nSEEDS =', "studies.Study.alpha is 1e-300; it must be at least"),
        ('["STEPS=30"]', '["STEP=30"]', "has a knob STEP; did you mean STEPS?"),
        ('["STEPS=30"]', '["SEED=3"]', "SEED=3: the study sets SEED of its runs"),
        ('["STEPS=30"]', '["STEPS=many"]', "arm wide: STEPS is 'many'; it must be a whole number"),
        ('"COUPLING=coupled"', '"COUPLNG=coupled"', "arm one: the recipe has no knob COUPLNG; did you mean COUPLING?"),
        ('"OUTPUT_EMBEDDING_DIM=64"', '"NUM_LAYERS=0"', "arm one: "),
        (ONE, 'one/studies.Arm.recipe = "gone.gin"', "arm one: recipe gone.gin is not there"),
        ('WORKDIR = "study"', 'WORKDIR = "study"\nOTHER = 3', "own.gin:4: nothing uses OTHER"),
        ("SEEDS =", 'x/studies.Arm.name = "x"\nSEEDS =', "own.gin:4: nothing uses x/studies.Arm.name"),
        (ONE, "", "Arm has no 'recipe': bind it in the recipe"),
        ("studies.Study.workdir = %WORKDIR\n", 'studies.Study.name = %WORKDIR\n', "has no parameter name"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(planned, old, new, message):
    assert STUDY.count(old) == 1, old
    with pytest.raises(UserError) as error:
        planned(text=STUDY.replace(old, new))
    assert message in str(error.value)
    assert not Path("study").exists()


STAGES = """\
from __gin__ import dynamic_registration
from rembed_keras import tasks
from rembed_keras import training
include "gin/tasks/finetune.gin"
SEED = 0
training.finetune.seeds = (%SEED,)
training.evaluate.seeds = (%SEED,)
tasks.Classification.splits = @tasks.labelled_folder()
tasks.labelled_folder.folder = "none"
sections/tasks.Classification.name = "sections"
intents/tasks.Classification.name = "intents"
sections/training.finetune.task = @sections/tasks.Classification()
sections/training.evaluate.task = @sections/tasks.Classification()
intents/training.finetune.task = @intents/tasks.Classification()
intents/training.evaluate.task = @intents/tasks.Classification()
training.run.stages = [
    @sections/training.finetune, @sections/training.evaluate, @intents/training.finetune, @intents/training.evaluate,
    @training.tabulate]
"""


def test_stages_of_one_name_score_all_their_tasks_and_a_table_none(planned, tmp_path):
    (tmp_path / "stages.gin").write_text(STAGES)
    text = STUDY.replace('"recipes/quickstart.gin"', '"stages.gin"').replace("@loss/studies.Logged(), ", "")
    text = text.replace('loss/studies.Logged.name = "loss"\n', "").replace('"STEPS=30"', "")
    text = text.replace('["OUTPUT_EMBEDDING_DIM=512"]', "[]").replace(
        '["COUPLING=coupled", "OUTPUT_EMBEDDING_DIM=64"]', "[]"
    )
    for task in ("sections", "intents"):
        plan = planned(text=text.replace('Score.task = "topics"', f'Score.task = "{task}"'))
        assert [arm.measures for arm in plan.arms] == [["topics"]] * 2
    with pytest.raises(UserError, match=r"no stage of any arm produces it; the arms score sections, intents$"):
        planned(text=text)
    trained = STAGES.replace(" @intents/training.evaluate,", "").replace("intents/training.evaluate.task", "# task")
    (tmp_path / "stages.gin").write_text(trained)
    with pytest.raises(UserError, match=r"no stage of any arm produces it; the arms score sections$"):
        planned(text=text.replace('Score.task = "topics"', 'Score.task = "intents"'))


def test_a_probe_scores_each_layer_of_its_tasks_and_a_stage_of_ones_own_what_it_likes():
    recipe = config.load("recipes/studies/arms/modern.gin", ["training.probe.parallel=[@help/tasks.ParallelText()]"])
    stages = _stages(recipe)
    assert stages["probe"] == ["capitals", "capitals-de", "retrieval/help"]
    assert LayerScore("a", "capitals-de").is_made_by(stages) and not LayerScore("a", "captals").is_made_by(stages)
    known = ("retrieval/udhr", "probe/capitals/layer2", "retrieval/help/layer0")
    assert all(Score("a", task).is_made_by(stages) for task in known)
    unknown = ("retrieval/hlp", "capitals", "probe/capitals/last", "capitals/layer2", "probe/retrieval/help/layer0")
    assert not any(Score("a", task).is_made_by(stages) for task in unknown)
    advice = "the arms score retrieval/help, retrieval/udhr and by layer, for a LayerScore, capitals, capitals-de"
    assert _scored([_stages(config.load("recipes/studies/arms/modern.gin"))]) == advice and _scored([]) == ""
    words = config.load("recipes/studies/arms/modern.gin", ["training.probe.tasks=[]", "training.probe.words=['de']"])
    assert _stages(words)["probe"] == [] and not Score("a", "capitals").is_made_by(_stages(words))
    own = config.load("recipes/studies/arms/modern.gin", ["training.run.stages=[@own_parts.stage]"], ["own_parts"])
    assert Score("a", "retrieval/hlp").is_made_by(_stages(own))


def test_mining_scores_what_its_name_says():
    stages = _stages(config.load("recipes/finetune/xtreme/tatoeba.gin"))
    assert stages == {"mine": ["tatoeba"]} and Score("a", "tatoeba").is_made_by(stages)


def test_a_knob_that_no_arm_has_is_refused_with_a_suggestion(planned):
    with pytest.raises(UserError, match="neither the study nor one of its arms has a knob STEP; did you mean STEPS"):
        planned("STEP=3")
    with pytest.raises(UserError, match="SEED=3: the study sets SEED of its runs"):
        planned("SEED=3")


def test_a_recipe_without_a_seed_is_refused(planned):
    lines = ["from __gin__ import dynamic_registration", "from rembed_keras import training", 'WORKDIR = "x"']
    lines += ["training.run.workdir = %WORKDIR", "training.run.stages = []", ""]
    Path("seedless.gin").write_text("\n".join(lines))
    text = STUDY.replace(ONE, 'one/studies.Arm.recipe = "seedless.gin"')
    message = r"arm one: seedless.gin has no knob SEED, which the study has to set: include it in a recipe of yours"
    with pytest.raises(UserError, match=message):
        planned(text=text)


def test_an_arm_that_was_changed_is_refused_by_name(planned):
    folder = planned().runs[0].folder
    (folder / "checkpoints/step-00000001").mkdir(parents=True)
    run = planned().runs[0]
    (folder / "config.gin").write_text(config.load(run.command[1], run.command[2:]).text())
    planned()
    planned(text=STUDY.replace("(0, 1)", "(0, 1, 2)"))
    with pytest.raises(UserError) as error:
        planned("STEPS=31")
    assert str(error.value).startswith(
        "arm wide was changed: WORKDIR study/runs/wide-seed0 is of another recipe: STEPS is 30"
    )


def test_a_recipe_is_no_study_and_a_study_no_recipe(planned):
    with pytest.raises(UserError, match=r"own.gin is not a study: .* see `rembed run`"):
        planned(text="from __gin__ import dynamic_registration\n")
    with pytest.raises(UserError, match=r"smoke.gin is a study and not a recipe: run it with `rembed study`"):
        config.load("recipes/studies/smoke.gin")
    assert not config.is_study("recipes/quickstart.gin")
    assert config.is_study("recipes/studies/smoke.gin")


def test_inspect_shows_arms_runs_and_power(planned, tmp_path, command):
    planned()
    code, shown, _ = command("inspect", "own.gin", cwd=tmp_path)
    assert code == 0
    assert "4 runs, 0 finished, 4 left; hours unknown until a run of an arm is finished" in shown
    kept = config.ledger_of(config.load("recipes/quickstart.gin")).kept
    assert shown.count(f"{kept:,}") == 2 and "12.7" not in shown.split("Power")[0]
    code, shown, _ = command("inspect", "own.gin", "--json", cwd=tmp_path)
    assert code == 0 and [arm["name"] for arm in json.loads(shown)["arms"]] == ["wide", "one"]
    assert not (tmp_path / "study").exists()


def test_list_prints_a_command_a_run_and_links_the_shared_corpus(planned, tmp_path, command):
    planned()
    code, shown, said = command("study", "own.gin", "--list", cwd=tmp_path)
    lines = shown.splitlines()
    assert code == 0 and len(lines) == 5
    assert " budget " in lines[0] and all(" run recipes/quickstart.gin " in line for line in lines[1:])
    assert "the first command prepares a corpus of several runs" in said
    corpus = planned().corpora[0].folder
    corpus.mkdir(parents=True)
    assert (tmp_path / "study/runs/one-seed1/corpus").samefile(corpus)
    planned().runs[0].folder.joinpath("finished.json").write_text("{}")
    (corpus / "manifest.json").write_text("{}")
    assert len(command("study", "own.gin", "--list", cwd=tmp_path)[1].splitlines()) == 3


def test_the_study_on_the_page_is_one(planned):
    page = (Path(__file__).parents[2] / "docs/guides/studies.md").read_text(encoding="utf-8")
    block = re.search(r"^```gin\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    assert [run.name for run in planned(text=block).runs][:2] == ["wide-seed0", "coupled-seed0"]


def test_an_arm_is_what_it_binds_whatever_comments_say(planned, tmp_path):
    text = """\
from __gin__ import dynamic_registration
include "recipes/quickstart.gin"
OUTPUT_EMBEDDING_DIM = 512  # {}
"""
    own = STUDY.replace('wide/studies.Arm.recipe = "recipes/quickstart.gin"', 'wide/studies.Arm.recipe = "wide.gin"')
    own = own.replace('wide/studies.Arm.bindings = ["OUTPUT_EMBEDDING_DIM=512"]\n', "")
    checksums = []
    for said in (text.format("wide"), text.format("dropped"), text.format("wide").replace("512", "256")):
        (tmp_path / "wide.gin").write_text(said)
        checksums.append(planned(text=own).arms[0].checksum)
    assert checksums[0] == checksums[1] != checksums[2]
