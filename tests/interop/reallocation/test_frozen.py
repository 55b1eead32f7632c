"""Layers that were frozen by hand are frozen in what a model is made into."""

from pathlib import Path

import pytest

from rembed_keras import Tokenizer
from rembed_keras.adaptation import Lora
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.interop import Plan, extend, merge, read_model, reallocate, trim, write
from rembed_keras.interop.reallocation.depth import with_depth
from rembed_keras.interop.reallocation.embeddings import with_width
from rembed_keras.modeling import Classifier, MaskedLM, Sum
from rembed_keras.modeling.layers.adapters import hosted_by
from rembed_keras.modeling.saving.changes import frozen_in
from rembed_keras.training.initial.held import folded
from tests.interop.models import random_model

LINES = ["open the file and save it", "close the table", "save the table and open it"] * 30
HEAD = ["head/output_embedding", "head/dense"]
FROZEN = ["block_1/attention", "embeddings/token"]


def frozen_model(rows=60):
    model = random_model({"vocabulary_size": rows})
    encoder, head = model.encoder, model.head
    for layer in (encoder.token_embedding, encoder.parts.blocks[1].attention, head.dense, head.output_embedding):
        layer.trainable = False
    return model


def said(model):
    return model.get_config().get("frozen"), frozen_in(model.encoder).get("frozen")


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen")
    Tokenizer.train(LINES, 25).model.copy_to(folder)
    write(frozen_model(25), str(folder / "preset"), "preset", folder / "tokenizer.model")
    (folder / "text").mkdir()
    (folder / "text/en.txt").write_text("open the file\n", encoding="utf-8")
    return folder / "preset"


EDITS = {
    "trim": lambda source, target: trim(source, target, str(Path(source).parent / "text")),
    "extend": lambda source, target: extend(source, target, ["▁zoo"]),
    "narrow": lambda source, target: reallocate(read_model(source)[0], target, Plan(input_embedding_dim=4)),
    "deepen": lambda source, target: reallocate(read_model(source)[0], target, Plan(num_layers=4)),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_model_with_a_frozen_head_is_edited(edit, preset, tmp_path):
    EDITS[edit](str(preset), str(tmp_path / "made"))
    made, _ = read_model(str(tmp_path / "made"))
    assert said(made) == (HEAD, FROZEN)


def test_a_new_projection_learns():
    encoder = random_model({"input_embedding_dim": 16, "always_project": False}).encoder
    encoder.parts.embeddings.trainable = False
    narrowed, _ = with_width(encoder, 5)
    assert frozen_in(narrowed) == {"frozen": ["embeddings"]}
    assert len(narrowed.parts.projection.trainable_weights) == 2
    assert frozen_in(encoder) == {"frozen": ["embeddings"]}


def test_what_was_thawed_in_a_frozen_encoder_stays_so():
    encoder = random_model({"num_layers": 2}).encoder
    encoder.trainable = False
    encoder.parts.blocks[1].attention.trainable = True
    for made in (with_depth(encoder, 2), with_width(encoder, 4)[0]):
        trained = [weight.path for weight in Classifier(made, 2).trainable_weights]
        assert {"/".join(path.split("/")[:2]) for path in trained} <= {"block_1/attention", "head/kernel", "head/bias"}
        assert frozen_in(made)["frozen"][:2] == ["block_0", "block_1/feed_forward"]


def test_merged_encoders_are_frozen_as_the_first():
    merged, _ = merge([frozen_model().encoder, random_model().encoder])
    assert frozen_in(merged) == {"frozen": FROZEN}


def test_a_sum_of_frozen_objectives_comes_back():
    model = random_model()

    def frozen(encoder):
        made = MaskedLM(encoder, 8)
        made.head.dense.trainable = False
        return made

    made = Sum(model.encoder, [frozen])
    again = Sum.from_config(made.get_config())
    assert said(again) == said(made) and said(made)[0]
    assert len(again.trainable_weights) == len(made.trainable_weights)


def test_a_frozen_head_is_counted():
    model = frozen_model()
    assert ledger(model.get_config()).total == ledger(model).total


def test_a_layer_that_is_folded_away_is_not_said_to_be_frozen():
    encoder = random_model().encoder
    Classifier(encoder, 2).adapt([Lora(2)])
    hosted_by(encoder)[0].trainable = False
    assert frozen_in(encoder)
    held = folded(encoder, Path("there"))
    assert frozen_in(held.fresh()) == {}
