"""Smoke runs of recipes that drop layers, and say how many stay by numbers in each place and not by one knob."""

import pytest

from rembed_keras import config

HEAD = """from __gin__ import dynamic_registration
from rembed_keras import modeling
from rembed_keras import training
include "recipes/quickstart.gin"
NUM_LAYERS = 12
"""
KEPT = """
modeling.MaskedLM.kept_layers = 6
training.finetune.encoder = @kept/modeling.Encoder
training.evaluate.encoder = @kept/modeling.Encoder
training.retrieve.encoder = @kept/modeling.Encoder
kept/modeling.Encoder.num_layers = 6
"""
CUT_LATER = """
modeling.MaskedLM.kept_layers = 8
training.finetune.encoder = None
training.evaluate.encoder = None
training.finetune.starts = ["pretrained"]
training.evaluate.starts = ["pretrained"]
training.finetune.pretrained = @training.InitialWeights()
training.evaluate.pretrained = @training.InitialWeights()
training.InitialWeights.num_layers = 6
training.run.stages = [@training.prepare, @training.pretrain, @training.finetune, @training.evaluate]
"""
SHARED = 'modeling.Encoder.layer_sharing = "all"\nmodeling.Encoder.layer_groups = {}\n'
GROUPS = "kept/modeling.Encoder.layer_groups = {}\n"
BY_LAYER = [0] * 3 + [1] * 3

PATTERN = """from __gin__ import dynamic_registration
from rembed_keras import modeling
from rembed_keras.modeling import attention
include "recipes/options/objectives/replaced_tokens.gin"
NUM_LAYERS = 12
GENERATOR_LAYERS = 6
modeling.Encoder.attention = [@attention.Local(), @attention.Disentangled()]
"""


@pytest.mark.parametrize(
    "lines",
    [
        KEPT,
        CUT_LATER,
        KEPT + SHARED.format(4) + GROUPS.format(2),
        KEPT + SHARED.format([*BY_LAYER, *[2] * 6]) + GROUPS.format(BY_LAYER),
    ],
)
def test_what_is_kept_is_the_encoder_of_later_stages(tmp_path, lines):
    (tmp_path / "recipe.gin").write_text(HEAD + lines)
    recipe = config.load(str(tmp_path / "recipe.gin"))
    config.ledger_of(recipe)
    config.smoke(recipe)
    assert config.ledger_of(recipe).total < 2_000_000
    assert (recipe.knobs()["NUM_LAYERS"]["value"], recipe.configuration()["modeling.MaskedLM.kept_layers"]) == (2, 1)


def test_numbers_of_blocks_stay_where_the_command_line_gives_one(tmp_path):
    (tmp_path / "recipe.gin").write_text(HEAD + KEPT)
    recipe = config.load(str(tmp_path / "recipe.gin"), ["NUM_LAYERS=8"])
    config.smoke(recipe)
    values = recipe.configuration()
    assert (values["modeling.MaskedLM.kept_layers"], values["kept/modeling.Encoder.num_layers"]) == (6, 6)


def test_a_generator_has_the_kinds_of_attention_that_the_encoder_has(tmp_path):
    (tmp_path / "recipe.gin").write_text(PATTERN)
    recipe = config.load(str(tmp_path / "recipe.gin"))
    config.ledger_of(recipe)
    config.smoke(recipe)
    assert config.ledger_of(recipe).total < 2_000_000
