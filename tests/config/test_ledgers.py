"""The ledger of a recipe: parts say what they cost, a stranger's too, and nothing is built for it."""

import importlib
import subprocess
import sys

import keras
import pytest

from rembed_keras import config
from rembed_keras.adaptation.terms import Term
from rembed_keras.analysis import ledger
from rembed_keras.config.ledgers import pretraining
from rembed_keras.config.recipes.classes import static_method
from rembed_keras.config.recipes.parse import override
from rembed_keras.config.terms import terms_of
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.training.compiling import fitting

PARTS = """
import dataclasses

from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.modeling.cost import Entry, Work
from rembed_keras.modeling.objectives.masked_lm_cost import masked_lm_entries


class Parallel(PreNorm):
    def feed_forward_shapes(self, config):
        return (*super().feed_forward_shapes(config), (config["hidden_dim"],))


class Cheap(Global):
    def work(self, config, length):
        return Work(0, 0, 0)


class Objective:
    def __init__(self, encoder, output_embedding_dim, coupling="decoupled", own=None):
        pass

    @staticmethod
    def ledger_entries(config, sequence_length, mask_rate):
        return [*masked_lm_entries(config, sequence_length, mask_rate), Entry("own", ((7,),), is_kept=False)]


class Silent:
    def __init__(self, encoder, output_embedding_dim, coupling="decoupled"):
        pass
"""

ENCODER = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_heads": 1,
    "hidden_dim": 4,
    "intermediate_dim": 4,
    "input_embedding_dim": 2,
}


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A package of a stranger's, and the arguments with which `load` admits it."""
    (tmp_path / "strange_parts.py").write_text(PARTS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    recipe = tmp_path / "strange.gin"

    def load(*bindings):
        lines = [
            "from __gin__ import dynamic_registration",
            "import strange_parts",
            "from rembed_keras import modeling",
        ]
        lines += ["from rembed_keras import training", 'include "recipes/quickstart.gin"', *bindings]
        recipe.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return config.load(str(recipe), allow_import=["strange_parts"])

    yield load
    sys.modules.pop("strange_parts", None)


def test_a_strangers_parts_are_counted_as_they_say(parts):
    ours = config.ledger_of(config.load("recipes/quickstart.gin"))
    block = config.ledger_of(parts("modeling.Encoder.block = @strange_parts.Parallel"))
    assert block.kept == ours.kept + 2 * 128  # one vector more in each of two blocks
    attention = config.ledger_of(parts("modeling.Encoder.attention = [@strange_parts.Cheap()]"))
    assert attention.kept == ours.kept
    assert attention.flops["kept"] == ours.flops["kept"] - 2 * 4 * 64 * 128  # scores and sums of values, S 64, D 128
    objective = ["training.pretrain.model = @strange_parts.Objective"]
    objective += ["strange_parts.Objective.output_embedding_dim = %OUTPUT_EMBEDDING_DIM"]
    objective += ["strange_parts.Objective.coupling = %COUPLING"]
    # none of which need say what it costs
    for own in ("None", "@strange_parts.Silent", "@strange_parts.Cheap()", "@training.AdamW"):
        given = _without_masked_lm(parts, [*objective, f"strange_parts.Objective.own = {own}"])
        assert config.ledger_of(given).dropped == ours.dropped + 7


def test_an_optimizer_of_ones_own_says_its_slots_or_why_they_cannot_be_counted(parts, monkeypatch):
    class Own(keras.optimizers.SGD):
        def build(self, variables):
            raise ValueError("no such axis")

    recipe = parts()
    monkeypatch.setattr(importlib.import_module("strange_parts"), "Own", Own, raising=False)
    override("training.pretrain.optimizer=@strange_parts.Own", recipe)
    with pytest.raises(UserError, match="the slots of Own cannot be counted: no such axis; give it a static method"):
        config.ledger_of(recipe)
    Own.ledger_slots = staticmethod(lambda entries: [3 * entry.trained_shapes for entry in entries])
    counted = config.ledger_of(recipe)
    assert sum(counted.slots) == 3 * sum(entry.trained_parameters for entry in counted.entries)


def test_an_optimizer_around_one_that_is_bound_as_a_class_is_given_the_class(parts, monkeypatch):
    class Around(keras.optimizers.Lion):
        def __init__(self, inner, learning_rate=0.1):
            super().__init__(learning_rate)
            self.inner = inner(learning_rate=0.1)

        @property
        def variables(self):
            return [*super().variables, *(self.inner.variables if hasattr(self, "inner") else ())]

    recipe = parts()
    monkeypatch.setattr(importlib.import_module("strange_parts"), "Around", Around, raising=False)
    for stage in ("pretrain", "finetune"):
        override(f"training.{stage}.optimizer=@strange_parts.Around", recipe)
    override("strange_parts.Around.inner=@keras.optimizers.SGD", recipe)
    counted = config.ledger_of(recipe)
    assert sum(counted.slots) >= sum(entry.trained_parameters for entry in counted.entries)  # Lion's
    override("keras.optimizers.SGD.momentum=2.0", recipe)
    with pytest.raises(UserError, match=r"no optimizer can be made by strange_parts\.Around: `momentum` must be"):
        config.ledger_of(recipe)


def test_parts_of_a_dict_that_a_part_is_given_are_made_and_a_tuple_stays_one(parts, monkeypatch):
    class Joint(Term):
        def __init__(self, terms: dict, shares: tuple):
            super().__init__(name="joint")
            self.weight = sum(each.weight for each in terms.values()) * isinstance(shares, tuple)

    monkeypatch.setattr(importlib.import_module("strange_parts"), "Joint", Joint, raising=False)
    lines = ["from rembed_keras.adaptation import terms", "training.pretrain.terms = [@strange_parts.Joint()]"]
    lines += ['strange_parts.Joint.terms = {"a": @terms.RDrop(), "b": @more/terms.RDrop()}']
    lines += ["strange_parts.Joint.shares = (0.25, 0.125)", "more/terms.RDrop.weight = 0.5"]
    recipe = parts(*lines, "modeling.Encoder.dropout = 0.1")
    (joint,) = terms_of(recipe, pretraining(recipe))
    assert joint.weight == 1.5


def _without_masked_lm(parts, bindings):
    """The quickstart with another objective; what binds `MaskedLM` is then used by nothing, and left out."""
    loaded = parts()
    loaded.bindings = {key: value for key, value in loaded.bindings.items() if "MaskedLM" not in key[1]}
    for text in bindings:
        override(text.replace(" = ", "=", 1), loaded)
    return loaded


def test_an_objective_that_does_not_say_what_it_costs_is_refused(parts):
    bindings = ["training.pretrain.model = @strange_parts.Silent"]
    bindings += ["strange_parts.Silent.output_embedding_dim = %OUTPUT_EMBEDDING_DIM"]
    with pytest.raises(UserError, match=r"strange_parts\.Silent does not say what it costs: give it ledger_entries"):
        config.ledger_of(_without_masked_lm(parts, bindings))


def test_another_objectives_arguments_are_not_counted_as_masked_lm():
    with pytest.raises(UserError, match="decoder_layers is no argument of MaskedLM"):
        ledger({"encoder": ENCODER, "output_embedding_dim": 2, "decoder_layers": 2})


NYSTROM = """
from rembed_keras.modeling import attention
PATTERN = [@attention.Global(), @attention.Nystrom()]
modeling.Encoder.attention = %PATTERN
"""
MISFITS = {
    "attention": (
        NYSTROM,
        r"attention Nystrom needs one document a row, .* \(PATTERN: .*strange\.gin:8\)$",
    ),
    "length": (
        "modeling.Encoder.block = 'bert'\nSEQUENCE_LENGTH = 129",
        r"^sequence_length is 129; .* is 128 \(SEQUENCE_LENGTH: .*strange\.gin:7, .*_length: .*tiny\.gin:17\)$",
    ),
    "vocabulary": (
        "training.prepare.vocabulary_size = 8001",
        r"^the corpus has 8001 .* is 8000 \(VOCABULARY_SIZE: .*:5, training\.prepare\.vocabulary_size: .*:6\)$",
    ),
    "default vocabulary": (
        "modeling.Encoder.vocabulary_size = 7999",
        r"^the corpus has 8000 word pieces; the model's vocabulary_size is 7999",
    ),
}


@pytest.mark.parametrize("what", MISFITS)
def test_a_corpus_that_cannot_fit_the_model_is_reported_with_the_recipe(parts, what):
    lines, message = MISFITS[what]
    with pytest.raises(UserError, match=message):
        config.ledger_of(parts(lines))


@pytest.mark.parametrize(
    "binding", ["training.prepare.tokenizer = 'some.model'", "training.pretrain.corpus = 'some/corpus'"]
)
def test_a_vocabulary_that_only_a_file_says_is_not_guessed(parts, binding):
    config.ledger_of(parts("training.prepare.vocabulary_size = 8001", binding))


def test_a_given_tokenizer_of_more_pieces_than_the_model_has_rows_is_refused(parts, corpus):
    given = f"training.prepare.tokenizer = '{corpus.tokenizer.path}'"  # of 900 pieces
    config.ledger_of(parts(given, "VOCABULARY_SIZE = 900"))
    with pytest.raises(UserError, match=r"^the corpus has 900 word pieces; .* is 899 \(VOCABULARY_SIZE: .*strange"):
        config.ledger_of(parts(given, "VOCABULARY_SIZE = 899"))


@pytest.mark.parametrize("asked", ["byte_fallback = True", "normalization = 'nfkc'"])
def test_what_only_a_trained_tokenizer_can_do_is_not_dropped_beside_a_given_one(parts, asked):
    name = asked.split()[0]
    with pytest.raises(
        UserError, match=rf"^{name} is of a tokenizer to train, and one is given: .*\(training\.prepare"
    ):
        config.ledger_of(parts("training.prepare.tokenizer = 'some.model'", f"training.prepare.{asked}"))


def test_methods_are_found_in_the_source_through_bases_and_reexports():
    path = "rembed_keras.modeling.objectives.masked_lm_cost.masked_lm_entries"
    assert static_method("rembed_keras.modeling.MaskedLM", "ledger_entries") == path
    assert static_method("rembed_keras.modeling.MaskedLM", "no_such_thing") is None
    assert static_method("rembed_keras.modeling.NoSuchThing", "ledger_entries") is None


def test_a_block_may_be_given_as_a_class_an_object_or_in_former_words():
    for kind, former in ((PostNorm, "bert"), (PreNorm, "modern")):
        counts = {ledger(ENCODER | {"block": block}).total for block in (kind, kind(), former)}
        assert len(counts) == 1


def test_a_recipe_is_counted_without_a_framework():
    code = (
        "import sys; from rembed_keras import config;"
        "config.ledger_of(config.load('recipes/options/layers/pre_norm.gin'));"
        "print([module for module in ('keras', 'tensorflow', 'jax', 'numpy') if module in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_part_that_a_package_has_not_is_named(parts):
    with pytest.raises(UserError, match=r"^there is no strange_parts\.Missing"):
        config.ledger_of(parts("modeling.Encoder.attention = [@strange_parts.Missing()]"))


def test_an_encoder_of_initial_weights_is_counted_in_the_dtype_of_the_recipe(tmp_path):
    from rembed_keras.modeling import Encoder

    Encoder(**ENCODER, max_sequence_length=128, dtype="mixed_bfloat16").save_to_preset(str(tmp_path / "mine"))
    bindings = [f"INITIAL={tmp_path / 'mine'}", "training.prepare.vocabulary_size=50"]
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        counted = config.ledger_of(config.load("recipes/reallocate/heal_mlm.gin", [*bindings, f"DTYPE={dtype}"]))
        assert counted.dtype == dtype and counted.bytes["kept"] == size * counted.kept


def test_each_of_several_pretrainings_is_counted_at_its_length():
    more = {"training.pretrain.steps": 12, "data.Mixture.sequence_length": "{0: 64, 10: 128}"}
    stages = "training.run.stages=[@training.prepare, @training.pretrain, @more/training.pretrain]"
    bindings = ["STEPS=9", stages, *(f"more/{name}={value}" for name, value in more.items())]
    counted = config.ledger_of(config.load("recipes/quickstart.gin", bindings))
    alone = {
        length: config.ledger_of(config.load("recipes/quickstart.gin", [f"SEQUENCE_LENGTH={length}"]))
        for length in (64, 128)
    }
    assert counted.training_flops == alone[128].training_flops and not alone[64].phases
    assert [phase[:4] for phase in counted.phases] == [(0, 9, 128, 64), (9, 1, 128, 64), (10, 2, 128, 128)]
    for phase in counted.phases:
        assert phase.training_flops == phase.tokens * alone[phase.sequence_length].training_flops["total"]


@pytest.mark.parametrize("is_rematerialized", [False, True])
def test_what_devices_hold_of_a_row_is_what_a_step_is_planned_with(is_rematerialized):
    bindings = ["modeling.Encoder.dropout=0.0", f"modeling.Encoder.rematerialize={is_rematerialized}"]
    recipe = config.load("recipes/rembert.gin", [*bindings, "DTYPE=mixed_bfloat16"])
    counted = config.ledger_of(recipe)
    sizes = fitting.Sizes.of(counted, {"num_layers": 32, "hidden_dim": 1152}, bytes_of_a_number=2)
    one, none = (fitting.Plan(1, rows, "one_device", 1, is_rematerialized) for rows in (1, 0))
    held = {each.activations for each in config.held_of(recipe, counted, 8).values()}
    assert held == {round(sizes.bytes_of(one) - sizes.bytes_of(none))}
    whole = counted.sequence_length * counted.activation_bytes["total"]
    assert max(held) < whole / 10 if is_rematerialized else held == {whole}
