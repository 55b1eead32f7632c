"""What several stages refer to is made once a run, and again in the next."""

import sys
import types

import gin
import pytest

from rembed_keras import config
from rembed_keras.config import sharing
from rembed_keras.config.recipes.statements import Macro, Reference

RECIPE = """\
from __gin__ import dynamic_registration
from keras import initializers
from rembed_keras import training
import counting

TASK = @counting.Task()
WORKDIR = "run"
training.run.workdir = %WORKDIR
training.run.stages = [@counting.learn, @small/counting.score]
training.run.tasks = [%TASK]
counting.learn.task = %TASK
counting.learn.layer = @counting.layer
counting.score.task = @counting.Task()
counting.Task.splits = @counting.read()
counting.layer.initializer = @initializers.GlorotUniform()
"""
MADE, SEEN, DRAWN = [], [], []  # by the package below


class Task:
    def __init__(self, splits):
        self.splits = splits
        MADE.append(self)


def read(name="all"):
    if name == "none":
        raise ZeroDivisionError
    MADE.append(name)
    return name


def layer(initializer):
    DRAWN.append(initializer)


def learn(workdir, task, layer, more=None):
    SEEN.append(task)
    layer(), layer()


def score(workdir, task):
    SEEN.append(task)


COUNTING = types.ModuleType("counting")  # a package of the user's
for part in (Task, read, layer, learn, score):
    part.__module__ = "counting"
    setattr(COUNTING, part.__name__, part)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Loads the recipe above with lines added to it, to be run in a folder of that name."""
    monkeypatch.setitem(sys.modules, "counting", COUNTING)

    def load(lines="", folder="run"):
        (tmp_path / "recipe.gin").write_text(RECIPE + lines)
        workdir = f"WORKDIR={tmp_path / folder}"
        return config.load(str(tmp_path / "recipe.gin"), [workdir], allow_import=["counting"])

    yield load
    gin.clear_config(clear_constants=True)
    for record in (MADE, SEEN, DRAWN):
        record.clear()


def test_a_task_of_several_stages_is_read_once_a_run(load):
    config.run(load())
    first, second = SEEN
    assert first is second and ["all", first] == MADE
    config.run(load(folder="again"))  # in the same process
    assert ["all", first, "all", SEEN[2]] == MADE and SEEN[2] is SEEN[3] is not first


def test_a_task_that_is_called_with_something_else_is_another(load):
    config.run(load("small/counting.read.name = 'few'\n"))  # for the stage in this scope
    assert [task.splits for task in SEEN] == ["all", "few"]


def test_what_keras_has_is_made_at_each_use(load):
    config.run(load())
    assert len(DRAWN) == 2 and DRAWN[0] is not DRAWN[1]


def test_gin_is_as_it_was_after_a_run_that_failed(load):
    usual = gin.config.ConfigurableReference.__deepcopy__
    with pytest.raises(ZeroDivisionError):
        config.run(load("counting.read.name = 'none'\n"))
    assert gin.config.ConfigurableReference.__deepcopy__ is usual


def test_calls_are_one_if_all_that_they_are_called_with_is(load):
    recipe = load("few/counting.read.name = 'few'\ncounting.learn.more = {'a': [@few/counting.Task()]}\n")
    plain, few = (Reference(scope, "counting.Task", "counting.Task", True) for scope in ("", "few"))
    found = sharing.identity(recipe, plain)
    assert found == sharing.identity(recipe, Macro("TASK"), "few") == sharing.identity(recipe, plain, "small")
    assert sharing.identity(recipe, few) == sharing.identity(recipe, plain, "few") != found
