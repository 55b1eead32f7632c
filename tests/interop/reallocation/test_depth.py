"""Deeper encoders begin as the ones that they are made of; shallower ones are cuts."""

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.interop.reallocation.depth import with_depth
from rembed_keras.modeling.attention import Global, Local
from rembed_keras.modeling.blocks import Bottleneck, PreNorm
from tests.interop.models import random_model
from tests.interop.reallocation.inputs import rows_of_text
from tests.modeling.forward import forward

NORMS_FIRST = {"block": PreNorm, "num_segments": 0}


@pytest.mark.parametrize("depth", [4, 8])
@pytest.mark.parametrize("attention", [None, [Global(), Local(window=4), Local(window=2)]])
def test_with_norms_first_outputs_are_the_same_bits(depth, attention):
    small = random_model(NORMS_FIRST | {"attention": attention}).encoder
    large = with_depth(small, depth)
    ours, theirs = (forward(each, rows_of_text()) for each in (large, small))
    assert len(ours["hidden_states"]) == depth + 1
    for key in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(ours[key], theirs[key])


@pytest.mark.parametrize("depth", [4, 8])
def test_with_norms_last_outputs_differ_by_rounding(depth):
    small = random_model().encoder
    large = with_depth(small, depth)
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


@pytest.mark.parametrize(("depth", "keep", "wide"), [(2, "top", [1]), (2, "bottom", []), (5, "bottom", [3, 4])])
def test_dtypes_of_layers_move_with_their_blocks(depth, keep, wide):
    """Those of the last of three, which is wider than the others."""
    names = ["block_2", "block_2/feed_forward", "block_2/feed_forward/up", "block_2/feed_forward/down"]
    policy = {name: keras.dtype_policies.DTypePolicy("float32") for name in names}
    encoder = random_model({"dtype": keras.dtype_policies.DTypePolicyMap("bfloat16", policy)}).encoder
    made = with_depth(encoder, depth, keep)
    found = [i for i, block in enumerate(made.parts.blocks) if block.feed_forward.up.kernel.dtype == "float32"]
    assert found == wide


@pytest.mark.parametrize(
    ("arguments", "message"), [({"layer_sharing": "all"}, "cannot be stacked"), ({"scalar_mix": True}, "scalar_mix")]
)
def test_what_cannot_be_deepened_is_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        with_depth(random_model(arguments).encoder, 5)
