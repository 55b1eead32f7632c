"""Local attention against loops over queries in NumPy and float64."""

import json

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM
from rembed_keras.modeling.attention import Global, Local
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.documents import attention_mask, document_positions
from rembed_keras.modeling.layers.sublayer import pick
from tests.modeling.forward import EAGER, at_once, encode_at, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

PATTERN = [Global(rotary_base=100.0), Local(4, rotary_base=10.0)]
KINDS = {"post_norm": {"attention": PATTERN}, "pre_norm": {"attention": PATTERN, "block": PreNorm}}
ROWS = np.array(  # packed and padded rows of 17 tokens, one with padding on the left
    [[1] * 17, [1] * 6 + [2] * 9 + [0] * 2, [0] * 5 + [1] * 12, [1] * 1 + [2] * 2 + [3] * 14, [1] * 4 + [0] * 13]
)


def heads(seed, shape=(5, 17, 2, 4)):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def attended(query, key, value, documents, positions, window):
    """What each token attends to, one query after the other; NaN for padding."""
    query, key, value = (x.astype("float64") for x in (query, key, value))
    out = np.full(query.shape, np.nan)
    for row, i, head in np.ndindex(query.shape[:3]):
        if not documents[row, i]:
            continue
        is_near = np.abs(positions[row] - positions[row, i]) <= window // 2
        keys = np.flatnonzero((documents[row] == documents[row, i]) & is_near)
        shares = np.exp(key[row, keys, head] @ query[row, i, head] / 2)
        out[row, i, head] = shares / shares.sum() @ value[row, keys, head]
    return out


def attend(kind, documents, positions, at=None):
    query, key, value = (heads(seed, (*documents.shape, 2, 4)) for seed in range(3))

    def ours(given):
        query, key, value, documents, positions = given
        mask = kind.restrict(attention_mask(documents), positions)
        return kind.attend(pick(query, at), key, value, pick(mask, at), at, None)

    given = query, key, value, documents, np.asarray(positions)
    return at_once(ours, given), attended(query, key, value, documents, np.asarray(positions), kind.window)


@pytest.mark.parametrize(
    "window", [3, 7, 128, *(pytest.param(window, marks=pytest.mark.any_backend) for window in (2, 4, 10, 12))]
)
def test_equals_loops_in_float64_under_packing_and_padding(window):
    ours, expected = attend(Local(window), ROWS, document_positions(ROWS))
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours[ROWS > 0], expected[ROWS > 0], atol=1e-6)


@pytest.mark.parametrize("window", [pytest.param(2, marks=pytest.mark.any_backend), 6])
def test_distance_is_that_of_positions_where_rows_are_gathered(window):
    rng = np.random.default_rng(5)
    seen = np.sort([rng.permutation(17)[:11] for _ in ROWS], axis=1)  # as late masking leaves tokens out
    documents, positions = (np.take_along_axis(np.asarray(x), seen, 1) for x in (ROWS, document_positions(ROWS)))
    ours, expected = attend(Local(window), documents, positions)
    np.testing.assert_allclose(ours[documents > 0], expected[documents > 0], atol=1e-6)


@pytest.mark.parametrize("picks", [3, 17])
def test_picked_queries_have_what_all_have(picks):
    at = np.random.default_rng(6).integers(0, 17, (5, picks))
    ours, expected = attend(Local(4), ROWS, document_positions(ROWS), at)
    expected, is_token = (
        np.take_along_axis(x, at.reshape(at.shape + x.shape[2:] * 0 + (1,) * (x.ndim - 2)), 1) for x in (expected, ROWS)
    )
    np.testing.assert_allclose(ours[is_token > 0], expected[is_token > 0], atol=1e-6)


def test_blocks_are_as_a_mask_where_the_length_is_not_known_when_traced():
    if keras.config.backend() != "tensorflow":
        pytest.skip("JAX knows all lengths when it traces")
    import tensorflow as tf

    kind, (query, key, value) = Local(4), (heads(seed) for seed in range(3))
    shape = tf.TensorSpec((None, None, 2, 4), "float32")

    @tf.function(input_signature=[shape, shape, shape, tf.TensorSpec((None, None, None), "bool")])
    def traced(query, key, value, mask):
        return kind.attend(query, key, value, mask, None, None)

    for length in (1, 5, 6, 17):
        parts = [x[:, :length] for x in (query, key, value)]
        mask = np.asarray(kind.restrict(attention_mask(ROWS[:, :length]), document_positions(ROWS[:, :length])))
        expected = kind.attend(*parts, mask, None, None)
        np.testing.assert_allclose(traced(*parts, mask), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["post_norm", pytest.param("pre_norm", marks=pytest.mark.any_backend)])
def test_documents_of_a_packed_row_and_padding_change_nothing(kind):
    encoder = make_encoder(**KINDS[kind], num_layers=3)
    packed = forward(encoder, make_inputs([[FIRST, SECOND]], 12))["sequence_output"][0]
    assert np.isfinite(packed).all()
    alone = forward(encoder, make_inputs([[FIRST], [SECOND]], 7))["sequence_output"]
    np.testing.assert_allclose(packed[:7], alone[0], atol=2e-5)
    np.testing.assert_allclose(packed[7:11], alone[1, :4], atol=2e-5)


@pytest.mark.parametrize("kind", [pytest.param("post_norm", marks=pytest.mark.any_backend), "pre_norm"])
def test_encoding_some_tokens_is_encoding_all_and_picking(kind):
    encoder = make_encoder(**KINDS[kind], num_layers=2)
    inputs, at = make_inputs([[FIRST, SECOND]], 12), np.array([[1, 6, 8]])
    picked = encode_at(encoder, inputs, at)
    np.testing.assert_allclose(picked, forward(encoder, inputs)["sequence_output"][:, at[0]], atol=2e-5)


@pytest.mark.parametrize(
    ("make", "kind"), [(MaskedLM, "pre_norm"), pytest.param(LateMaskedLM, "post_norm", marks=pytest.mark.any_backend)]
)
def test_it_learns(make, kind):
    model = make(make_encoder(**KINDS[kind]), 20)
    x = make_inputs([[FIRST, SECOND]], 12) | {"mask_positions": np.array([[1, 8]])}
    model.compile(optimizer=keras.optimizers.Lion(1e-2))
    losses = [float(model.train_on_batch(x, np.array([[4, 5]]), return_dict=True)["loss"]) for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]


def test_dropout_falls_on_attention_probabilities():
    model = MaskedLM(make_encoder(attention=Local(4), dropout=0.5), 20)
    attention = model.encoder.parts.blocks[0].attention
    tokens, mask = heads(0, (1, 12, 16)), np.ones((1, 12, 12), bool)
    ours = [np.asarray(attention.heads(tokens, tokens, attention_mask=mask, training=training)) for training in (0, 1)]
    assert not np.allclose(*ours)


@pytest.mark.any_backend
def test_a_pattern_comes_back_from_a_preset(tmp_path):
    encoder = make_encoder(**KINDS["pre_norm"], num_layers=3)
    inputs = make_inputs([[FIRST, SECOND]], 12)
    encoder.save_to_preset(str(tmp_path / "preset"))
    again = Encoder.from_preset(str(tmp_path / "preset"))
    assert [block.attention.kind.get_config() for block in again.parts.blocks] == [
        {"rotary_base": 100.0},
        {"rotary_base": 10.0, "window": 4},
        {"rotary_base": 100.0},
    ]
    ours, theirs = (forward(each, inputs)["sequence_output"] for each in (again, encoder))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.any_backend
@pytest.mark.parametrize("keep", ["bottom", "top", "alternate", "symmetric"])
def test_a_cut_encoder_keeps_the_attention_of_each_layer(keep):
    encoder = make_encoder(attention=PATTERN, num_layers=4)
    cut = encoder.with_layers(3, keep)
    again = Encoder.from_config(json.loads(json.dumps(cut.get_config())))
    again.set_weights(cut.get_weights())
    inputs = make_inputs([[FIRST]], 7)
    np.testing.assert_array_equal(*(forward(each, inputs)["sequence_output"] for each in (again, cut)))


@pytest.mark.any_backend
@pytest.mark.parametrize("block", [PostNorm, PreNorm])
def test_layers_that_share_attention_have_one_kind_of_it(block):
    for pattern in (PATTERN, [Local(4), Local(6)]):
        with pytest.raises(UserError, match="layers that share their attention have it of different kinds"):
            make_encoder(block=block, attention=pattern, layer_sharing="attention")
    make_encoder(block=block, attention=PATTERN, layer_sharing="attention", layer_groups=[0, 1])
    encoder = make_encoder(block=block, attention=[Local(4), Local(4)], layer_sharing="all")
    assert len({id(each.attention) for each in encoder.parts.blocks}) == 1


@pytest.mark.any_backend
@pytest.mark.parametrize(("window", "message"), [(0, "is 0"), (1, "at least 2"), (True, "is True"), (2.5, "is 2.5")])
def test_a_window_that_is_none_is_refused(window, message):
    with pytest.raises(UserError, match=f"window of attention.Local.*{message}"):
        Local(window)


@pytest.mark.any_backend
def test_eager_and_compiled_steps_agree():
    losses = []
    for how in (EAGER, {"jit_compile": True}):
        model = MaskedLM(make_encoder(**KINDS["pre_norm"]), 20)
        model.compile(keras.optimizers.SGD(0.1), **how)
        x = make_inputs([[FIRST, SECOND]], 12) | {"mask_positions": np.array([[1, 8]])}
        losses.append([float(model.train_on_batch(x, np.array([[4, 5]]), return_dict=True)["loss"]) for _ in range(2)])
    np.testing.assert_allclose(*losses, rtol=1e-4)
