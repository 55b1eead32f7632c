"""What a later file replaces goes with what was bound for it; what nothing uses is reported still."""

import pytest

from rembed_keras import config
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.config.recipes.uses import is_within
from rembed_keras.errors import UserError

OPTIONS = 'include "recipes/options/embeddings/coupled.gin"\n'
LION = "training.pretrain.optimizer=@keras.optimizers.Lion"
HEADER = "from __gin__ import dynamic_registration\nfrom rembed_keras import training\n"


@pytest.fixture
def load(tmp_path):
    """Loads a recipe of these lines, with bindings of the command line."""

    def load(lines, *bindings):
        path = tmp_path / "recipe.gin"
        path.write_text(HEADER + lines, encoding="utf-8")
        return config.load(str(path), bindings)

    return load


def dropped(recipe):
    return {binding.key for binding, _ in recipe.dropped}


ADAMW = {f"training.AdamW.{name}" for name in ("learning_rate", "weight_decay", "beta_2")}
DECAY = {f"training.WarmupLinearDecay.{name}" for name in ("peak", "warmup_steps", "total_steps")}


def test_an_optimizer_takes_its_bindings_with_it(load):
    recipe = load(OPTIONS, LION)
    assert dropped(recipe) == ADAMW | DECAY | {"LEARNING_RATE", "WARMUP_STEPS", "WEIGHT_DECAY"}
    assert {by.key for _, by in recipe.dropped} == {"training.pretrain.optimizer"}
    assert "AdamW" not in recipe.text() and "LEARNING_RATE" not in recipe.knobs()
    assert config.ledger_of(recipe).total == config.ledger_of(load(OPTIONS)).total


@pytest.mark.parametrize("name", ["adafactor", "galore", "lion", "muon", "schedule_free", "sgd"])
def test_an_optimizers_file_after_anothers_is_enough(load, name):
    both = load(f'{OPTIONS}include "gin/optimizers/{name}.gin"\n')
    assert dropped(both) == ADAMW | (DECAY if name == "schedule_free" else set())
    assert both.knobs()["LEARNING_RATE"]["value"] != 3e-3  # the other file's


def test_the_flat_text_of_what_stays_is_a_recipe(load, tmp_path):
    recipe = load(OPTIONS + 'include "gin/optimizers/lion.gin"\n')
    (tmp_path / "flat.gin").write_text(recipe.text(), encoding="utf-8")
    again = config.load(str(tmp_path / "flat.gin"))
    assert again.text() == recipe.text() and not again.dropped


def test_the_flat_text_has_defaults_before_what_scopes_bind(tmp_path):
    recipe = config.load("recipes/finetune/scalar_mix.gin")
    (tmp_path / "flat.gin").write_text(recipe.text(), encoding="utf-8")
    assert config.load(str(tmp_path / "flat.gin")).configuration() == recipe.configuration()


def test_an_objective_and_stages_are_replaced_like_an_optimizer(load):
    quickstart = 'include "recipes/quickstart.gin"\n'
    late = load(quickstart + 'include "gin/objectives/late_masked_lm.gin"\n')
    assert dropped(late) == {"modeling.MaskedLM.output_embedding_dim", "modeling.MaskedLM.coupling"}
    short = load(quickstart, "training.run.stages=[@training.prepare]", "training.run.tasks=[]")
    assert set(short.configuration()) <= {
        *(f"training.run.{name}" for name in ("stages", "workdir", "strategy", "tasks")),
        *(f"training.prepare.{name}" for name in ("text_dir", "vocabulary_size", "held_out", "initial")),
    }


STRICT = {
    "beside what replaces": (
        OPTIONS,
        [LION, "LEARNING_RATE=0.1"],
        "command line: nothing uses LEARNING_RATE: training",
    ),
    "beside what replaces, of an optimizer that gets its rates from fine-tuning": (
        'include "recipes/quickstart.gin"\n',
        [LION, "LEARNING_RATE=0.1"],
        r"nothing uses LEARNING_RATE: training\.pretrain\.optimizer is @keras\.optimizers\.Lion \(command line\)",
    ),
    "before what replaces": (
        OPTIONS,
        ["WARMUP_STEPS=3", LION],
        r"WARMUP_STEPS: .*optimizer is @keras.* \(command line\)",
    ),
    "after another file": (
        OPTIONS + 'include "gin/optimizers/lion.gin"\ntraining.AdamW.beta_1 = 0.5\n',
        [],
        r"recipe\.gin:5: nothing uses training\.AdamW\.beta_1: .* is @keras\.optimizers\.Lion \(.*lion\.gin:10\)",
    ),
    "on the command line": (
        OPTIONS + 'include "gin/optimizers/lion.gin"\n',
        ["training.AdamW.beta_2=0.5"],
        r"command line: nothing uses training\.AdamW\.beta_2: ",
    ),
    "in the file that replaces": (
        OPTIONS + "training.AdamW.beta_1 = 0.5\ntraining.pretrain.optimizer = @training.Muon\n",
        [],
        r"recipe\.gin:4: nothing uses training\.AdamW\.beta_1: training\.pretrain\.optimizer is @training\.Muon",
    ),
    "replaced twice": (
        OPTIONS + 'include "gin/optimizers/lion.gin"\ntraining.AdamW.beta_1 = 0.5\n',
        ["training.pretrain.optimizer=@training.Muon"],
        r"recipe\.gin:5: nothing uses training\.AdamW\.beta_1: .* is @training\.Muon \(command line\)",
    ),
    "around scopes that all have bound it": (
        'include "recipes/quickstart.gin"\n',
        ["tasks.ParallelText.folder='my/text'"],
        r"command line: nothing uses tasks\.ParallelText\.folder: .*/tasks\.ParallelText\.folder is @sample\.",
    ),
    "beside what replaces, and before stages that are replaced too": (
        OPTIONS + 'include "gin/objectives/late_masked_lm.gin"\ntraining.run.stages = [@training.pretrain]\n',
        ["modeling.MaskedLM.loss_chunk=8"],
        r"nothing uses modeling\.MaskedLM\.loss_chunk: training\.pretrain\.model is @modeling\.LateMaskedLM \(",
    ),
    "a typo": (OPTIONS + "LEARNING_RAT = 1\n", [LION], r"recipe\.gin:4: nothing uses LEARNING_RAT"),
    "a parameter of what nothing used": (OPTIONS + "training.Muon.beta = 1.0\n", [LION], r":4: .*Muon"),
}


@pytest.mark.parametrize("what", STRICT)
def test_what_is_bound_in_vain_is_reported_still(load, what):
    lines, bindings, message = STRICT[what]
    with pytest.raises(UserError, match=message):
        load(lines, *bindings)


def test_what_is_bound_around_scopes_is_their_default(load):
    around, inner = "tasks.ParallelText.pivot='de'", ["help/tasks.ParallelText.pivot='fr'"]
    quickstart = 'include "recipes/quickstart.gin"\n'
    for bindings in ([around, *inner], [*inner, around]):
        recipe = load(quickstart, *bindings)
        assert recipe.configuration()["tasks.ParallelText.pivot"] == "de"  # of the declarations
    inner.append("declarations/tasks.ParallelText.pivot='fr'")
    load(quickstart, around, *inner)
    with pytest.raises(UserError, match=r"nothing uses tasks\.ParallelText\.pivot: declarations/"):
        load(quickstart, *inner, around)


def test_what_another_stage_uses_stays(load):
    adamw = 'include "gin/optimizers/adamw.gin"\ntraining.AdamW.beta_1 = 0.8\n'
    # fine-tuning has AdamW too, at rates and with a decay of its own
    recipe = load(f'include "recipes/quickstart.gin"\n{adamw}', LION)
    gone = {f"training.AdamW.{name}" for name in ("learning_rate", "weight_decay")}
    assert {key for key in dropped(recipe) if "AdamW" in key} == gone
    assert recipe.configuration()["training.AdamW.beta_1"] == 0.8


@pytest.mark.parametrize("names", [["recipes/quickstart", "gin/optimizers/adamw"], ["recipes/options/probes"]])
def test_knobs_of_pretraining_leave_the_optimizer_of_fine_tuning(load, names):
    line = "".join(f'include "{name}.gin"\n' for name in names)
    recipes = [load(line), load(line, "WEIGHT_DECAY=0.3", "training.AdamW.beta_2=0.5")]
    adamw = [Reference(scope, "training.AdamW", "rembed_keras.training.AdamW", False) for scope in ("", "finetune")]
    (_, tuned), (changed, same) = ([recipe.arguments(each) for each in adamw] for recipe in recipes)
    assert (changed["weight_decay"], changed["beta_2"]) == (0.3, 0.5) and same == tuned


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "@keros.optimizers.Lion",
            r"optimizer: keros in keros\.optimizers\.Lion is not imported; did you mean keras\?",
        ),
        ("@shutil.rmtree", r"shutil in shutil\.rmtree is not imported"),
        ("@teachers.Teacher", r"Teacher is not imported: name it rembed_keras\.adaptation\.teachers$"),
        ("@keras.saving.load_model", r"a recipe may not name keras\.saving\.load_model"),
        ("@Lion", r"it must be a reference to an Optimizer, with @ and without \(\)"),
    ],
)
def test_the_command_line_names_what_admitted_packages_have(load, value, message):
    with pytest.raises(UserError, match=message):
        load(OPTIONS, f"training.pretrain.optimizer={value}")


def test_a_text_may_begin_with_at(load):
    assert load(OPTIONS, "WORKDIR=@home").knobs()["WORKDIR"]["value"] == "@home"


@pytest.mark.parametrize(("scope", "outer"), [("a/b", "a/b"), ("a/b", "a"), ("a", "")])
def test_scopes_hold_inside(scope, outer):
    assert is_within(scope, outer)
    assert not is_within(f"x{scope}", outer or "y") and not is_within(outer, f"{scope}/c")
