"""Loss terms in recipes: made and counted when a recipe is read, and refused then by knob and place."""

import json

import pytest

from rembed_keras import config
from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM
from rembed_keras.analysis import ledger
from rembed_keras.config import execution
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, MaskedLM
from tests.recipes.test_recipes import ROOT

RECIPE = str(ROOT / "recipes/options/objectives/mini_lm.gin")
LORA = str(ROOT / "recipes/finetune/methods/lora.gin")
FINETUNE = str(ROOT / "recipes/finetune/terms/supervised_contrast.gin")


def test_a_teacher_that_is_there_has_its_own_column(pretrained):
    there = config.ledger_of(config.load(RECIPE, [f"TEACHER={pretrained}"]))
    plain = config.ledger_of(config.load(RECIPE, [f"TEACHER={pretrained}", "terms.MiniLM.weight=0"]))
    assert there.teacher["parameters"] > 900 * 4
    state = json.loads(next((pretrained / "checkpoints").glob("step-*/state.json")).read_text())
    sizes = state["state"]["model"]["config"]["encoder"]["config"]
    assert there.teacher["parameters"] == config.ledger_of(_encoder_recipe(sizes)).kept
    assert (there.kept, there.dropped) == (plain.kept, plain.dropped)
    assert there.flops["dropped"] > plain.flops["dropped"]
    assert plain.teachers == ()


@pytest.mark.parametrize(("dtype", "taught_in"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_bytes_of_a_teacher_are_those_of_its_own_weights(dtype, taught_in):
    sizes = {"vocabulary_size": 97, "num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    student, teacher = (Encoder(**sizes, input_embedding_dim=4, dtype=each) for each in (dtype, taught_in))
    counted = ledger(MaskedLM(student, 10), terms=[MiniLM(Teacher(teacher))]).teacher
    width = {"float32": 4, "bfloat16": 2}[taught_in]
    assert counted["bytes"] == width * teacher.count_params() == width * counted["parameters"]


def test_what_devices_hold_of_a_teacher_is_said_beside_their_table(pretrained, command, tmp_path):
    taught = config.ledger_of(config.load(RECIPE, [f"TEACHER={pretrained}"])).teacher["bytes"]
    _, out, _ = command("inspect", RECIPE, "--devices", "2", f"TEACHER={pretrained}", cwd=tmp_path)
    assert f"without what teaches, whose weights have {taught:,} bytes in all\n" in out
    assert "without what teaches" not in command("inspect", RECIPE, "--devices", "2", cwd=tmp_path)[1]


def test_a_teacher_of_an_objective_in_a_sum_is_counted(pretrained, tmp_path):
    recipe = tmp_path / "recipe.gin"
    recipe.write_text(f'''
from __gin__ import dynamic_registration
from rembed_keras import adaptation
from rembed_keras import modeling
from rembed_keras import training
from rembed_keras.modeling import objectives
from rembed_keras.adaptation import teachers
include "{RECIPE}"
training.pretrain.model = @objectives.Sum
training.pretrain.terms = ()
objectives.Sum.objectives = [@modeling.MaskedLM, @adaptation.Distillation]
adaptation.Distillation.teacher = @teachers.Teacher()
''')
    alone = config.ledger_of(config.load(RECIPE, [f"TEACHER={pretrained}"])).teacher
    assert config.ledger_of(config.load(str(recipe), [f"TEACHER={pretrained}"])).teacher == alone


def _encoder_recipe(sizes):
    """The recipe, of a student of the teacher's sizes."""
    names = ("num_heads", "hidden_dim", "intermediate_dim", "max_sequence_length")
    knobs = {"VOCABULARY_SIZE": "vocabulary_size", "INPUT_EMBEDDING_DIM": "input_embedding_dim"}
    bound = [f"modeling.Encoder.{name}={sizes[name]}" for name in names]
    bound += [f"{knob}={sizes[name]}" for knob, name in knobs.items()]
    return config.load(RECIPE, [*bound, f"NUM_LAYERS={sizes['num_layers']}", "terms.MiniLM.weight=0"])


def test_a_missing_teacher_can_be_read_of_but_not_asked(tmp_path):
    recipe = config.load(RECIPE, [f"TEACHER={tmp_path / 'none'}", f"WORKDIR={tmp_path / 'run'}"])
    assert config.ledger_of(recipe).teachers == ()
    with pytest.raises(UserError, match=r"the teacher .*none of training.pretrain is not a folder of a model"):
        config.run(recipe)
    assert not (tmp_path / "run").exists()


def test_a_teacher_that_is_missing_is_asked_for_by_the_stages_that_are_to_run(tmp_path, monkeypatch):
    recipe = config.load(RECIPE, [f"TEACHER={tmp_path / 'none'}", f"WORKDIR={tmp_path / 'run'}"])
    begun = []
    monkeypatch.setattr(execution, "_run", lambda recipe, ledger, chosen, is_smoke: begun.append(chosen))
    config.run(recipe, config.stages_named(recipe, "prepare"))
    assert begun == [[0]]
    with pytest.raises(UserError, match=r"the teacher .*none of training.pretrain is not a folder of a model"):
        config.run(recipe, config.stages_until(recipe, "pretrain"))


def test_a_teacher_with_other_heads_is_refused_when_a_recipe_is_read(pretrained):
    with pytest.raises(UserError, match=r"the student has 4 heads and the teacher 2: bind relation_heads of mini_lm"):
        config.ledger_of(config.load(RECIPE, [f"TEACHER={pretrained}", "modeling.Encoder.num_heads=4"]))


@pytest.mark.parametrize(
    ("recipe", "binding", "reason"),
    [
        (RECIPE, "terms.MiniLM.weight=-1", r"terms.MiniLM.weight is -1; it must be a number of at least 0"),
        (RECIPE, "terms.MiniLM.relations=('query-values',)", "must be a list, each one of query-key"),
        (RECIPE, "terms.MiniLM.relation_heads=0", "must be a positive whole number"),
        (RECIPE, "TEACHER=7", "TEACHER is 7; it must be text"),
        (LORA, "training.finetune.terms=7", "must be a list"),
        (RECIPE, "terms.MiniLM.weight={3: 1.0}", "weight of mini_lm is"),
        (
            FINETUNE,
            "terms.SupervisedContrast.temperature=0.0",
            r"temperature of supervised_contrast is 0.0.*command line",
        ),
        (
            FINETUNE,
            "training.finetune.terms=[@terms.SupervisedContrast]",
            r"each a Term, made by a reference with \(\)",
        ),
    ],
)
def test_wrong_values_are_refused_when_a_recipe_is_read(recipe, binding, reason):
    with pytest.raises(UserError, match=reason):
        config.ledger_of(config.load(recipe, [binding]))
