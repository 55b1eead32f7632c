"""What a stage takes from its own run is missed when the recipe is read, and not after pre-training."""

import json

import pytest

from rembed_keras import config
from rembed_keras.config import initial
from rembed_keras.errors import UserError

QUICKSTART = "recipes/quickstart.gin"  # of 2 layers
PROBES = "recipes/options/probes.gin"
STILTS = "recipes/finetune/stilts.gin"
OWN = [f"training.{stage}.pretrained=@training.InitialWeights()" for stage in ("finetune", "evaluate")]
BEST = "training.InitialWeights.checkpoint='best'"
MISSING = {
    BEST: "^training.finetune starts from the best checkpoint of its run, and training.pretrain keeps none: set its",
    "training.InitialWeights.num_layers=1": (
        "^training.finetune: what training.pretrain keeps: num_layers is 1 there and 2 in the recipe's encoder"
    ),
    "training.InitialWeights.num_layers=3": "^training.finetune: .*this encoder has 2",
    "training.InitialWeights.task='topic'": "^training.finetune starts from the task 'topic' of its run, which",
    "modeling.MaskedLM.kept_layers=1": "what training.pretrain keeps: num_layers is 1 there and 2 in the recipe's",
    "other/modeling.Encoder.hidden_dim=32": "what training.pretrain keeps: hidden_dim is 128 there and 32 in the",
}
FITTING = [
    [],
    [BEST, "EVAL_EVERY=10", "training.pretrain.keep_best='loss'", "HELD_OUT=0.1"],
    [BEST, "training.InitialWeights.place='elsewhere'"],
    ["training.InitialWeights.num_layers=1", *(f"training.{each}.encoder=None" for each in ("finetune", "evaluate"))],
    [
        "training.InitialWeights.num_layers=1",
        *(f"training.{each}.starts=('scratch',)" for each in ("finetune", "evaluate")),
    ],
    ["training.InitialWeights.num_layers=2"],
]


def test_the_best_of_a_pre_training_that_another_goes_on_from():
    stages = "training.run.stages=[@training.prepare, @training.pretrain, @more/training.pretrain, @training.finetune]"
    bindings = [OWN[0], BEST, stages, "EVAL_EVERY=10", "HELD_OUT=0.1", "STEPS=20", "more/training.pretrain.steps=30"]
    first, second = (f"{scope}training.pretrain.keep_best=" for scope in ("", "more/"))
    with pytest.raises(UserError, match=MISSING[BEST]):
        config.ledger_of(config.load(QUICKSTART, [*bindings, f"{first}'loss'", f"{second}None"]))
    config.ledger_of(config.load(QUICKSTART, [*bindings, f"{second}'loss'"]))


@pytest.mark.parametrize("binding", MISSING)
def test_what_the_stages_before_do_not_leave(binding):
    encoder = ["training.finetune.encoder=@other/modeling.Encoder"] if binding.startswith("other") else []
    with pytest.raises(UserError, match=MISSING[binding]):
        config.ledger_of(config.load(QUICKSTART, [*OWN, *encoder, binding]))


def test_a_cut_that_cannot_be_made_of_an_encoder_that_a_stage_takes_as_it_is():
    bindings = [*OWN, "training.finetune.encoder=None", "training.InitialWeights.num_layers=3"]
    with pytest.raises(UserError, match=r"^training.finetune: .*this encoder has 2"):
        config.ledger_of(config.load(QUICKSTART, bindings))


def test_a_change_that_cannot_be_made_names_where_the_weights_are_bound():
    given = ["encoder=None", "initial=@training.InitialWeights()"]  # the message speaks of an encoder
    named = [f"training.InitialWeights.{each}" for each in ("place='rembed_small'", "num_layers=99")]
    with pytest.raises(UserError, match=r"^training.pretrain: .* \(training.pretrain.initial: command line\)$"):
        config.ledger_of(config.load(QUICKSTART, [*(f"training.pretrain.{each}" for each in given), *named]))


@pytest.mark.parametrize("bindings", FITTING)
def test_what_they_leave_is_not_refused(bindings):
    config.ledger_of(config.load(QUICKSTART, [*OWN, *bindings]))


def test_of_several_pretrainings_the_last_leaves_what_is_started_from():
    listed = "@training.prepare, @training.pretrain, @more/training.pretrain, @training.finetune, @training.evaluate"
    bindings = [f"training.run.stages=[{listed}]", "more/training.pretrain.steps=2000", "EVAL_EVERY=10", "HELD_OUT=0.1"]
    config.ledger_of(config.load(QUICKSTART, [*OWN, BEST, *bindings, "more/training.pretrain.keep_best='loss'"]))
    message = "^training.finetune starts from the best checkpoint of its run, and training.pretrain keeps none"
    only_first = ["training.pretrain.keep_best='loss'", "more/training.pretrain.keep_best=None"]
    with pytest.raises(UserError, match=message):
        config.ledger_of(config.load(QUICKSTART, [*OWN, BEST, *bindings, *only_first]))


def test_a_task_of_the_run_has_to_be_fine_tuned_before():
    config.ledger_of(config.load(STILTS))
    with pytest.raises(UserError, match=r"^training.finetune starts from the task 'topic' .*; did you mean"):
        config.ledger_of(config.load(STILTS, ["training.InitialWeights.task='topic'"]))
    config.ledger_of(config.load(STILTS, ["FINETUNE_METHODS=[@methods.Lora()]"]))
    with pytest.raises(UserError, match=r"^training.finetune starts from the task 'topics', .*Adapters: what"):
        config.ledger_of(config.load(STILTS, ["FINETUNE_METHODS=[@methods.Lora(), @methods.Adapters()]"]))


def test_what_is_added_to_quantized_weights_does_not_fold(monkeypatch):
    bindings = ["FINETUNE_METHODS=[@methods.Lora()]", "PRETRAINED=rembed_small"]
    config.ledger_of(config.load(STILTS, bindings))
    known = initial.initial_arguments
    few = {"quantized": {"int8": ["block_0/attention/heads/query"]}}
    monkeypatch.setattr("rembed_keras.config.misfits.own_weights.initial_arguments", lambda *of: known(*of) | few)
    with pytest.raises(UserError, match=r"'topics', .* methods.Lora: what that adds cannot be folded into quantized"):
        config.ledger_of(config.load(STILTS, bindings))


def test_changes_that_the_encoder_of_a_task_cannot_have_are_missed_before_it_is_fine_tuned():
    small = "PRETRAINED=rembed_small"  # of 6 layers
    config.ledger_of(config.load(STILTS, [small, "training.InitialWeights.num_layers=2"]))
    with pytest.raises(UserError, match=r"^training.finetune: .*this encoder has 6"):
        config.ledger_of(config.load(STILTS, [small, "training.InitialWeights.num_layers=99"]))


def test_a_learning_rate_of_a_task_has_to_be_chosen_before_its_model_is_started_from():
    stages = "@topics/training.finetune, @after/training.finetune, @after/training.evaluate"
    bindings = [f"training.run.stages=[{stages}]", "training.run.tasks=()"]
    config.ledger_of(config.load(STILTS, bindings))
    rates = "FINETUNE_LEARNING_RATES=(1e-4, 3e-4)"
    config.ledger_of(config.load(STILTS, [rates]))
    with pytest.raises(
        UserError, match=r"^training.finetune starts from the task 'topics', .* rates 0.0001, 0.0003, and no"
    ):
        config.ledger_of(config.load(STILTS, [*bindings, rates]))


@pytest.mark.parametrize(
    "binding", ["training.probe.finetuned='topic'", "training.run.stages=[@training.prepare, @training.probe]"]
)
def test_a_task_whose_encoder_is_probed_has_to_be_fine_tuned_before(binding):
    config.ledger_of(config.load(PROBES))
    message = r"^training.probe measures the task 'topics?' of its run, which no stage before it fine-tunes"
    with pytest.raises(UserError, match=message):
        config.ledger_of(config.load(PROBES, ["training.probe.finetuned='topics'", binding]))


def test_a_task_whose_encoder_is_probed_is_not_fine_tuned_with_what_does_not_fold(tmp_path):
    (tmp_path / "recipe.gin").write_text(
        f"""
from __gin__ import dynamic_registration
from rembed_keras import training
from rembed_keras.adaptation import methods
include "{PROBES}"
training.finetune.methods = [@methods.Lora()]
"""
    )
    config.ledger_of(config.load(str(tmp_path / "recipe.gin")))
    binding = "training.finetune.methods=[@methods.Lora(), @methods.Adapters()]"
    with pytest.raises(UserError, match=r"^training.probe measures the task 'topics', .*Adapters: what that adds"):
        config.ledger_of(config.load(str(tmp_path / "recipe.gin"), [binding]))


def test_a_start_that_is_handed_in_has_to_be_scored():
    recipe, scratch = "recipes/finetune/glue/rte.gin", "FINETUNE_STARTS=('scratch',)"
    config.ledger_of(config.load(recipe))
    config.ledger_of(config.load(recipe, [scratch, "training.submit.start='scratch'"]))
    with pytest.raises(
        UserError, match=r"^training.submit hands in models that started 'pretrained', which training.ev"
    ):
        config.ledger_of(config.load(recipe, [scratch]))


ASKED = {
    "training.submit.seeds=(1, 7)": "submit hands in start 'pretrained' with seed 7, which training.finetune does not",
    "@training.finetune, @training.submit": "submit hands in models of the task 'rte', which no stage before it scores",
    "@training.evaluate, @training.finetune": "evaluate scores models of the task 'rte', which no stage before it fi",
}


@pytest.mark.parametrize("given", ASKED)
def test_models_that_are_asked_have_to_be_trained_and_scored_before(given):
    binding = f"training.run.stages=[{given}, @training.evaluate]" if given.startswith("@") else given
    with pytest.raises(UserError, match=ASKED[given]):
        config.ledger_of(config.load("recipes/finetune/glue/rte.gin", [binding]))


def test_texts_to_mine_that_are_not_there_are_missed_before_the_first_stage(tmp_path):
    (tmp_path / "recipe.gin").write_text(
        f"""
from __gin__ import dynamic_registration
from rembed_keras import modeling
from rembed_keras import training
from rembed_keras.tasks.suites import xtreme
include "{QUICKSTART}"
xtreme.tatoeba.folder = "{tmp_path}/nowhere"
training.mine.name = "tatoeba"
training.mine.texts = @xtreme.tatoeba()
training.mine.encoder = @modeling.Encoder
training.run.tasks = ()
training.run.stages = [@training.prepare, @training.pretrain, @training.mine]
"""
    )
    folder = tmp_path / "run"
    recipe = config.load(str(tmp_path / "recipe.gin"), [f"WORKDIR={folder}"])
    with pytest.raises(UserError, match="nowhere"):
        config.run(recipe)
    assert not (folder / "corpus").exists()


def test_a_folder_without_an_encoder_is_said_with_where_it_is_named(tmp_path):
    message = rf"^training.pretrain: {tmp_path} is not a run, .* Hugging Face model \(INITIAL: command line\)$"
    with pytest.raises(UserError, match=message):
        config.ledger_of(config.load(QUICKSTART, [f"INITIAL={tmp_path}"]))
    of_another = {
        "registered_name": "keras_hub>BertBackbone",
        "config": {"num_layers": 2, "num_heads": 2, "hidden_dim": 8},
    }
    (tmp_path / "config.json").write_text(json.dumps(of_another))
    with pytest.raises(UserError, match=r"is a preset of 'keras_hub>BertBackbone', not of an Encoder"):
        config.ledger_of(config.load(QUICKSTART, [f"INITIAL={tmp_path}"]))


@pytest.mark.parametrize("encoder", ["@modeling.Encoder", "None"])
def test_a_run_that_goes_on_does_not_ask_for_what_it_started_from(encoder, tmp_path):
    """Whose checkpoints were removed to make room, or are of another model by now."""
    (tmp_path / "there").mkdir()
    bindings = [f"INITIAL={tmp_path}/there", f"training.pretrain.encoder={encoder}", f"WORKDIR={tmp_path}/run"]
    bindings += [f"training.{stage}.starts=('scratch',)" for stage in ("finetune", "evaluate")]
    with pytest.raises(UserError, match="there is not a run, a fine-tuned task, a keras-hub preset or a Hugging Face"):
        config.ledger_of(config.load(QUICKSTART, bindings))
    (tmp_path / "run/checkpoints/step-00000002").mkdir(parents=True)
    config.ledger_of(config.load(QUICKSTART, bindings))


SAID = {
    "no place": ("pretrain", [], "has no place: pre-training cannot start from its own run"),
    "layers without a number": ("finetune", ["keep='top'"], "all layers stay: name num_layers"),
    "those of a run to come": ("pretrain", ["keep='top'", "place='nowhere'"], "all layers stay: name num_layers"),
}


@pytest.mark.parametrize("case", SAID)
def test_initial_weights_that_no_stage_could_be_given(case):
    """They are made at the turn of their stage, after the text was prepared."""
    stage, given, message = SAID[case]
    bindings = OWN if stage == "finetune" else ["training.pretrain.initial=@training.InitialWeights()"]
    bindings = [*bindings, *(f"training.InitialWeights.{each}" for each in given)]
    with pytest.raises(UserError, match=rf"^training.{stage}: .*{message}.* \(training.{stage}.*: command line"):
        config.ledger_of(config.load(QUICKSTART, bindings))
