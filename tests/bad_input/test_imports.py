"""Recipes that import packages of their users, which may be broken, missing, or named wrongly."""

import importlib
import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.attempts import attempt, attempts
from tests.bad_input.mutations import mutated

RECIPE = b"""\
from __gin__ import dynamic_registration
from rembed_keras import training
import plugin

training.run.stages = [@plugin.write]
training.run.workdir = "kept"
plugin.write.text = "made"
"""
PLUGIN = b"""\
def write(workdir, text):
    (workdir.path / "made.txt").write_text(str(text))
"""
BROKEN = [
    b"",
    b"write = 3",
    b"def write(workdir:",
    b"raise RuntimeError",
    b"raise RuntimeError('two\\nlines')",
    b"raise KeyError('x')",
    b"raise SystemExit(3)",
    b"raise SystemExit",
    b"1 / 0",
    b"import package_that_nobody_has",
    b"from plugin import write",
    b"import os; os.nothing",
    b"assert False",
    b"x = '\xff'",
    b"\x00",
    b"# coding: nothing\n",
    "x = '\ud800'".encode("utf-8", "surrogatepass"),
    b"[" * 300,
]
PACKAGES = ["plugin", "os", "", ".", "..", "-", "plugin.write", "plugin ", "plugin,os", "keras", "json", "x" * 300]
NUMBERS = itertools.count()
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(monkeypatch):
    """Puts the folder of an attempt on the path, as `python -m` and PYTHONPATH do."""
    monkeypatch.syspath_prepend("")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def run(recipe, plugin, *packages):
    """An attempt; the plugin has another name each time, since gin caches what it has imported."""
    importlib.invalidate_caches()
    name = f"plugin{next(NUMBERS)}"
    files = {"recipe.gin": recipe, f"{name}.py": plugin}
    files = {path: content.replace(b"plugin", name.encode()) for path, content in files.items()}
    allowed = [word for package in packages for word in ("--allow-import", package.replace("plugin", name))]
    return attempt(["run", "recipe.gin", *allowed], files)


def test_the_package_without_faults():
    assert run(RECIPE, PLUGIN, "plugin")[0] == 0


@pytest.mark.parametrize("plugin", BROKEN)
def test_a_package_that_is_broken(plugin):
    code, _, output = run(RECIPE, plugin, "plugin")
    assert code == 2 and output.startswith("rembed: the recipe ")


def test_a_file_that_a_stage_cannot_write():
    plugin = PLUGIN.replace(b'"made.txt"', b'"none/made.txt"')
    assert run(RECIPE, plugin, "plugin")[::2] == (2, "rembed: kept/none/made.txt: No such file or directory\n")


@attempts(40)
@given(recipe=mutated(RECIPE))
def test_a_recipe_with_faults_in_it(recipe):
    run(recipe, PLUGIN, "plugin")


@attempts(30)
@given(packages=st.lists(st.sampled_from(PACKAGES) | st.text(max_size=9), max_size=3))
def test_packages_of_any_name(packages):
    run(RECIPE, PLUGIN, *packages)
