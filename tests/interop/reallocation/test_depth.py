"""Deeper encoders begin as the ones that they are made of; shallower ones are cuts."""

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.interop import read_model, write
from rembed_keras.interop.reallocation import depth
from rembed_keras.interop.reallocation.depth import with_depth
from rembed_keras.modeling.attention import Disentangled, Global, Local
from rembed_keras.modeling.blocks import Bottleneck, PreNorm
from rembed_keras.modeling.layers.adapters import plain_weights
from rembed_keras.modeling.saving.changes import frozen_in
from rembed_keras.modeling.saving.naming import layers_by_name
from tests.interop.models import random_model
from tests.interop.reallocation.inputs import rows_of_text
from tests.modeling.forward import forward

NORMS_FIRST = {"block": PreNorm, "num_segments": 0}


@pytest.mark.parametrize(("num_layers", "attention"), [(8, None), (4, [Global(), Local(window=4), Local(window=2)])])
def test_with_norms_first_outputs_are_the_same_bits(num_layers, attention):
    small = random_model(NORMS_FIRST | {"attention": attention}).encoder
    large = with_depth(small, num_layers)
    ours, theirs = (forward(each, rows_of_text()) for each in (large, small))
    assert len(ours["hidden_states"]) == num_layers + 1
    for key in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(ours[key], theirs[key])


@pytest.mark.parametrize("num_layers", [4, 8])
def test_with_norms_last_outputs_differ_by_rounding(num_layers):
    small = random_model().encoder
    large = with_depth(small, num_layers)
    ours, theirs = (forward(each, rows_of_text())["sequence_output"] for each in (large, small))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_with_bottlenecks_outputs_are_the_same_bits():
    small = random_model({"block": Bottleneck(2), "head_dim": 4}).encoder
    ours, theirs = (forward(each, rows_of_text())["sequence_output"] for each in (with_depth(small, 5), small))
    np.testing.assert_array_equal(ours, theirs)


def test_new_layers_can_learn():
    """They have weights that are not 0 on both sides of those that are."""
    large = with_depth(random_model().encoder, 4)
    (silent,) = (
        block for block in large.parts.blocks if not np.asarray(block.feed_forward.projections["down"].kernel).any()
    )
    assert np.asarray(silent.feed_forward.projections["up"].kernel).any()
    assert np.asarray(silent.attention.projections["value"].kernel).any()


@pytest.mark.parametrize("keep", ["bottom", "top", "alternate", "symmetric"])
def test_a_cut_is_that_of_the_encoder(keep):
    encoder = random_model().encoder
    ours, theirs = with_depth(encoder, 2, keep), encoder.with_layers(2, keep)
    assert [block.name for block in ours.parts.blocks] == ["block_0", "block_1"]
    assert ours.arguments == theirs.arguments
    got, wanted = (forward(each, rows_of_text())["sequence_output"] for each in (ours, theirs))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("num_layers", "keep", "wide"), [(2, "top", [1]), (2, "bottom", []), (5, "bottom", [3, 4])])
def test_dtypes_of_layers_move_with_their_blocks(num_layers, keep, wide):
    """Those of the last of three, which is wider than the others."""
    names = ["block_2", "block_2/feed_forward", "block_2/feed_forward/up", "block_2/feed_forward/down"]
    policy = {name: keras.dtype_policies.DTypePolicy("float32") for name in names}
    encoder = random_model({"dtype": keras.dtype_policies.DTypePolicyMap("bfloat16", policy)}).encoder
    made = with_depth(encoder, num_layers, keep)
    found = [i for i, block in enumerate(made.parts.blocks) if block.feed_forward.up.kernel.dtype == "float32"]
    assert found == wide


@pytest.mark.parametrize(
    ("arguments", "message"), [({"layer_sharing": "all"}, "cannot be stacked"), ({"scalar_mix": True}, "scalar_mix")]
)
def test_what_cannot_be_deepened_is_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        with_depth(random_model(arguments).encoder, 5)


MIXED = [Global(), Disentangled(4, 8), Disentangled(8, 16)]


ALIKE = [Global(), Disentangled(4, 8), Disentangled(4, 8)]


@pytest.mark.parametrize(
    ("attention", "layers", "keep"),
    [(MIXED, 1, "top"), (MIXED, 2, "symmetric"), (ALIKE, 1, "top"), (ALIKE, 2, "top")],
)
def test_a_cut_keeps_what_layers_of_a_kind_of_attention_share(attention, layers, keep):
    encoder = random_model({"attention": attention}).encoder
    ours, theirs = with_depth(encoder, layers, keep), encoder.with_layers(layers, keep)
    got, wanted = (forward(each, rows_of_text())["sequence_output"] for each in (ours, theirs))
    np.testing.assert_array_equal(got, wanted)
    assert layers_by_name(theirs).keys() == layers_by_name(ours).keys()
    assert plain_weights(theirs).keys() == {weight.path for weight in ours.weights}


@pytest.mark.parametrize(("attention", "keep"), [([Global(), Disentangled(4, 8)], "bottom"), (MIXED[::-1], "top")])
def test_a_cut_of_mixed_layers_is_read_again(attention, keep, tmp_path):
    """What is left of layers some of which know positions has no table of them, as the whole has none."""
    cut = with_depth(random_model({"attention": attention}).encoder, 1, keep)
    write(cut, str(tmp_path / "cut"), "preset", None)
    again, _ = read_model(str(tmp_path / "cut"))
    got, wanted = (forward(each, rows_of_text())["sequence_output"] for each in (again, cut))
    np.testing.assert_array_equal(got, wanted)
    with pytest.raises(UserError, match="no Hugging Face model has the graph"):
        write(cut, str(tmp_path / "hf"), "huggingface", None)


def test_a_cut_of_disentangled_layers_is_written_as_deberta(tmp_path):
    attention = [Global(), Disentangled(4, 8), Disentangled(4, 8)]
    arguments = {"attention": attention, "input_embedding_dim": 16, "always_project": False}
    model = random_model(arguments, {"output_embedding_dim": 16, "kept_layers": 2, "keep": "top"})
    write(model, str(tmp_path / "hf"), "huggingface", None, "deberta-v2")
    again, _ = read_model(str(tmp_path / "hf"))
    got, wanted = (forward(each, rows_of_text())["sequence_output"] for each in (again, model.drop_heads()))
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_a_weight_that_has_none_to_begin_as_is_an_error(monkeypatch):
    encoder = random_model({"attention": Disentangled(4, 8)}).encoder
    monkeypatch.setattr(depth, "path_in_block", lambda path, number: path)
    with pytest.raises(UserError, match="the depth of this encoder cannot be changed: block_0/attention/"):
        with_depth(encoder, 2, "top")


def test_depths_beyond_all_reason_are_refused_before_a_block_is_made(monkeypatch):
    encoder = random_model().encoder
    monkeypatch.setattr(depth, "make_blocks", None)
    with pytest.raises(UserError, match="num_layers is 5000000; it can be 10000 at most"):
        with_depth(encoder, 5_000_000)


def test_layers_stay_frozen_and_new_ones_learn():
    encoder = random_model().encoder  # of 3 layers
    for layer in (encoder.token_embedding, encoder.parts.blocks[1], encoder.parts.blocks[2].feed_forward.up):
        layer.trainable = False
    assert frozen_in(with_depth(encoder, 2, "top")) == {
        "frozen": ["block_0", "block_1/feed_forward/up", "embeddings/token"]
    }
    deeper = with_depth(encoder, 6)
    assert frozen_in(deeper) == {"frozen": ["block_2", "block_4/feed_forward/up", "embeddings/token"]}
    shared = random_model({"layer_sharing": "all"}).encoder
    shared.parts.blocks[0].attention.trainable = False
    assert frozen_in(with_depth(shared, 1, "top")) == {"frozen": ["block_0/attention"]}
