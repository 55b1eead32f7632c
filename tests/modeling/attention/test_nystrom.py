"""Nyström attention against the paper's equations in NumPy and float64."""

from functools import partial

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM
from rembed_keras.modeling.attention import Global, Nystrom
from rembed_keras.modeling.attention.nystrom import pseudo_inverse
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.documents import attention_mask
from tests.modeling.forward import at_once, encode_at, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

ROWS = np.array([[1] * 12, [1] * 9 + [0] * 3, [0] * 2 + [1] * 10, [1] * 2 + [0] * 10])
LONG = (FIRST[0][:-1] + SECOND[0][1:], FIRST[1][:-1] + SECOND[1][1:])  # 9 tokens
REFUSED = r"attention\.Nystrom mixes the documents of a packed row"
SHALLOW = partial(LateMaskedLM, decoder_layers=1)
BLOCKS = pytest.mark.parametrize("block", [PostNorm, pytest.param(PreNorm, marks=pytest.mark.any_backend)])


def heads(seed):
    return np.random.default_rng(seed).normal(size=(4, 12, 2, 4)).astype("float32")


def softmax(scores):
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def inverse(matrix, iterations):
    """Equation 11 of the paper."""
    z, one = matrix.T / (np.abs(matrix).sum(0).max() * np.abs(matrix).sum(1).max()), np.eye(len(matrix))
    for _ in range(iterations):
        z = z @ (13 * one - matrix @ z @ (15 * one - matrix @ z @ (7 * one - matrix @ z))) / 4
    return z


def approximated(query, key, value, landmarks, iterations):
    """One head of one document without padding, [S, K]: equations 13 and 14."""
    query, key, value = (x.astype("float64") for x in (query, key, value))
    count = min(landmarks, len(query))
    segment = np.arange(len(query)) * count // len(query)
    queries, keys = (np.stack([x[segment == j].mean(0) for j in range(count)]) for x in (query, key))
    parts = [softmax(q @ k.T / np.sqrt(q.shape[1])) for q, k in ((query, keys), (queries, keys), (queries, key))]
    return parts[0] @ inverse(parts[1], iterations) @ parts[2] @ value


def attend(kind, rows, at=None):
    def attended(given):
        (query, key, value), documents = given
        return kind.attend(query, key, value, attention_mask(documents), at, None)

    return at_once(attended, ([heads(seed)[: len(rows)] for seed in range(3)], rows))


@pytest.mark.parametrize(
    ("landmarks", "iterations"),
    [(4, 2), (5, 6), *(pytest.param(count, 6, marks=pytest.mark.any_backend) for count in (1, 3, 11))],
)
def test_equals_the_papers_equations_in_float64(landmarks, iterations):
    ours = attend(Nystrom(landmarks, iterations), ROWS)
    assert np.isfinite(ours).all()
    for row, head in np.ndindex(len(ROWS), 2):
        is_token = ROWS[row] > 0
        parts = (heads(seed)[row, is_token, head] for seed in range(3))
        expected = approximated(*parts, landmarks, iterations)
        np.testing.assert_allclose(ours[row, is_token, head], expected, atol=2e-5)


@pytest.mark.parametrize("landmarks", [12, 64])
def test_as_many_landmarks_as_tokens_are_full_attention(landmarks):
    ours = attend(Nystrom(landmarks), ROWS)
    for row, head in np.ndindex(len(ROWS), 2):
        is_token = ROWS[row] > 0
        query, key, value = (heads(seed)[row, is_token, head].astype("float64") for seed in range(3))
        expected = softmax(query @ key.T / 2) @ value
        np.testing.assert_allclose(ours[row, is_token, head], expected, atol=1e-5)


def test_the_approximation_itself_becomes_exact_with_a_landmark_a_token():
    query, key, value = (heads(seed) for seed in range(3))
    is_key = np.ones((4, 12), bool)
    ours = np.asarray(Nystrom(12, iterations=24)._approximate(query, key, value, is_key, None))
    exact = np.asarray(Nystrom(12).attend(query, key, value, attention_mask(is_key), None, None))
    np.testing.assert_allclose(ours, exact, atol=1e-4)


def test_pseudo_inverse_is_numpys():
    matrices = softmax(2 * np.eye(5) + np.random.default_rng(0).normal(size=(3, 5, 5))).astype("float32")
    ours = np.asarray(pseudo_inverse(matrices, 12))
    np.testing.assert_allclose(ours, np.linalg.pinv(matrices.astype("float64")), atol=1e-3)


@BLOCKS
def test_padding_changes_nothing_and_full_attention_is_approached(block):
    encoder = make_encoder(block=block, attention=Nystrom(3))
    short, long = (forward(encoder, make_inputs([[LONG]], length))["sequence_output"][0] for length in (9, 12))
    np.testing.assert_allclose(long[:9], short, atol=1e-5)
    whole = make_encoder(block=block, attention=Nystrom(12))
    full = make_encoder(block=block, attention=Global())
    ours, theirs = (forward(each, make_inputs([[LONG]], 12))["sequence_output"][0, :9] for each in (whole, full))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(short - theirs).max() > 1e-3  # it is an approximation


@BLOCKS
def test_encoding_some_tokens_is_encoding_all_and_picking(block):
    encoder = make_encoder(block=block, attention=Nystrom(3))
    inputs, at = make_inputs([[LONG]], 12), np.array([[1, 6, 8]])
    picked = encode_at(encoder, inputs, at)
    np.testing.assert_allclose(picked, forward(encoder, inputs)["sequence_output"][:, at[0]], atol=1e-5)


@pytest.mark.parametrize(
    ("make", "block"), [(MaskedLM, PreNorm), pytest.param(SHALLOW, PostNorm, marks=pytest.mark.any_backend)]
)
def test_it_learns(make, block):
    model = make(make_encoder(num_layers=1, block=block, attention=Nystrom(3)), 20)
    x = make_inputs([[LONG]], 12) | {"mask_positions": np.array([[1, 8]])}
    model.compile(optimizer=keras.optimizers.Lion(1e-2))
    losses = [float(model.train_on_batch(x, np.array([[4, 5]]), return_dict=True)["loss"]) for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]


@BLOCKS
def test_packed_rows_are_refused(block):
    inputs = make_inputs([[LONG], [FIRST, SECOND]], 12)
    encoder = make_encoder(block=block, attention=[Global(), Nystrom(3)])
    with pytest.raises(UserError, match=REFUSED):
        encoder(inputs, training=False)
    if keras.config.backend() == "jax":
        import jax

        with pytest.raises(Exception, match=REFUSED):
            jax.block_until_ready((jax.jit(encoder)(inputs), jax.effects_barrier()))
    else:
        import tensorflow as tf

        with pytest.raises(tf.errors.InvalidArgumentError, match=REFUSED):
            tf.function(encoder)(inputs)
        states = tf.function(encoder, jit_compile=True)(inputs)["sequence_output"].numpy()
        assert np.isfinite(states[0]).all() and np.isnan(states[1]).all()


@pytest.mark.any_backend
def test_a_kind_comes_back_from_a_preset(tmp_path):
    encoder = make_encoder(attention=Nystrom(3, iterations=4, rotary_base=50.0))
    encoder.save_to_preset(str(tmp_path / "preset"))
    again = Encoder.from_preset(str(tmp_path / "preset"))
    kind = again.parts.blocks[1].attention.kind
    assert kind.get_config() == {"landmarks": 3, "iterations": 4, "rotary_base": 50.0}
    inputs = make_inputs([[LONG]], 12)
    np.testing.assert_array_equal(*(forward(each, inputs)["sequence_output"] for each in (again, encoder)))


@pytest.mark.any_backend
@pytest.mark.parametrize("arguments", [{"landmarks": 0}, {"landmarks": 2.5}, {"iterations": 0}])
def test_counts_that_are_none_are_refused(arguments):
    with pytest.raises(UserError, match="must be a positive whole number"):
        Nystrom(**arguments)
