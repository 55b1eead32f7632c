"""What cannot fit in a recipe is refused when it is read, by `rembed inspect` too, and not at its turn."""

import pytest

from rembed_keras import config
from rembed_keras.config.forecasts import choices
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks import PostNorm, PreNorm

QUICKSTART = "recipes/quickstart.gin"  # of 2 layers
HEALING = "recipes/reallocate/heal_distill.gin"
PROBES = "recipes/options/probes.gin"
OWN_FILES = "recipes/finetune/own_files.gin"
TWO_OBJECTIVES = "recipes/options/objectives/two_objectives.gin"
RATES = "which training.finetune does not train: give both the same starts, learning_rates and seeds"
READ = r"whose models it asks: give both the same \(.*: command line"
ONCE = "it must have one value or more, and each once"
MISFITS = {
    "modeling.MaskedLM.micro_batches=3": "BATCH_SIZE is 128, which 3 replicas and micro-batches cannot share evenly",
    "MASK_RATE=0.0": r"mask_rate is 0.0; it must be greater than 0 and less than 1 \(MASK_RATE: command line\)",
    "MASK_RATE=1.0": r"mask_rate is 1.0; it must be greater than 0 and less than 1 \(MASK_RATE: command line\)",
    "MASK_RATE={1: 0.3}": "mask_rate is {1: 0.3}; it must give a share from step 0 on",
    "ALPHA={}": "alpha is {}; it must give an exponent from step 0 on",
    "SEQUENCE_LENGTH=7": "SEQUENCE_LENGTH is 7; it must be a whole number of at least 8",
    "HELD_OUT=1.0": r"held_out is 1.0; it must be at least 0 and less than 1 \(HELD_OUT: command line\)",
    "training.pretrain.clip_norm=0": "clip_norm is 0; it must be positive, or None for no clipping",
    "training.prepare.near_duplicates=0": "near_duplicates is 0; it must be greater than 0 and at most 1",
    "training.prepare.language_threshold=0.0": "language_threshold is 0.0; it must be greater than 0 and at most 1",
    "training.prepare.shard_megabytes=0": "shard_megabytes is 0; it must be positive",
    "training.pretrain.keep_best='loss'": "keep_best is 'loss' and EVAL_EVERY is None: set EVAL_EVERY to a number",
    "training.evaluate.seeds=(0, 7)": f"scores start 'pretrained' at learning rate 0.001 with seed 7, {RATES}",
    "training.finetune.starts=('pretrained',)": f"scores start 'scratch' at learning rate 0.001 with seed 0, {RATES}",
    "training.evaluate.learning_rates=(2e-3,)": f"at learning rate 0.002 with seed 0, {RATES}",
    "training.evaluate.sequence_length=8": f"sequence_length is 8, and 64 in training.finetune, {READ}",
    "training.evaluate.pretrained='runs/other'": f"pretrained is 'runs/other', and None in training.finetune, {READ}",
    "FINETUNE_SEEDS=(0, 1, 0)": rf"seeds is \(0, 1, 0\); {ONCE} \(FINETUNE_SEEDS: command line",
    "FINETUNE_SEEDS=()": rf"seeds is \(\); {ONCE} \(FINETUNE_SEEDS: command line",
    "training.evaluate.starts=()": rf"^training.evaluate: starts is \(\); {ONCE}",
    "training.finetune.starts=['scratch', 'scratch']": rf"starts is \['scratch', 'scratch'\]; {ONCE}",
    "FINETUNE_LEARNING_RATES=()": rf"learning_rates is \(\); {ONCE}",
    "FINETUNE_LEARNING_RATES=(1e-3, 0.001)": rf"learning_rates is \(0.001, 0.001\); {ONCE}",
}
METHODS = {
    "Reinitialize": ("num_layers", 3, "num_layers of Reinitialize is 3; this encoder has 2 layers"),
    "Biases": ("layers", [2], "there is no block 2: this encoder has 2, numbered from 0"),
    "Blocks": ("layers", [0, -3], "there is no block -3: this encoder has 2, numbered from 0"),
    "Lora": ("layers", [5], "there is no block 5: this encoder has 2, numbered from 0"),
    "FisherChosen": ("count", 3, "FisherChosen is to train 3 blocks; this encoder has 2"),
}
SUMS = {
    "modeling.ReplacedTokenDetection.sharing=gdes": "does not train the encoder's own table, which others of a Sum",
    "modeling.MaskedLM.kept_layers=1": "masked_lm has kept_layers or micro_batches of its own: leave them out in a Sum",
    "modeling.MaskedLM.micro_batches=2": "masked_lm has kept_layers or micro_batches of its own: leave them out",
    "modeling.MaskedLM.name=replaced_token_detection": "are called replaced_token_detection, replaced_token_detection:",
    "OBJECTIVE_WEIGHTS=[1.0]": "Sum has 2 objectives and 1 weights: it needs one for each",
    "OBJECTIVE_WEIGHTS=[1.0, {5: 0.1}]": "a weight of Sum is {5: 0.1}; it must be at least 0, or such numbers by step",
    "objectives.Sum.objectives=[]": "Sum has 0 objectives and 2 weights",
    "objectives.Sum.objectives=[@objectives.Sum, @modeling.MaskedLM]": "Sum cannot be an objective of its own",
}


@pytest.mark.parametrize("binding", MISFITS)
def test_numbers_and_choices_that_a_stage_would_refuse(binding):
    config.ledger_of(config.load(QUICKSTART))
    with pytest.raises(UserError, match=MISFITS[binding]):
        config.ledger_of(config.load(QUICKSTART, [binding]))


@pytest.mark.parametrize(
    ("name", "others", "said"),
    [
        ("intents", "@direct/training.finetune", "task intents, start 'pretrained' .* and differ in pretrained"),
        ("topics", "@topics/training.finetune", "task topics, start 'pretrained' .* and differ in "),
    ],
)
def test_models_that_two_stages_would_train_in_two_ways(name, others, said):
    """The second would find them done, and its scores would be those of the first."""
    binding = f"after/tasks.Classification.name={name}"
    with pytest.raises(UserError, match=f"@after/training.finetune and {others} train the same model of the {said}"):
        config.ledger_of(config.load("recipes/finetune/stilts.gin", [binding]))
    seeds = [f"after/training.{stage}.seeds=(7,)" for stage in ("finetune", "evaluate")]
    config.ledger_of(config.load("recipes/finetune/stilts.gin", [binding, *seeds]))


def test_a_pretraining_that_another_would_have_done():
    """Both would go on from one folder of checkpoints, and the second would find its last step taken."""
    stages = "training.run.stages=[@training.prepare, @training.pretrain, @more/training.pretrain]"
    bindings = ["STEPS=9", stages, "more/data.Mixture.alpha=1.0"]
    said = "^@more/training.pretrain ends at step 9, to which @training.pretrain has trained in the same WORKDIR: give"
    with pytest.raises(UserError, match=said):
        config.ledger_of(config.load(QUICKSTART, bindings))
    config.ledger_of(config.load(QUICKSTART, [*bindings, "more/training.pretrain.steps=10"]))


def test_two_corpora_of_one_run_are_refused():
    """The second stage would refuse the corpus of the first, after a pre-training."""
    listed = "@training.prepare, @training.pretrain, @more/training.prepare, @more/training.pretrain"
    bindings = ["STEPS=9", f"training.run.stages=[{listed}]", "more/training.pretrain.steps=10"]
    same = ["more/training.prepare.processes=1"]
    config.ledger_of(config.load(QUICKSTART, [*bindings, *same]))
    said = "^@training.prepare and @more/training.prepare prepare the corpus of the same WORKDIR, and differ in langua"
    with pytest.raises(UserError, match=said):
        config.ledger_of(config.load(QUICKSTART, [*bindings, *same, 'more/training.prepare.languages=["de"]']))


GOES_ON = (
    "^@more/training.pretrain goes on from the checkpoints of @training.pretrain in the same WORKDIR, and has other"
)
FURTHER = {
    "data.Mixture.batch_size={}": "^BATCH_SIZE is {}; it must give a size from step 0 on",
    "data.Mixture.sequence_length=129": "^sequence_length is 129; the model's max_sequence_length is 128",
    "training.pretrain.keep_best='loss'": "^keep_best is 'loss' and EVAL_EVERY is None",
    "modeling.Encoder.num_layers=3": f"{GOES_ON} parameters: give both one",
    "training.pretrain.optimizer=@training.AdamW": f"{GOES_ON} slots: give both one",
    "training.pretrain.terms=[@rembed_keras.adaptation.terms.RDrop()]": f"{GOES_ON} loss terms: give both one",
    "training.pretrain.optimizer=@keras.optimizers.Adam": f"{GOES_ON} optimizer: give both one",  # as many slots
    "training.pretrain.callbacks=[@keras.callbacks.LambdaCallback]": f"{GOES_ON} callbacks: give both one",
    "training.pretrain.initial='runs/other'": f"{GOES_ON} initial weights: give both one",
    "training.pretrain.corpus='elsewhere'": f"{GOES_ON} corpus: give both one",
}


@pytest.mark.parametrize("binding", FURTHER)
def test_each_of_several_pretrainings_is_held_against_the_ledger(binding):
    stages = "training.run.stages=[@training.prepare, @training.pretrain, @more/training.pretrain]"
    bindings = [stages, "STEPS=9", "more/training.pretrain.steps=10", "modeling.Encoder.block='bert'"]
    if "@keras.optimizers" in binding:
        bindings.append("training.pretrain.optimizer=@training.AdamW")
    alone = config.ledger_of(config.load(QUICKSTART, bindings[1:2] + bindings[3:]))
    assert config.ledger_of(config.load(QUICKSTART, bindings)).entries == alone.entries
    with pytest.raises(UserError, match=FURTHER[binding]):
        config.ledger_of(config.load(QUICKSTART, [*bindings, f"more/{binding}"]))


OTHER_MEANING = {
    "modeling.Encoder.activation='relu'": "activation is 'gelu' there and 'relu' in the recipe's encoder",
    "modeling.Encoder.layer_norm_epsilon=1e-6": "layer_norm_epsilon is 1e-05 there and 1e-06 in the recipe's encoder",
    "modeling.Encoder.attention=[@rembed_keras.modeling.attention.Local()]": "attention is 'Global' there and 'Local'",
}


@pytest.mark.parametrize("binding", OTHER_MEANING)
def test_a_second_pretraining_whose_encoder_would_take_the_weights_for_others(binding):
    """All shapes are the same, so its checkpoint would be read without a word."""
    stages = "training.run.stages=[@training.prepare, @training.pretrain, @more/training.pretrain]"
    bindings = [stages, "STEPS=9", "more/training.pretrain.steps=10", "more/modeling.Encoder.dropout=0.5"]
    config.ledger_of(config.load(QUICKSTART, bindings))
    said = f"^training.pretrain: the checkpoints of @training.pretrain: {OTHER_MEANING[binding]}"
    with pytest.raises(UserError, match=said):
        config.ledger_of(config.load(QUICKSTART, [*bindings, f"more/{binding}"]))


@pytest.mark.parametrize("knob", ["ALPHA", "BATCH_SIZE", "MASK_RATE", "SEQUENCE_LENGTH"])
def test_batches_of_an_encoder_that_is_not_there_yet(knob):
    assert config.ledger_of(config.load(HEALING)) is None
    with pytest.raises(UserError, match=f"(?i)^{knob} is {{}}; it must give .* from step 0 on"):
        config.ledger_of(config.load(HEALING, [f"{knob}={{}}"]))


EVALUATED = {
    "eval_every": ("3", "EVAL_EVERY is 3 and evaluators.HeldOutLoss reads held-out text, of which HELD_OUT 0 leaves"),
    "keep_best": ("'loss'", "keep_best is 'loss' and EVAL_EVERY is None: set EVAL_EVERY to a number of steps"),
    "evaluators": ("[]", "EVAL_EVERY is 3 and training.pretrain.evaluators lists nothing to evaluate"),
}


@pytest.mark.parametrize("name", EVALUATED)
def test_what_a_second_pre_training_cannot_evaluate(name):
    value, message = EVALUATED[name]
    stages = "training.run.stages=[@training.prepare, @training.pretrain, @more/training.pretrain]"
    bindings = ["STEPS=9", stages, "more/training.pretrain.steps=10"]
    bindings += ["more/training.pretrain.eval_every=3"] if name == "evaluators" else []
    with pytest.raises(UserError, match=message):
        config.ledger_of(config.load(QUICKSTART, [*bindings, f"more/training.pretrain.{name}={value}"]))


def test_models_that_would_be_trained_again_of_a_pre_training_that_has_gone_on():
    """They would be found done, and refused since they started from another checkpoint."""
    stages = ("prepare", "pretrain", "finetune", "more/training.pretrain", "finetune")
    listed = ", ".join(f"@{each if '/' in each else f'training.{each}'}" for each in stages)
    bindings = ["STEPS=9", "more/training.pretrain.steps=10", f"training.run.stages=[{listed}]"]
    said = "train the same model of the task topics, start 'pretrained' .* and differ in the checkpoint that they start"
    with pytest.raises(UserError, match=f"^@training.finetune and @training.finetune {said} from: give each task a"):
        config.ledger_of(config.load(QUICKSTART, bindings))
    for elsewhere in ("training.finetune.starts=('scratch',)", "training.finetune.pretrained='elsewhere'"):
        config.ledger_of(config.load(QUICKSTART, [*bindings, elsewhere]))


def test_words_of_languages_that_the_corpus_or_its_text_has_not(corpus, tmp_path):
    (tmp_path / "eng.txt").touch()
    text, place = f"training.prepare.text_dir='{tmp_path}'", f"training.pretrain.corpus='{corpus.path}'"
    for bindings, where in (
        ([text], f"the text in {tmp_path}"),
        ([text, "training.prepare.languages=['eng']"], "what is prepared"),
        ([text, place], f"the corpus {corpus.path}"),
    ):
        said = rf"^training.probe: words has 'enx', which is no language of {where}: leave it out, or prepare its text"
        with pytest.raises(UserError, match=rf"{said} too; did you mean en.*\? \(training.probe.words: command line\)"):
            config.ledger_of(config.load(PROBES, [*bindings, "training.probe.words=('enx',)"]))
    config.ledger_of(config.load(PROBES, [text, place]))
    for unknown in ([], ["training.prepare.text_dir='nowhere'"]):
        config.ledger_of(config.load(PROBES, [*unknown, "training.probe.words=('enx',)"]))


@pytest.mark.parametrize("stage", ["evaluate", "submit"])
def test_models_that_are_asked_otherwise_than_they_were_trained(stage):
    """They would answer, and be scored, as if they had been trained so."""
    config.ledger_of(config.load("recipes/finetune/glue/cola.gin", ["PRETRAINED=rembed_small"]))
    for binding, message in (
        ("sequence_length=8", "sequence_length is 8, and 128 in training.finetune, "),
        ("pretrained='runs/other'", "pretrained is 'runs/other', and 'rembed_small' in training.finetune, "),
    ):
        bindings = ["PRETRAINED=rembed_small", f"training.{stage}.{binding}"]
        with pytest.raises(UserError, match=f"^training.{stage}: {message}{READ}"):
            config.ledger_of(config.load("recipes/finetune/glue/cola.gin", bindings))
    changed = ["PRETRAINED=runs/other", "training.evaluate.pretrained=runs/other"]  # and not what is made of it
    config.ledger_of(config.load("recipes/finetune/dropped_layers.gin", changed))


@pytest.mark.parametrize("binding", SUMS)
def test_objectives_that_cannot_be_summed(binding):
    config.ledger_of(config.load(TWO_OBJECTIVES))
    with pytest.raises(UserError, match=SUMS[binding]):
        config.ledger_of(config.load(TWO_OBJECTIVES, [binding]))


@pytest.mark.parametrize("name", METHODS)
def test_methods_whose_blocks_the_encoder_has_not(name, tmp_path):
    parameter, value, message = METHODS[name]
    recipe = tmp_path / "methods.gin"
    units = 'methods.FisherChosen.units = "blocks"' if name == "FisherChosen" else ""
    lines = ["from __gin__ import dynamic_registration", f'include "{QUICKSTART}"']
    lines += ["from rembed_keras import training", "from rembed_keras.adaptation import methods"]
    lines += [f"training.finetune.methods = [@methods.{name}()]", f"methods.{name}.{parameter} = {value}", units]
    recipe.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=rf"^training\.finetune: {message}"):
        config.ledger_of(config.load(str(recipe)))
    fitting = [f"methods.{name}.{parameter}={1 if isinstance(value, int) else [-2]}"]
    if name == "Biases":
        with pytest.raises(UserError, match="this encoder's blocks have none: take Norms or Lora"):
            config.ledger_of(config.load(str(recipe), fitting))
        fitting.append("modeling.Encoder.block=@rembed_keras.modeling.blocks.PostNorm")
    config.ledger_of(config.load(str(recipe), fitting))


@pytest.mark.parametrize(
    ("optimizer", "given", "message"),
    [
        ("SGD", "SGD.momentum=2.0", "^training.finetune: no optimizer can be made by keras.optimizers.SGD: `momentum`"),
        ("AdamW", "AdamW.use_ema=True", "^training.finetune: AdamW.use_ema is True: averages of weights are not kept"),
        (
            "Lion",
            "schedules.CosineDecay.decay_steps=0",
            "^training.pretrain: no learning rate can be made by .*decay_s",
        ),
    ],
)
def test_optimizers_and_learning_rates_of_keras_that_refuse_what_they_are_given(optimizer, given, message):
    rate = ["training.Muon.learning_rate=@keras.optimizers.schedules.CosineDecay()"]
    rate += [
        f"keras.optimizers.schedules.CosineDecay.{each}" for each in ("initial_learning_rate=0.1", "decay_steps=9")
    ]
    bindings = [*rate, f"training.finetune.optimizer=@keras.optimizers.{optimizer}"]
    config.ledger_of(config.load(QUICKSTART, bindings))
    with pytest.raises(UserError, match=message):
        config.ledger_of(config.load(QUICKSTART, [*bindings, f"keras.optimizers.{given}"]))


def test_texts_that_are_longer_than_the_positions_of_an_encoder_that_is_there(tmp_path):
    presets = {kind: str(tmp_path / kind.__name__) for kind in (PostNorm, PreNorm)}  # the second rotates: no positions
    for block, folder in presets.items():
        Encoder(50, 1, 1, 8, 8, 4, max_sequence_length=16, block=block).save_to_preset(folder)
    bindings = ["FINETUNE_SEQUENCE_LENGTH=32", "TRAIN=x.tsv", "TEST=x.tsv"]
    message = r"^training\.finetune: sequence_length is 32; the model's max_sequence_length is 16 \(FINETUNE_SEQUENCE"
    with pytest.raises(UserError, match=message):
        config.ledger_of(config.load(OWN_FILES, [*bindings, f"PRETRAINED={presets[PostNorm]}"]))
    fitting = ["FINETUNE_SEQUENCE_LENGTH=16", *bindings[1:]]
    assert config.ledger_of(config.load(OWN_FILES, [*fitting, f"PRETRAINED={presets[PostNorm]}"])) is None
    assert config.ledger_of(config.load(OWN_FILES, [*bindings, f"PRETRAINED={presets[PreNorm]}"])) is None
    (tmp_path / "to_come").mkdir()  # of a run that has pre-trained nothing yet
    assert config.ledger_of(config.load(OWN_FILES, [*bindings, f"PRETRAINED={tmp_path}/to_come"])) is None


def test_rows_of_an_encoder_without_a_table_of_positions_may_be_longer_than_it_says():
    short = ["SEQUENCE_LENGTH=64", "modeling.Encoder.max_sequence_length=32"]
    with pytest.raises(UserError, match="sequence_length is 64; the model's max_sequence_length is 32"):
        config.ledger_of(config.load(QUICKSTART, [*short, "modeling.Encoder.block='bert'"]))
    rotary = config.ledger_of(config.load(QUICKSTART, short))
    assert rotary.training_flops["total"] > 0


def test_tasks_for_which_learning_rates_are_chosen_among():
    assert choices(config.load(QUICKSTART)) == {}
    assert choices(config.load(QUICKSTART, ["FINETUNE_LEARNING_RATES=(1e-3, 2e-3)"])) == {0: (1e-3, 2e-3)}
