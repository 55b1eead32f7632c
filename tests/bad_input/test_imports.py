"""Recipes that import packages of their users, which may be broken, missing, or named wrongly."""

import importlib
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
training.run.workdir = "out"
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
    b"class write:\n    pass",
]
PACKAGES = ["plugin", "os", "", ".", "..", "-", "plugin.write", "plugin ", "plugin,os", "keras", "json", "x" * 300]


@pytest.fixture
def here(monkeypatch):
    """Makes packages in the folder of an attempt found, each time anew, as `python -m` and PYTHONPATH do."""
    monkeypatch.syspath_prepend("")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def run(recipe, plugin, *packages):
    importlib.invalidate_caches()
    sys.modules.pop("plugin", None)
    allowed = [word for package in packages for word in ("--allow-import", package)]
    return attempt(["run", "recipe.gin", *allowed], {"recipe.gin": recipe, "plugin.py": plugin})


@pytest.mark.usefixtures("here")
class TestImports:
    def test_the_package_without_faults(self):
        assert run(RECIPE, PLUGIN, "plugin")[0] == 0

    @pytest.mark.parametrize("plugin", BROKEN)
    def test_a_package_that_is_broken(self, plugin):
        code, _, said = run(RECIPE, plugin, "plugin")
        assert code == 2 and "plugin" in said

    @attempts(40)
    @given(recipe=mutated(RECIPE))
    def test_a_recipe_with_faults_in_it(self, recipe):
        run(recipe, PLUGIN, "plugin")

    @attempts(30)
    @given(packages=st.lists(st.sampled_from(PACKAGES) | st.text(max_size=9), max_size=3))
    def test_packages_of_any_name(self, packages):
        run(RECIPE, PLUGIN, *packages)
