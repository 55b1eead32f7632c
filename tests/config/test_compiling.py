"""What `rembed compile` cannot compile is said in a line, before the compiler for TPUs is looked for; and which step it
compiles."""

from types import SimpleNamespace

import pytest

from rembed_keras import config
from rembed_keras.config import compiling
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
    monkeypatch.setattr(compiling, "settle_environment", lambda settings: None)  # of this process
    name, knobs, message = REFUSED[what]
    bound = [each.format(pretrained=pretrained) for each in knobs]
    (tmp_path / "distilled.gin").write_text(DISTILLED, encoding="utf-8")
    recipe = (tmp_path if name == "distilled" else ROOT / "recipes") / f"{name}.gin"
    code, out, err = command("compile", recipe, "--topology", "v5e:2x2", *bound, cwd=tmp_path)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert (code, out, len(lines)) == (2, "", 1) and message in lines[0], err
    assert len([*tmp_path.iterdir()]) == 1


PHASES = {
    "longer rows of as many tokens": ([], (16, 256), 77),
    "a phase after the run": (["STEPS=100"], (64, 64), 19),
    "the larger one first": (["BATCH_SIZE={0: 512, 2520: 16}"], (512, 64), 19),
    "rates": (["STEPS=100", "MASK_RATE={0: 0.15, 50: 0.3, 100: 0.9}"], (64, 64), 19),
}


@pytest.fixture
def compiled_batch(monkeypatch):
    """Gives the batch whose step would be compiled of a recipe."""

    class TakenError(Exception):
        pass

    def take(step, topology, devices, batch):
        raise TakenError(batch)

    monkeypatch.setattr(topologies, "devices_of", lambda topology: [])
    monkeypatch.setattr(compiling, "settle_environment", lambda settings: None)
    monkeypatch.setattr(compiling, "bound", lambda recipe: SimpleNamespace(compile_step=None))
    monkeypatch.setattr(compiling, "call", take)

    def batch_of(recipe):
        with pytest.raises(TakenError) as taken:
            config.compile_for(recipe, "v5e:2x2")
        return taken.value.args[0]

    return batch_of


@pytest.mark.parametrize("what", PHASES)
def test_of_several_phases_the_step_of_the_largest_batches_is_compiled(what, compiled_batch):
    knobs, shape, predictions = PHASES[what]
    recipe = config.load("recipes/options/growing_rows.gin", ["MASK_RATE=0.3", *knobs])
    x, y, _ = compiled_batch(recipe)
    assert x["token_ids"].shape == shape and y.shape == (shape[0], predictions)
    counted = config.ledger_of(recipe)
    assert counted.sequence_length == shape[1] and not counted.phases


PRETRAININGS = {
    "the second": (["more/data.Mixture.batch_size=256"], (256, 64)),
    "the first": (["more/data.Mixture.batch_size=64"], (128, 64)),
    "a phase of the second that begins": (["more/data.Mixture.batch_size={0: 512, 50: 64, 150: 200}"], (200, 64)),
}


@pytest.mark.parametrize("what", PRETRAININGS)
def test_of_several_pretrainings_that_of_the_largest_batches_is_compiled(what, compiled_batch):
    knobs, shape = PRETRAININGS[what]
    stages = "training.run.stages=[@training.prepare, @training.pretrain, @more/training.pretrain]"
    recipe = config.load("recipes/quickstart.gin", ["STEPS=100", stages, "more/training.pretrain.steps=200", *knobs])
    x, _, _ = compiled_batch(recipe)
    assert x["token_ids"].shape == shape


def test_loss_terms_are_those_of_the_scope_of_the_stage(compiled_batch):
    terms = "training.pretrain.terms=[@rembed_keras.adaptation.terms.RDrop()]"
    scoped = ["more/rembed_keras.adaptation.terms.RDrop.weight=3.0", "training.run.stages=[@more/training.pretrain]"]
    recipe = config.load("recipes/quickstart.gin", [terms, *scoped])
    compiled_batch(recipe)
    (term,) = recipe.bindings["", "rembed_keras.training.compile_step", "terms"].value
    assert recipe.arguments(term)["weight"] == 3.0


@pytest.mark.parametrize("knobs", [[], ["training.run.stages=[@training.pretrain, @more/training.pretrain]"]])
def test_the_backend_is_settled_before_an_optimizer_is_made_to_count_its_slots(knobs, monkeypatch):
    seen = []

    class CountedError(Exception):
        pass

    def count(recipe):
        raise CountedError

    monkeypatch.setattr(compiling, "settle_environment", seen.append)
    monkeypatch.setattr(compiling, "ledger_of", count)
    with pytest.raises(CountedError):
        config.compile_for(config.load("recipes/optimizers/lion.gin", knobs), "v5e:1x1")
    assert seen == [topologies.SETTINGS]
