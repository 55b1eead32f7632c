"""A recipe's knobs stand for what they are wherever a value has them."""

import pytest

from rembed_keras import config
from rembed_keras.errors import UserError

PARTS = ("training", "terms", "modeling")
KNOBS = {"LATE": "500", "SMALL": "{small}", "LONG": "128", "LOW": "0.1", "STRONG": "2.0"}
BINDINGS = [
    "BATCH_SIZE = {0: 256, %LATE: %SMALL}",
    "SEQUENCE_LENGTH = {0: 64, %LATE: %LONG}",
    "MASK_RATE = {0: 0.3, %LATE: %LOW}",
    "training.pretrain.terms = [@terms.RDrop()]",
    "terms.RDrop.weight = {0: 0.0, %LATE: %STRONG}",
    "modeling.Encoder.dropout = 0.1",
]


def load(tmp_path, small, has_knobs=True):
    """The quickstart with schedules, of knobs or of the numbers that these stand for."""
    knobs, bindings = {name: value.format(small=small) for name, value in KNOBS.items()}, "\n".join(BINDINGS)
    for name, value in {} if has_knobs else knobs.items():
        bindings = bindings.replace(f"%{name}", value)
    lines = ["from __gin__ import dynamic_registration", 'include "recipes/quickstart.gin"']
    lines += [f"from rembed_keras{'.adaptation' * (name == 'terms')} import {name}" for name in PARTS]
    lines += [f"{name} = {value}" for name, value in knobs.items() if has_knobs]
    path = tmp_path / f"knobs_{has_knobs}.gin"
    path.write_text("\n".join([*lines, bindings, ""]), encoding="utf-8")
    return config.load(str(path))


def test_knobs_within_schedules_are_counted_as_what_they_stand_for(tmp_path):
    recipe = load(tmp_path, 32)
    assert config.ledger_of(recipe).to_json() == config.ledger_of(load(tmp_path, 32, has_knobs=False)).to_json()
    with pytest.raises(UserError, match=r": BATCH_SIZE is {0: 256, 500: 0}; it must be a positive whole number"):
        config.ledger_of(load(tmp_path, 0))


def test_a_smoke_run_bounds_knobs_within_schedules(tmp_path):
    recipe = load(tmp_path, 128)
    config.smoke(recipe)
    assert recipe.knobs()["BATCH_SIZE"]["value"] == {"0": 16, "500": 16}
    config.ledger_of(recipe)
