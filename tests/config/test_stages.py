"""Some of a recipe's stages: by name, and what their folder says of it."""

from pathlib import Path

import pytest

from rembed_keras import config
from rembed_keras.errors import UserError
from rembed_keras.training.stages.run import RunRecord, run

ROOT = Path(__file__).parents[2]


def test_stages_are_named_in_the_order_of_the_recipe():
    recipe = config.load(str(ROOT / "recipes/quickstart.gin"))
    assert config.stages_until(recipe, "pretrain") == [0, 1]
    assert config.stages_named(recipe, "evaluate, finetune") == [3, 4]
    with pytest.raises(UserError, match="no stage 'fine': its stages are prepare, pretrain, retrieve, finetune"):
        config.stages_named(recipe, "prepare,fine")


def test_a_run_of_some_stages_is_not_finished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = []
    stages = [lambda folder: done.append("first"), lambda folder: done.append("second")]
    record = RunRecord("# a recipe\n", lambda: "")
    run(stages, "own", record, chosen=[0])
    assert done == ["first"] and not (tmp_path / "own/finished.json").exists()
    run(stages, "own", record)
    assert done == ["first", "first", "second"] and (tmp_path / "own/finished.json").exists()
