"""Every public parameter says what it may be, and a value that is something else is refused when a recipe is read."""

import re
from pathlib import Path

import pytest

from rembed_keras import config
from rembed_keras.config.recipes.signatures import names_in, signature
from rembed_keras.errors import UserError

ROOT = Path(__file__).parent.parent.parent.parent
ROOMS = sorted({path.parent for path in (ROOT / "rembed_keras").rglob("__init__.py*")} - {ROOT / "rembed_keras/cli"})
QUICKSTART, ENCODER = "recipes/quickstart.gin", "modeling.Encoder"
POSITIONS = f"{ENCODER}.block=bert"  # where the quickstart's blocks rotate, they have a table


def module_of(folder):
    return ".".join(folder.relative_to(ROOT).parts)


@pytest.mark.parametrize("room", ROOMS, ids=module_of)
def test_every_public_parameter_is_annotated(room):
    module = module_of(room)
    known = {name: signature(f"{module}.{name}") for name in names_in(module)}
    bare = {
        f"{name}({parameter})"
        for name, each in known.items()
        for parameter in (each.parameters if each else ())
        if parameter not in each.annotations
    }
    assert not bare


def test_the_walk_meets_what_recipes_bind():
    met = {name for room in ROOMS for name in names_in(module_of(room))}
    assert met >= {"Encoder", "MaskedLM", "AdamW", "pretrain", "finetune", "Mixture", "Classification", "PreNorm"}


WRONG = {
    f"{ENCODER}.activation=7": "activation is 7; it must be one of gelu, gelu_tanh",
    f"{ENCODER}.activation=gelo": "activation is 'gelo'; it must be one of gelu, gelu_tanh, relu; did you mean gelu?",
    f"{ENCODER}.name=a/b": "name is 'a/b'; a name of what has weights has no '/'",
    f"{ENCODER}.scalar_mix=no": "scalar_mix is 'no'; it must be True or False",
    f"{ENCODER}.num_heads=2.0": "num_heads is 2.0; it must be a positive whole number",
    f"{ENCODER}.num_segments=-1": "num_segments is -1; it must be a whole number of at least 0",
    f"{ENCODER}.dropout=1.5": "dropout is 1.5; it must be a number of at least 0 and below 1",
    f"{ENCODER}.layer_sharing=some": "layer_sharing is 'some'; it must be one of none, attention, feed_forward, all",
    f"{ENCODER}.layer_groups=two": "layer_groups is 'two'; it must be a positive whole number or a list, each a whole",
    f"{ENCODER}.input_cutoffs=100": "input_cutoffs is 100; it must be a list, each a positive whole number",
    f"{ENCODER}.block=7": "block is 7; it must be a reference, with @",
    f"{ENCODER}.attention=[7]": "attention is [7]; it must be a reference, with @",
    f"{ENCODER}.dtype=16": "dtype is 16; it must be one of float32",
    f"{ENCODER}.head_dim=wide": "head_dim is 'wide'; it must be a positive whole number or None",
    "modeling.MaskedLM.kept_layers=half": "kept_layers is 'half'; it must be a positive whole number or None",
    "modeling.MaskedLM.keep=lowest": "keep is 'lowest'; it must be one of bottom, top, alternate, symmetric",
    "COUPLING=decopled": "one of decoupled, coupled, extended, gdes or a reference, with @; did you mean decouple",
    "training.pretrain.clip_norm=much": "clip_norm is 'much'; it must be a number of at least 0 or None",
    "STRATEGY=miror": "STRATEGY is 'miror'; it must be one of one_device, mirrored, multi_worker, tpu, data_parallel, ",
    "training.finetune.dropout=1": "dropout is 1; it must be a number of at least 0 and below 1 or None",
    "training.Muon.beta_2=1.0": "beta_2 is 1.0; it must be a number of at least 0 and below 1",
    "training.finetune.starts=['scrach']": "starts is ['scrach']; it must be a list, each one of pretrained, scratch",
    "training.prepare.normalization=nfc": "normalization is 'nfc'; it must be one of ",
    "training.finetune.task=@tasks.ParallelText()": "it must be a Task, made by a reference with ()",
    "training.retrieve.texts=[@tasks.Classification()]": "it must be a list, each a ParallelText, made by a reference",
    "tasks.Classification.splits=@tasks.ParallelText()": "it must be a Splits, made by a reference with () or None",
    "STEPS=@tasks.ParallelText()": "STEPS is @tasks.ParallelText(); it must be a positive whole number",
}


@pytest.mark.parametrize("binding", WRONG)
def test_a_value_of_another_kind_is_refused_by_inspect(binding, command_line):
    code, out, error = command_line("inspect", QUICKSTART, binding)
    assert (code, out) == (2, "") and WRONG[binding] in error
    assert error.startswith("rembed: command line: ") and binding.partition("=")[0] in error


OF_METHODS = {
    "FINETUNE_METHODS=[@methods.Lora(), @tasks.Classification()]": "a list, each a Method, made by a reference",
    "methods.Lora.rank=0": "rank is 0; it must be a positive whole number",
    "methods.Lora.targets=['querry']": "it must be a list, each one of query, key, value, output, up, down",
    "methods.Lora.alpha=-1": "alpha is -1; it must be a number of at least 0 or None",
    "methods.RoAd.variant=two": "variant is 'two'; it must be one of 1, 2, 4",
    "methods.RoAd.variant=3": "variant is 3; it must be one of 1, 2, 4",
    "methods.Adapters.place=befor": "place is 'befor'; it must be one of after, beside",
    "methods.FisherChosen.units=norm": "units is 'norm'; it must be one of norms, blocks; did you mean norms?",
    "methods.Reinitialize.num_layers=all": "num_layers is 'all'; it must be a positive whole number",
    "methods.LayerwiseDecay.factor=2": "factor is 2; it must be a number from 0 to 1",
}


@pytest.mark.parametrize("binding", OF_METHODS)
def test_arguments_of_fine_tuning_methods_are_checked_with_the_recipe(binding, tmp_path):
    called = [f"@methods.{name}()" for name in ("Lora", "RoAd", "Adapters", "FisherChosen", "Reinitialize")]
    recipe = tmp_path / "recipe.gin"
    recipe.write_text(
        "from __gin__ import dynamic_registration\nfrom rembed_keras import tasks\n"
        "from rembed_keras.adaptation import methods\n"
        f'include "recipes/finetune/bundled.gin"\nFINETUNE_METHODS = [{", ".join(called)}, @methods.LayerwiseDecay()]\n'
    )
    with pytest.raises(UserError, match="^command line: .*" + re.escape(OF_METHODS[binding])):
        config.load(str(recipe), [binding])
    config.load(str(recipe))


def test_a_subclass_a_function_and_what_is_not_ours_may_stand_for_a_class():
    for bindings in (
        [
            "training.finetune.task=@tasks.Tagging()",
            "tasks.Tagging.name=x",
            "tasks.Tagging.splits=@tasks.labelled_folder()",
        ],
        ["tasks.Classification.splits=@tasks.labelled_folder()"],
        [f"{ENCODER}.attention=[@rembed_keras.modeling.attention.Local()]"],
        ["training.Muon.learning_rate=@keras.optimizers.schedules.CosineDecay()"],
    ):
        config.load(QUICKSTART, bindings)


IMPOSSIBLE = {
    (f"{ENCODER}.num_heads=3",): r"num_heads is 3; it must divide hidden_dim, \d+ \(.*num_heads: command line",
    ("COUPLING=coupled", "OUTPUT_EMBEDDING_DIM=7"): (
        r"coupling 'coupled' shares one table of one width, but output_embedding_dim is 7 and input_embedding_dim "
        r"\d+ \(COUPLING: command line, OUTPUT_EMBEDDING_DIM: command line, INPUT_EMBEDDING_DIM: .*gin:\d+\)"
    ),
    (
        "SEQUENCE_LENGTH=4096",
        POSITIONS,
    ): r"sequence_length is 4096; .*max_sequence_length is \d+ \(SEQUENCE_LENGTH: comm",
    (
        "training.retrieve.sequence_length=4096",
        POSITIONS,
    ): r"training.retrieve: sequence_length is 4096; .*length: comm",
    ("modeling.MaskedLM.kept_layers=99",): r"kept_layers is 99; .*modeling.MaskedLM.kept_layers: command line",
    (f"{ENCODER}.scalar_mix=True", "modeling.MaskedLM.kept_layers=1"): r"scalar_mix needs all of its layers.*command",
    (f"{ENCODER}.dropout=0.1", f"{ENCODER}.rematerialize=True"): r"rematerialize needs dropout 0.*command line",
    (f"{ENCODER}.block=bret",): r"block is 'bret'; it can be one of Bottleneck, PostNorm, PreNorm.*command line",
    (f"{ENCODER}.input_cutoffs=(9, 3)",): r"input_cutoffs are \[9, 3\]; they must rise.*input_cutoffs: command line",
    (f"{ENCODER}.input_cutoffs=(1, 2, 3, 4)",): r"input_cutoffs are .* nothing \(modeling.Encoder.input_cutoffs: comm",
    (
        "modeling.MaskedLM.output_cutoffs=(9000,)",
    ): r"output_cutoffs are \[9000\].*MaskedLM.output_cutoffs: command line",
    ("SEQUENCE_LENGTH=64", f"{ENCODER}.max_sequence_length=63", POSITIONS): r"sequence_length is 64; .*length is 63",
    (f"{ENCODER}.layer_groups=99",): r"layer_groups is 99; it must be from 1 to num_layers",
}


@pytest.mark.parametrize("commands", IMPOSSIBLE, ids="-".join)
def test_what_cannot_be_built_is_refused_by_inspect_and_before_a_run_imports_anything(commands, command_line, tmp_path):
    for name in ("inspect", "run"):
        more = () if name == "inspect" else (f"WORKDIR={tmp_path / 'run'}",)
        code, out, error = command_line(name, QUICKSTART, *commands, *more)
        assert (code, out) == (2, "") and re.search(IMPOSSIBLE[commands], error), error
    assert not (tmp_path / "run").exists()


@pytest.fixture
def command_line(command, monkeypatch):
    """A command from the repository's root in which no framework can be imported."""

    def refuse():
        raise AssertionError("a framework is imported")

    for module in ("ledgers", "execution"):
        monkeypatch.setattr(f"rembed_keras.config.{module}.import_framework", refuse)
    return lambda *arguments: command(*arguments, cwd=ROOT)


def test_parameters_of_a_dataclass_are_its_fields():
    found = signature("rembed_keras.analysis.Ledger")
    assert "entries" in found.parameters and "entries" in found.annotations


def test_a_package_that_shows_a_module_of_its_own_has_no_such_function():
    assert signature("rembed_keras.cli.corpora") is None  # imported from the package itself


def test_a_choice_is_followed_to_the_module_that_names_it():
    with pytest.raises(UserError, match="one of bottom, top, alternate, symmetric; did you mean bottom"):
        config.load(QUICKSTART, ["modeling.MaskedLM.keep=botom"])


OUT_OF_RANGE = {
    "SEED=-1": "SEED is -1; it must be a whole number from 0 to 2**32 - 1",
    "SEED=4294967296": "SEED is 4294967296; it must be a whole number",
    "STEPS=0": "STEPS is 0; it must be a positive whole number",
    "BATCH_SIZE=-3": "BATCH_SIZE is -3; it must be a positive whole number",
    "SEQUENCE_LENGTH=0": "SEQUENCE_LENGTH is 0; it must be a positive whole number",
    "CHECKPOINT_EVERY=0": "CHECKPOINT_EVERY is 0; it must be a positive whole number",
    "LOG_EVERY=-1": "LOG_EVERY is -1; it must be a positive whole number",
    "WARMUP_STEPS=-1": "WARMUP_STEPS is -1; it must be a whole number of at least 0",
    "LEARNING_RATE=-0.1": "LEARNING_RATE is -0.1; it must be a number of at least 0",
    "LEARNING_RATE=1e999": "LEARNING_RATE is inf; it must be a number of at least 0",
    "WEIGHT_DECAY=-1.0": "WEIGHT_DECAY is -1.0; it must be a number of at least 0",
    "MASK_RATE=-1.0": "MASK_RATE is -1.0; it must be a number from 0 to 1 or a dict",
    "ALPHA={0: 0.3, -5: 0.7}": "ALPHA is {0: 0.3, -5: 0.7}; it must be a number from 0 to 1 or a dict",
    "training.pretrain.keep_checkpoints=-1": "training.pretrain.keep_checkpoints is -1; it must be a positive",
    "training.pretrain.keep_checkpoint_every=0": "training.pretrain.keep_checkpoint_every is 0; it must be a positive",
    "modeling.MaskedLM.micro_batches=0": "modeling.MaskedLM.micro_batches is 0; it must be a positive whole number",
    "modeling.MaskedLM.loss_chunk=-1": "modeling.MaskedLM.loss_chunk is -1; it must be a positive whole number",
    "training.pretrain.clip_norm=-1": "training.pretrain.clip_norm is -1; it must be a number of at least 0 or None",
    "training.pretrain.skip_nonfinite=-1": "training.pretrain.skip_nonfinite is -1; it must be a whole number",
    "FINETUNE_EPOCHS=-1": "FINETUNE_EPOCHS is -1; it must be a positive whole number",
    "FINETUNE_EXAMPLES=-1": "FINETUNE_EXAMPLES is -1; it must be a positive whole number",
    "FINETUNE_SEEDS=[0, -1]": "FINETUNE_SEEDS is [0, -1]; it must be a list, each a whole number from 0 to 2**32 - 1",
}


@pytest.mark.parametrize("binding", OUT_OF_RANGE)
def test_a_number_out_of_its_range_is_refused_when_the_recipe_is_read(binding):
    with pytest.raises(UserError, match="^command line: " + re.escape(OUT_OF_RANGE[binding])):
        config.load("recipes/quickstart.gin", [binding])


@pytest.mark.parametrize("given", ["1e999", "[0.1, -1e999]"])
def test_an_infinite_number_is_refused_where_no_range_is_known(given):
    bindings = ["training.pretrain.optimizer=@keras.optimizers.Lion", f"keras.optimizers.Lion.weight_decay={given}"]
    with pytest.raises(UserError, match=r"^command line: keras.optimizers.Lion.weight_decay is .*inf.*must be finite"):
        config.load("recipes/quickstart.gin", bindings)


PRE_NORM = "@blocks.PreNorm"
OF_ANOTHER_KIND = {
    f"training.pretrain.mixture={PRE_NORM}": "it must be a reference to a Mixture, with @ and without ()",
    f"training.pretrain.model={PRE_NORM}": "it must be a reference to a PretrainingModel, with @ and without ()",
    "training.pretrain.model=@modeling.Classifier": "it must be a reference to a PretrainingModel, with @",
    f"training.pretrain.encoder={PRE_NORM}": "it must be a reference to an Encoder, with @ and without () or None",
    f"training.pretrain.optimizer={PRE_NORM}": "it must be a reference to an Optimizer, with @ and without ()",
    f"training.finetune.optimizer={PRE_NORM}": "it must be a reference to an Optimizer, with @ and without ()",
    f"training.pretrain.callbacks=[{PRE_NORM}]": "it must be a list, each a reference to a Callback, with @",
    f"training.pretrain.evaluators=[{PRE_NORM}()]": "it must be a list, each an Evaluator, made by a reference with ()",
    "training.pretrain.evaluators=[@evaluators.HeldOutLoss]": "each an Evaluator, made by a reference with ()",
    f"training.run.stages=[{PRE_NORM}]": "it must be a list, each a reference, with @",
    f"training.Muon.learning_rate={PRE_NORM}()": "it must be a number of at least 0 or a reference, with @",
    "training.finetune.task=@tasks.Classification": "it must be a Task, made by a reference with ()",
    f"{ENCODER}.block=@couplings.Extended": "block is Extended, which has no attention and no attention_shapes: it can",
    f"{ENCODER}.block=@modeling.Encoder": "block is @modeling.Encoder, which is no kind of block",
    f"{ENCODER}.attention=[@attention.Local(), {PRE_NORM}()]": "attention is PreNorm, which has no attend and no heads",
    f"{ENCODER}.input_embedding={PRE_NORM}": "one of Projected, Summed, Trigrams, or a class with what Summed",
    f"modeling.MaskedLM.coupling={PRE_NORM}": "coupling is PreNorm, which has no bands and no check: it can be one of",
    "modeling.MaskedLM.coupling=@training.pretrain": "coupling is @training.pretrain, which is no kind of coupling",
}
AS_WANTED = (
    "training.pretrain.optimizer=@keras.optimizers.Lion",
    "training.pretrain.callbacks=[@keras.callbacks.TerminateOnNaN]",
    f"{ENCODER}.block={PRE_NORM}()",
    "modeling.MaskedLM.coupling=@couplings.Extended()",
    "training.pretrain.evaluators=[@evaluators.BitsPerByte()]",
)


@pytest.fixture
def naming_parts(tmp_path):
    """A recipe in which one can refer to every kind of part."""
    recipe = tmp_path / "recipe.gin"
    of_modeling = [f"from rembed_keras.modeling import {name}" for name in ("attention", "blocks", "couplings")]
    lines = ["from __gin__ import dynamic_registration", "import keras", "from rembed_keras import modeling"]
    lines += [*of_modeling, "from rembed_keras.training import evaluators", f'include "{QUICKSTART}"', ""]
    recipe.write_text("\n".join(lines))
    return str(recipe)


@pytest.mark.parametrize("binding", OF_ANOTHER_KIND)
def test_a_part_of_another_kind_is_refused_before_anything_is_done(binding, naming_parts):
    with pytest.raises(UserError, match=re.escape(OF_ANOTHER_KIND[binding])) as raised:
        config.ledger_of(config.load(naming_parts, [binding]))
    assert "command line" in str(raised.value)


@pytest.mark.parametrize("binding", AS_WANTED)
def test_a_part_that_is_wanted_is_taken(binding, naming_parts):
    assert config.ledger_of(config.load(naming_parts, [binding])).kept
