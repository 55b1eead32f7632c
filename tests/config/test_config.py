"""The rules of composition, each shown to bite."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gin
import pytest

from rembed_keras import config
from rembed_keras.config.execution import give_to_gin
from rembed_keras.config.recipes.statements import Reference
from rembed_keras.errors import UserError

ROOT = Path(__file__).parent.parent.parent
RECIPE = """\
from __gin__ import dynamic_registration
from rembed_keras import modeling
from rembed_keras import tasks
from rembed_keras import training
include "part.gin"

STEPS = 10  # batches
RATE = 0.5  # a number
training.run.stages = [@training.pretrain]
training.run.workdir = "somewhere"
training.pretrain.encoder = @modeling.Encoder
training.pretrain.model = @wide/modeling.MaskedLM
training.pretrain.steps = %STEPS
modeling.MaskedLM.output_embedding_dim = 16
wide/modeling.MaskedLM.output_embedding_dim = 32
modeling.Encoder.dropout = %RATE
"""
PART = """\
from __gin__ import dynamic_registration
from rembed_keras import modeling
modeling.Encoder.vocabulary_size = 100
modeling.Encoder.num_layers = 2
modeling.Encoder.num_heads = 2
modeling.Encoder.hidden_dim = 8
modeling.Encoder.intermediate_dim = 16
modeling.Encoder.input_embedding_dim = 4
modeling.Encoder.dropout = 0.25
"""


@pytest.fixture
def load(tmp_path):
    """Loads the recipe above with lines added to it."""

    def load(lines="", bindings=(), part=PART, **options):
        (tmp_path / "part.gin").write_text(part)
        (tmp_path / "recipe.gin").write_text(RECIPE + lines)
        return config.load(str(tmp_path / "recipe.gin"), bindings, **options)

    return load


def bound(recipe, key):
    return recipe.configuration()[key]


def test_later_files_and_the_command_line_win(load):
    assert bound(load(), "modeling.Encoder.dropout") == "%RATE"  # over the included 0.25
    recipe = load(bindings=["modeling.Encoder.num_layers=3", "STEPS=7"])
    assert bound(recipe, "modeling.Encoder.num_layers") == 3
    assert recipe.knobs()["STEPS"] == {"value": 7, "about": "batches"}
    named = load('NAME = "a  # b"  # of files\nmodeling.Encoder.name = %NAME\n').knobs()["NAME"]
    assert named == {"value": "a  # b", "about": "of files"}


def test_the_ledger_follows_scopes_and_macros(load):
    breakdown = config.ledger_of(load())
    assert breakdown.paper_total - breakdown.paper_kept == 100 * 32
    coupled = config.ledger_of(
        load(bindings=["modeling.MaskedLM.coupling=coupled", "modeling.Encoder.input_embedding_dim=32"])
    )
    assert coupled.paper_total == coupled.paper_kept


def test_the_ledger_is_of_the_scope_that_the_stage_is_listed_in(load):
    plain = config.ledger_of(load())
    lines = (
        "training.run.stages = [%PRETRAIN]\nPRETRAIN = @deep/training.pretrain\ndeep/modeling.Encoder.num_layers = 5\n"
    )
    recipe = load(lines)
    assert [entry.name for entry in config.ledger_of(recipe).entries if "blocks" in entry.name] == ["5 blocks"]
    assert plain.kept < config.ledger_of(recipe).kept


ENDED = """\
TASK = @tasks.Classification()
training.run.stages = [@training.pretrain, @a/training.finetune]
a/training.finetune.task = %TASK
a/tasks.Classification.name = "x"
"""
MISSPELT = {
    "a knob": ("STEPZ = 3", r"recipe\.gin:17: nothing uses STEPZ; did you mean STEPS\?"),
    "a used knob": (
        "training.pretrain.seed = %SEDE\nSEED = 3",
        r"uses %SEDE, which nothing defines; did you mean SEED\?",
    ),
    "a parameter": (
        "modeling.Encoder.num_layer = 3",
        r":17: modeling\.Encoder has no parameter num_layer; .* num_layers\?",
    ),
    "a class": ("modeling.Encodr.num_layers = 3", r":17: there is no modeling\.Encodr; did you mean Encoder\?"),
    "a reference": (
        "training.pretrain.optimizer = @training.AdmaW",
        r"there is no training\.AdmaW; did you mean AdamW\?",
    ),
    "a module": (
        "modelling.Encoder.num_layers = 3",
        r":17: modelling in modelling\.Encoder is not imported; .* modeling\?",
    ),
    "another file's": ("A = [\n@sinks.MLflow()]", r":18: sinks in .* `from rembed_keras\.training import sinks`"),
    "a scope": ("wid/modeling.MaskedLM.coupling = 'coupled'", r":17: nothing uses wid/modeling\.MaskedLM\.coupling"),
    "a scope that a macro ends": (ENDED, r"nothing uses a/tasks\.Classification\.name"),
    "dead": ("training.AdamW.beta_1 = 0.5", r":17: nothing uses training\.AdamW\.beta_1"),
    "dead together": ("A = 3\ntraining.AdamW.beta_1 = %A", r"nothing uses A"),
    "a circle": ("A = %B\nB = %A\ntraining.pretrain.seed = %A", r"macro A is defined by itself"),
    "a call": ("training.pretrain.optimizer = @training.AdamW()", r":17: bind @training\.AdamW without \(\)"),
    "a call of another optimizer": (
        "training.pretrain.optimizer = @training.GaLore()",
        r"bind @training\.GaLore without",
    ),
    "a call of Keras's": (
        "import keras\nA = @keras.optimizers.Lion()\ntraining.pretrain.optimizer = %A",
        r"Lion without",
    ),
    "what a call needs": ("training.run.tasks = [@tasks.Tagging()]", r"tasks\.Tagging has no 'name': bind it"),
    "a call in a macro": ("A = [@modeling.Encoder()]\ntraining.pretrain.seed = %A", r"bind @modeling\.Encoder without"),
    "not gin": ("training.pretrain.seed = = 3", r"recipe\.gin:17 is not gin"),
    "a file": ('include "prat.gin"', r"includes prat\.gin, which is not there"),
    "itself": ('include "recipe.gin"', r"recipe\.gin includes itself"),
}


@pytest.mark.parametrize("what", MISSPELT)
def test_what_is_misspelt_or_unused_is_named(load, what):
    lines, message = MISSPELT[what]
    with pytest.raises(UserError, match=message) as caught:
        load(lines + "\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("FINETUNE_WAYS=[]", r"no knob FINETUNE_WAYS; did you mean FINETUNE_METHODS\?"),
        ("training.finetune.ways=[]", r"no parameter ways; did you mean methods\?"),
    ],
)
def test_former_names_are_known(binding, message):
    with pytest.raises(UserError, match=message):
        config.load(str(ROOT / "recipes/finetune/methods/lora.gin"), [binding, "PRETRAINED=x"])


COMMANDS = {
    "STEP=3": r"the recipe has no knob STEP; did you mean STEPS\?",
    "STEPS": r"'STEPS' on the command line is not KNOB=VALUE",
    "=3": r"'=3' on the command line is not KNOB=VALUE",
    "STEPS=many": r"STEPS is 'many'; it must be a whole number, as in the recipe: 10",
    "STEPS=1.5": r"STEPS is 1\.5; it must be a whole number",
    "STEPS=True": r"STEPS is True; it must be a whole number",
    "RATE=low": r"RATE is 'low'; it must be a number",
    "modeling.Encoder.num_layrs=3": r"no parameter num_layrs; did you mean num_layers\?",
    "3x=1": r"'3x' on the command line is no name of a knob",
    "#X=1": r"'#X' on the command line is no name of a knob",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_mistakes_on_the_command_line_are_named(load, command):
    with pytest.raises(UserError, match=COMMANDS[command]):
        load(bindings=[command])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("runs/x", "runs/x"),
        ("/data/my runs", "/data/my runs"),
        ("one_device", "one_device"),
        ("'quoted'", "quoted"),
        ("12abc", "12abc"),
        ("''", ""),
        ("3", 3),
        ("1e-3", 1e-3),
        ("[1, 'a']", [1, "a"]),
        ("None", None),
        ("%STEPS", "%STEPS"),
        ("@training.pretrain", "@training.pretrain"),
    ],
)
def test_what_is_no_literal_is_a_string(load, text, value):
    key = "optimizers.SGD.momentum"  # of another package, whose annotations are not read
    lines = "from keras import optimizers\ntraining.pretrain.optimizer = @optimizers.SGD\n"
    assert bound(load(lines, [f"{key}={text}"]), key) == value


def test_a_whole_number_may_stand_for_any_number(load):
    assert load(bindings=["RATE=0"]).knobs()["RATE"]["value"] == 0


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path):
    part, recipe = tmp_path / "part.gin", tmp_path / "recipe.gin"
    part.write_text('\ufeffinclude "recipes/quickstart.gin"\n', encoding="utf-8")
    recipe.write_text('\ufeffinclude "part.gin"\nSTEPS = 5\n', encoding="utf-8")
    assert config.load(str(recipe)).knobs()["STEPS"]["value"] == 5


def test_a_recipe_may_import_only_what_is_admitted(load):
    lines = "import shutil\ntraining.pretrain.optimizer = @shutil.rmtree\n"
    with pytest.raises(UserError, match=r":17: a recipe may not import shutil; .* --allow-import shutil"):
        load(lines)
    assert bound(load(lines, allow_import=["shutil"]), "training.pretrain.optimizer") == "@shutil.rmtree"
    assert load("import keras\ntraining.pretrain.optimizer = @keras.optimizers.SGD\n").imports["keras"] == "keras"


def test_one_name_cannot_be_two_modules(load):
    part = PART.replace("from rembed_keras import modeling", "from rembed_keras import training as modeling")
    with pytest.raises(UserError, match=r"there is no modeling\.Encoder|in another file"):
        load(part=part)


def test_reading_a_recipe_imports_no_framework():
    code = (
        "import atexit, sys; from rembed_keras import cli; sys.argv = ['rembed', 'inspect', 'recipes/quickstart.gin'];"
        "heavy = ('tensorflow', 'keras', 'grain', 'jax', 'sklearn', 'scipy');"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules])); cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_recipes_and_includes_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    far = config.load("recipes/quickstart.gin")
    monkeypatch.chdir(ROOT)
    assert far.text() == config.load("recipes/quickstart.gin").text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.gin").write_text('include "recipes/quickstart.gin"\nSTEPS = 5\n')
    assert config.load("mine.gin").knobs()["STEPS"]["value"] == 5
    with pytest.raises(UserError, match=r"recipe recipes/quikstart\.gin is not there; did you mean recipes/quickstart"):
        config.load("recipes/quikstart.gin")


def test_the_flat_text_is_the_same_recipe(load, tmp_path):
    recipe = load(bindings=["STEPS=7"])
    (tmp_path / "flat.gin").write_text(recipe.text())
    again = config.load(str(tmp_path / "flat.gin"))
    assert again.text() == recipe.text()
    assert again.configuration() == recipe.configuration() and again.knobs() == recipe.knobs()


def test_gin_binds_what_we_read(load):
    """Our reading of scopes and macros against gin's own."""
    recipe = load(bindings=["RATE=0.125"])
    gin.clear_config(clear_constants=True)
    gin.parse_config(recipe.text())
    for name in ("vocabulary_size", "num_layers", "dropout"):
        ours = recipe.arguments(Reference("", "modeling.Encoder", "rembed_keras.modeling.Encoder", False))[name]
        theirs = gin.query_parameter(f"modeling.Encoder.{name}")
        assert ours == (theirs if name != "dropout" else 0.125)
    assert gin.query_parameter("wide/modeling.MaskedLM.output_embedding_dim") == 32
    gin.clear_config(clear_constants=True)


def test_a_full_path_is_enough_on_the_command_line(load, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "deep_parts/inner").mkdir(parents=True)
    (tmp_path / "deep_parts/inner/parts.py").write_text("def own():\n    pass\n")
    bindings = ["training.pretrain.model=@deep_parts.inner.parts.own", "training.pretrain.terms=[]"]
    give_to_gin(load(bindings=bindings, allow_import=["deep_parts"]))
    assert gin.query_parameter("training.pretrain.model").selector.endswith("deep_parts.inner.parts.own")
    gin.clear_config(clear_constants=True)


def test_inspect_prints_one_object(tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [
        sys.executable,
        "-m",
        "rembed_keras",
        "inspect",
        str(ROOT / "recipes/quickstart.gin"),
        "--json",
        "STEPS=9",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    assert set(shown) == {"ledger", "knobs", "configuration"}
    assert shown["knobs"]["STEPS"]["value"] == 9
    assert shown["ledger"]["kept"] + shown["ledger"]["dropped"] == shown["ledger"]["total"]
    assert shown["configuration"]["training.pretrain.model"] == "@modeling.MaskedLM"
    assert not list(tmp_path.iterdir())
