"""Fused attention of packed, padded and windowed rows, interpreted where it needs a device, against a dense softmax."""

from contextlib import nullcontext
from functools import cache, partial

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM
from rembed_keras.modeling.attention import Disentangled, Global, Local, Nystrom, dispatch, kernels
from rembed_keras.modeling.attention.dispatch import kernel_for
from rembed_keras.modeling.attention.full import softmax_attention
from rembed_keras.modeling.attention.local import attend_in_blocks
from rembed_keras.modeling.attention.platforms import platform_traced_for, tracing_for
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.modeling.documents import attention_mask
from rembed_keras.training.distributed import meshes

on_jax = pytest.mark.skipif(keras.config.backend() != "jax", reason="kernels are JAX's")
LENGTH = 140  # two blocks of 128, the second filled up
ROWS = ([61, 40, 30, 9], [90, 1, 0, 49])  # tokens of documents 1, 2 and 3, and padding
DOCUMENTS = np.stack([np.repeat([1, 2, 3, 0], counts) for counts in ROWS]).astype("int32")
POSITIONS = np.stack([np.concatenate([*map(np.arange, counts)]) for counts in ROWS])
KERNELS = {
    "splash": (kernels.splash_attention, None),
    "splash, window": (kernels.splash_attention, 32),
    "blocks": (attend_in_blocks, 32),
}


def assert_like_a_dense_softmax(attend, window, dtype, tolerance, width=8):
    """Values of tokens, and gradients of all that goes in."""
    import jax
    from jax import numpy as jnp

    rng = np.random.default_rng(4)
    query, key, value, slope = (jnp.asarray(rng.normal(0, 1, (2, LENGTH, 2, width)), dtype) for _ in range(4))
    mask = (Local(window) if window else Global()).restrict(jnp.asarray(attention_mask(DOCUMENTS)), POSITIONS)
    is_token = (DOCUMENTS > 0)[:, :, None, None]

    def of(function):
        def found(*heads):
            given, back = jax.vjp(function, *heads)
            return given * is_token, *back((slope * is_token).astype(given.dtype))

        return [np.asarray(each, "float64") for each in jax.jit(found)(query, key, value)]

    def dense(*heads):
        return softmax_attention(*(each.astype("float32") for each in heads), mask, drop=None)

    fused = of(lambda *heads: attend(*heads, jnp.asarray(DOCUMENTS), jnp.asarray(DOCUMENTS), window=window))
    for ours, theirs in zip(fused, of(dense), strict=True):
        assert np.abs(theirs).max() > 0.5
        np.testing.assert_allclose(ours, theirs, atol=tolerance, rtol=tolerance)


@on_jax
@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        ("splash", "float32", 1e-5),
        ("splash, window", "bfloat16", 2e-2),
        ("blocks", "float32", 1e-5),
        ("blocks", "bfloat16", 2e-2),
    ],
)
def test_values_and_gradients_of_tokens_are_those_of_a_dense_softmax(name, dtype, tolerance):
    attend, window = KERNELS[name]
    if attend is not attend_in_blocks:
        attend = partial(attend, interpret=True)
    assert_like_a_dense_softmax(attend, window, dtype, tolerance)


def of_all_pairs(query, key, value, documents, key_documents, window):
    return softmax_attention(query, key, value, keras.ops.equal(documents[:, :, None], key_documents[:, None, :]), None)


@on_jax
@pytest.mark.parametrize("count", [LENGTH, 77])  # of queries
def test_rows_of_gpus_are_filled_up_to_even_lengths(count):
    rng = np.random.default_rng(7)
    query, key, value = (rng.normal(0, 1, (2, each, 2, 8)).astype("float32") for each in (count, 131, 131))
    mask = rng.random((2, count, 131)) < 0.3
    exact = keras.ops.convert_to_numpy(softmax_attention(query, key, value, mask, None))
    with tracing_for("cuda"):
        filled = keras.ops.convert_to_numpy(softmax_attention(query, key, value, mask, None))
    np.testing.assert_allclose(filled, exact, atol=1e-6)


@pytest.mark.skipif(platform_traced_for() in ("cpu", "tpu"), reason="needs a GPU, and JAX")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_cudnn_computes_values_and_gradients_of_a_dense_softmax(dtype):
    import jax

    heads = [np.zeros((2, LENGTH, 2, 64), dtype)] * 3
    assert "cudnn" in jax.jit(partial(of_all_pairs, window=None)).lower(*heads, DOCUMENTS, DOCUMENTS).as_text()
    assert_like_a_dense_softmax(of_all_pairs, None, dtype, tolerance=2e-2, width=64)


PATTERNS = {PreNorm: [Global(), Local(32)], PostNorm: [Local(32), Global()]}  # the last block computes picked tokens


@cache
def step(platform, block, objective=MaskedLM):
    """The loss of a step on packed rows as it is traced for a platform, and what it changes each weight by."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(2)
    sizes = 48, 2, 2, 16, 24, 6
    model = objective(Encoder(*sizes, max_sequence_length=LENGTH, block=block, attention=PATTERNS[block]), 12)
    model.compile(keras.optimizers.SGD(1.0))
    before = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    rng = np.random.default_rng(3)
    inputs = {"token_ids": rng.integers(5, 48, DOCUMENTS.shape), "segment_ids": 0 * DOCUMENTS}
    inputs |= {"padding_mask": DOCUMENTS, "mask_positions": np.array([[3, 70, 128], [1, 89, 90]])}
    with tracing_for(platform):
        loss = model.train_on_batch(inputs, rng.integers(5, 48, (2, 3)), np.ones((2, 3), "float32"))
    moved = [keras.ops.convert_to_numpy(weight) - old for weight, old in zip(model.weights, before, strict=True)]
    return np.asarray(loss, "float64"), moved


def noted(calls, name, attend):
    """What attends, noted in a list by its name and its window."""

    def attend_and_note(*rows, window):
        calls.append((name, window))
        return attend(*rows, window=window)

    return attend_and_note


@on_jax
@pytest.mark.parametrize(
    ("platform", "block", "objective", "shared", "kernels_of"),
    [
        ("tpu", PreNorm, MaskedLM, False, [("splash_attention", None)]),
        ("tpu", PostNorm, MaskedLM, True, [("splash_attention", 32), ("splash_attention", None)]),
        # of the decoder alone, whose rows are whole
        ("tpu", PostNorm, LateMaskedLM, False, [("splash_attention", 32), ("splash_attention", None)]),
        ("cuda", PostNorm, MaskedLM, True, [("attend_in_blocks", 32)]),
    ],
)
def test_a_step_of_kernels_is_that_of_masks(platform, block, objective, shared, kernels_of, monkeypatch):
    calls = []
    interpreted = partial(kernels.splash_attention, interpret=True)
    monkeypatch.setattr(kernels, "splash_attention", noted(calls, "splash_attention", interpreted))
    monkeypatch.setattr(dispatch, "attend_in_blocks", noted(calls, "attend_in_blocks", attend_in_blocks))
    dense = step("cpu", block, objective)
    assert not calls
    with meshes.model_parallel().scope() if shared else nullcontext():
        fused = step(platform, block, objective)
    assert calls == kernels_of
    np.testing.assert_allclose(fused[0], dense[0], rtol=1e-5)
    assert sum(np.abs(each).max() > 1e-3 for each in dense[1]) > 12
    for ours, theirs in zip(fused[1], dense[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


class Far(Global):
    """A kind that has a mask of its own."""

    def restrict(self, mask, positions):
        return mask


@on_jax
def test_a_mask_stays_where_no_kernel_can_do_it():
    hidden, documents = np.ones((2, LENGTH, 16), "float32"), DOCUMENTS

    def chosen(kind, platform="tpu", rows=hidden, documents=documents, drops=False):
        with tracing_for(platform):
            return kernel_for(kind, rows, documents, None, drops) is not None

    assert chosen(Global()) and chosen(Local(16)) and chosen(Local(16), "cuda")
    assert not any(chosen(kind) for kind in (Far(), Disentangled(), Nystrom(), Global(kernel="dense")))
    assert not chosen(Global(), "cpu") and not chosen(Local(16), "cpu") and not chosen(Global(), "cuda")
    assert not chosen(Global(), drops=True) and not chosen(Global(), documents=None)
    assert not chosen(Global(), rows=hidden[:, :128], documents=documents[:, :128])


def test_the_choice_is_saved_where_it_is_not_the_usual_one_and_others_are_refused():
    assert "kernel" not in Global().get_config() and "kernel" not in Local(8, kernel="auto").get_config()
    assert Local.from_config(Local(8, kernel="dense").get_config()).kernel == "dense"
    with pytest.raises(UserError, match="the kernel of attention is 'flash'; it can be one of auto, dense"):
        Global(kernel="flash")


class Recent:
    """What several kinds of attention of one's own may have in common."""

    def restrict(self, mask, positions):
        return mask & (positions[:, :, None] - positions[:, None, :] < 3)


class Windowless(Recent, Global):
    """Restricts by a class that is no kind of attention."""


class Trusted(Recent, Local):
    """Says itself that a kernel does it."""

    takes_kernels = True


class Narrow(Local):
    """Changes nothing of who attends to whom."""


def test_no_kernel_takes_the_place_of_a_restriction_wherever_it_is_inherited_from():
    kinds = (Global, Local, Nystrom, Disentangled, Windowless, Trusted, Narrow)
    assert [kind.takes_kernels for kind in kinds] == [True, True, False, False, False, True, True]
