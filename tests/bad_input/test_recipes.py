"""Malformed recipes and knobs: reported before anything is built."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembed_keras.config.recipes.signatures import signature
from tests.bad_input.attempts import attempt, attempts
from tests.bad_input.mutations import VALUES, mutated

ROOT = Path(__file__).parent.parent.parent
RECIPE = b"""\
from __gin__ import dynamic_registration
from rembed_keras import data
from rembed_keras import modeling
from rembed_keras import training
import keras
include "part.gin"

STEPS = 10  # batches
RATE = 0.5  # a number
TEXT = 'text'  # a folder
training.run.stages = [@training.prepare, @training.pretrain]
training.run.workdir = "out"
training.prepare.text_dir = %TEXT
training.prepare.vocabulary_size = 100
training.pretrain.encoder = @modeling.Encoder
training.pretrain.model = @wide/modeling.MaskedLM
training.pretrain.optimizer = @keras.optimizers.SGD
training.pretrain.steps = %STEPS
training.pretrain.mixture = @data.Mixture
data.Mixture.mask_rate = {0: 0.3, 1000: 0.15}
data.Mixture.batch_size = 8
modeling.MaskedLM.output_embedding_dim = 16
wide/modeling.MaskedLM.output_embedding_dim = 32
modeling.Encoder.dropout = %RATE
"""
PART = b"""\
from __gin__ import dynamic_registration
from rembed_keras import data
from rembed_keras import modeling
modeling.Encoder:
    vocabulary_size = 100
    num_layers = 2
    num_heads = 2
    hidden_dim = 8
    intermediate_dim = 16
    input_embedding_dim = 4
"""
LINES = [
    'include "part.gin"',
    'include "recipe.gin"',
    'include "other.gin"',
    'include "../part.gin"',
    'include "/"',
    'include ""',
    'include "\\0"',
    'include "' + "x" * 300 + '"',
    "A = %B\nB = %A\ntraining.pretrain.seed = %A",
    "A = %A\nSTEPS = %A",
    "STEPS = [%STEPS]",
    "import os",
    "import keras.os",
    "from rembed_keras import nothing",
    "from rembed_keras import os as training",
    "from . import os",
    "import",
    "STEPS = {[1]: 2}",
    "STEPS = {%RATE: 2}",
    "STEPS = -'x'",
    "STEPS = 'a\\0b'",
    "STEPS = '\\ud800'",
    "training.pretrain.steps = @training.pretrain()",
    "training.run.stages = [@training.run]",
    "training.run.stages = 3",
    "training.pretrain.encoder = @modeling",
    "a/b/c/training.run.workdir = 1",
    "training.run:\n  workdir = 1\n stages = 2",
    "modeling.Encoder:\n",
    "\tSTEPS = 1",
    "STEPS = " + "[" * 400 + "]" * 400,
    "STEPS = " + "-" * 500 + "1",
    "STEPS = 0777",
    "STEPS = 1e999",
    "STEPS = " + "9" * 5000,
    "STEPS = 1j",
    "STEPS = b'x'",
    "STEPS = ...",
    "STEPS = @",
    "STEPS = %",
    "STEPS = '''x",
]
KEYS = [
    "STEPS",
    "RATE",
    "TEXT",
    "STEP",
    "training.run.workdir",
    "training.run.stages",
    "training.pretrain.mixture",
    "training.pretrain.encoder",
    "training.pretrain.model",
    "data.Mixture.mask_rate",
    "data.Mixture.sequence_length",
    "modeling.MaskedLM.output_embedding_dim",
    "modeling.MaskedLM.coupling",
    "modeling.MaskedLM.output_cutoffs",
    "modeling.MaskedLM.kept_layers",
    *(f"modeling.Encoder.{name}" for name in signature("rembed_keras.modeling.Encoder").parameters),
]
TEXTS = [*(repr(value) for value in VALUES), "@training", "@training.pretrain()", "@keras.layers.Dense", "%RATE", "@@"]
TEXTS += [
    "{",
    "[1,",
    "'",
    "-",
    "=",
    "1=2",
    "\n",
    "x\nSTEPS = 3",
    "[[1, 2], {3: (4,)}]",
    "{0: 0.5, 'a': 1}",
    "1_0",
    "''",
]
KNOBS = st.builds("{}={}".format, st.sampled_from(KEYS), st.sampled_from(TEXTS) | st.text(max_size=8))


def test_the_recipe_without_faults():
    assert attempt(["inspect", "recipe.gin"], {"recipe.gin": RECIPE, "part.gin": PART})[0] == 0


@attempts(360)
@given(mutated(RECIPE))
def test_a_recipe_with_faults_in_it(recipe):
    attempt(["inspect", "recipe.gin"], {"recipe.gin": recipe, "part.gin": PART})


@attempts(80)
@given(mutated(PART))
def test_a_recipe_that_includes_one_with_faults(part):
    attempt(["inspect", "recipe.gin", "--json"], {"recipe.gin": RECIPE, "part.gin": part})


@attempts(120)
@given(st.lists(st.sampled_from(LINES) | st.text(max_size=30), min_size=1, max_size=3), st.integers(0, 22))
def test_a_recipe_with_invalid_lines(lines, at):
    there = RECIPE.split(b"\n")
    there[at:at] = [line.encode("utf-8", "surrogatepass") for line in lines]
    attempt(["inspect", "recipe.gin"], {"recipe.gin": b"\n".join(there), "part.gin": PART, "other.gin": None})


@attempts(240)
@given(st.lists(KNOBS | st.text(max_size=12), min_size=1, max_size=3), st.booleans())
def test_knobs_of_every_kind(knobs, as_json):
    attempt(["inspect", "recipe.gin", *knobs, *["--json"] * as_json], {"recipe.gin": RECIPE, "part.gin": PART})


@attempts(50)
@given(
    st.sampled_from(["", ".", "/", "..", "x" * 300, "a\x00b", "\ud800", "recipe.gin/x", "~", "-"]) | st.text(max_size=9)
)
def test_a_recipe_that_is_not_a_file(name):
    attempt(["inspect", "--", name], {"recipe.gin": RECIPE})


def test_the_folder_of_a_run_is_no_recipe_and_has_one(tmp_path, command):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.gin").write_bytes(RECIPE)
    said = "rembed: run/ is the folder of a run: name its recipe, run/config.gin\n"
    assert command("run", "run/", cwd=tmp_path) == (2, "", said)


@pytest.mark.parametrize(
    ("recipe", "knobs", "message"),
    [
        ("extra_layers", ["modeling.Encoder.block='modern'", "KEEP=top"], "the first of PreNorm blocks must stay"),
        ("extra_layers", ["modeling.Encoder.scalar_mix=True"], "an encoder with scalar_mix needs all of its layers"),
        ("extra_layers", ["KEPT_LAYERS=5"], "this encoder has 4 to keep from"),
        ("late_masking", ["modeling.LateMaskedLM.kept_layers=1"], "kept_layers"),  # which cuts no layers
        ("replaced_tokens", ["modeling.ReplacedTokenDetection.kept_layers=1"], "kept_layers"),
    ],
)
def test_layers_that_cannot_be_dropped(recipe, knobs, message):
    (path,) = (ROOT / "recipes/options").rglob(f"{recipe}.gin")
    code, _, output = attempt(["inspect", str(path), *knobs])
    assert code == 2 and message in output
