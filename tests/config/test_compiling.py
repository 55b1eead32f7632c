"""What `rembed compile` cannot compile is said in a line, before the compiler for TPUs is looked for."""

import pytest

from rembed_keras.training.compiling import topologies
from tests.recipes.test_recipes import ROOT

ENCODER = "training.pretrain takes its encoder from initial weights, which are not read to compile: bind"
TEACHER = "training.pretrain: a step that asks a teacher cannot be compiled: leave its loss term out"
DISTILLED = """from __gin__ import dynamic_registration
include "recipes/reallocate/heal_distill.gin"
from rembed_keras import modeling
from rembed_keras import training
training.pretrain.encoder = @modeling.Encoder
training.pretrain.initial = None
"""
REFUSED = {
    "heal_mlm": ("reallocate/heal_mlm", [], ENCODER),
    "heal_mlm, from a model": ("reallocate/heal_mlm", ["INITIAL={pretrained}"], ENCODER),
    "heal_distill": ("reallocate/heal_distill", [], ENCODER),
    "a teacher of the objective": ("distilled", [], TEACHER),
    "a teacher of a term": ("options/objectives/mini_lm", [], TEACHER),
    "a teacher of a term that is there": ("options/objectives/mini_lm", ["TEACHER={pretrained}"], TEACHER),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_said_in_one_line(what, command, pretrained, monkeypatch, tmp_path):
    monkeypatch.setattr(topologies, "devices_of", None)
    name, knobs, message = REFUSED[what]
    bound = [each.format(pretrained=pretrained) for each in knobs]
    (tmp_path / "distilled.gin").write_text(DISTILLED, encoding="utf-8")
    recipe = (tmp_path if name == "distilled" else ROOT / "recipes") / f"{name}.gin"
    code, out, err = command("compile", recipe, "--topology", "v5e:2x2", *bound, cwd=tmp_path)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert (code, out, len(lines)) == (2, "", 1) and message in lines[0], err
    assert len([*tmp_path.iterdir()]) == 1
