"""Smoke runs of recipes whose batches are shared by several devices: rows are as few as these can share."""

from types import SimpleNamespace

import keras
import pytest

from rembed_keras import config
from rembed_keras.errors import UserError
from rembed_keras.training.distributed import strategies


@pytest.mark.parametrize(
    ("replicas", "micro_batches", "rows"),
    [(2, 1, 16), (6, 1, 12), (8, 4, 32), (6, 3, 18)],
)
def test_devices_and_micro_batches_share_the_rows_of_a_batch(monkeypatch, replicas, micro_batches, rows):
    monkeypatch.setattr(strategies, "place", lambda strategy, batch_size: SimpleNamespace(replicas=replicas))
    bindings = ["STRATEGY=mirrored", f"modeling.MaskedLM.micro_batches={micro_batches}", "FINETUNE_SEEDS=(0,)"]
    recipe = config.load("recipes/quickstart.gin", bindings)
    config.smoke(recipe)
    assert recipe.knobs()["BATCH_SIZE"]["value"] == rows
    assert recipe.configuration().get("training.finetune.batch_size", 32) == rows  # the default


def test_a_strategy_that_is_not_there_is_said():
    strange = {"tensorflow": "data_parallel", "jax": "mirrored"}[keras.config.backend()]
    recipe = config.load("recipes/quickstart.gin", [f"STRATEGY={strange}"])
    with pytest.raises(UserError, match=f"STRATEGY {strange} needs KERAS_BACKEND="):
        config.smoke(recipe)
