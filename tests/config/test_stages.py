"""Some of a recipe's stages: by name, and what their folder says of it."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from rembed_keras import config
from rembed_keras.config.forecasts import tokens_by_task
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


def test_an_error_of_a_file_is_said_of_the_folder_and_one_of_a_pipe_is_left_to_the_command(tmp_path):
    def fail(error, folder):
        raise error

    record = RunRecord("# a recipe\n", lambda: "")
    for error, said in ((OSError(28, "No space left"), "No space left"), (TimeoutError(), "TimeoutError")):
        with pytest.raises(UserError, match=f"own: {said}$"):
            run([partial(fail, error)], tmp_path / "own", record)
    with pytest.raises(BrokenPipeError):
        run([partial(fail, BrokenPipeError(32, "Broken pipe"))], tmp_path / "own", record)


def test_stages_that_fine_tune_say_how_much_of_each_example():
    quickstart = config.load(str(ROOT / "recipes/quickstart.gin"), ["FINETUNE_EPOCHS=3", "FINETUNE_SEEDS=(0, 1, 2)"])
    assert tokens_by_task(quickstart) == [{}, {}, {}, {0: 3 * 3 * 2 * 64}, {}]  # epochs, seeds, starts, tokens a row
    stilts = tokens_by_task(config.load(str(ROOT / "recipes/finetune/stilts.gin")))
    assert [list(each) for each in stilts] == [[0], [], [1], [], [2], [], []]


def test_a_run_knows_how_much_later_stages_train_on(tmp_path):
    seen = []
    stages = [lambda folder: seen.append((folder.stage, folder.later_tokens))] * 3
    tasks = [SimpleNamespace(splits=SimpleNamespace(train=[None] * size)) for size in (5, 7)]
    record = RunRecord("# a recipe\n", lambda: "", tokens_by_task=[{}, {0: 10.0}, {0: 1.0, 1: 2.0}])
    run(stages, tmp_path / "all", record, tasks)
    run(stages, tmp_path / "some", record, tasks, chosen=[0, 2])
    assert seen == [("stage 1 of 3", 69), ("stage 2 of 3", 19), ("stage 3 of 3", 0),
                    ("stage 1 of 2", 19), ("stage 2 of 2", 0)]  # fmt: skip


def test_the_ledger_keeps_what_tasks_cost_when_some_stages_are_run_again(tmp_path):
    path = tmp_path / "own/ledger.json"

    def write_tasks(folder):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tasks": {"topics": {"stored": 7}}}))

    record = RunRecord("# a recipe\n", lambda: "", SimpleNamespace(to_json=lambda: {"kept": 5}))
    for chosen in ([0], [1]):
        run([write_tasks, lambda folder: None], tmp_path / "own", record, sinks=[], chosen=chosen)
    assert json.loads(path.read_text()) == {"kept": 5, "tasks": {"topics": {"stored": 7}}}


BARE = """\
from __gin__ import dynamic_registration
from rembed_keras import training
training.run.workdir = "own"
training.run.stages = [@training.{}]
"""


@pytest.mark.parametrize(("stage", "lacks"), [("retrieve", "texts"), ("pretrain", "encoder")])
def test_what_a_stage_needs_is_asked_for_before_there_is_a_folder(stage, lacks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.gin").write_text(BARE.format(stage))
    with pytest.raises(UserError, match=f"^training.{stage} has no '{lacks}': bind it in the recipe$"):
        config.run(config.load("recipe.gin"))
    assert not (tmp_path / "own").exists()


def take_nothing():
    """No stage: nothing could give it the run's folder."""


def test_a_function_of_ones_own_that_takes_no_folder_is_no_stage(tmp_path, monkeypatch):
    own = BARE.replace("import training", "import training\nfrom tests.config import test_stages", 1)
    (tmp_path / "recipe.gin").write_text(own.replace("@training.{}", "@test_stages.take_nothing"))
    recipe = config.load(str(tmp_path / "recipe.gin"), allow_import=["tests"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"test_stages\.take_nothing is no stage: the first argument of one is"):
        config.run(recipe)
    assert not (tmp_path / "own").exists()
