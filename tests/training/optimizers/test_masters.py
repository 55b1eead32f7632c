"""Weights in 16 bits are trained as float32 copies of them, which the optimizer keeps."""

import contextlib

import keras
import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.training import AdamW, GaLore, Muon
from rembed_keras.training.optimizers.masters import Master
from rembed_keras.training.optimizers.slots import slots_when_built
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer
from tests.modeling.test_micro_batches import make_batch, repeated

NO_DROPOUT = 1e-9
ON_JAX = keras.config.backend() == "jax"
OPTIMIZERS = {
    "adamw": AdamW,
    "muon": Muon,
    "galore": lambda rate: GaLore(rate, rank=2),
    # a slot of which begins as the weight
    "schedule-free": lambda rate: keras.optimizers.ScheduleFreeAdamW(learning_rate=rate),
    "lion": keras.optimizers.Lion,
}


def make_model(dtype, **options):
    keras.utils.set_random_seed(2)
    encoder = Encoder(60, 1, 2, 8, 16, 6, max_sequence_length=16, dropout=NO_DROPOUT, dtype=dtype)
    return MaskedLM(encoder, 10, **options)


def values(variables):
    return [np.array(keras.ops.convert_to_numpy(keras.ops.cast(each, "float32"))) for each in variables]


def masters_of(model):
    return {each.path: each for each in model.optimizer.variables if isinstance(each, Master)}


def rounded(array):
    return keras.ops.convert_to_numpy(keras.ops.cast(keras.ops.cast(array, "bfloat16"), "float32"))


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_weight_moves_by_less_than_its_own_rounding(dtype):
    """64 steps of 2^-12 each: in 16 bits 1 + 2^-12 is 1."""
    weight = keras.Variable(np.ones(3), dtype=dtype, name="kernel")
    optimizer = TrainingOptimizer(keras.optimizers.SGD(2.0**-12), clip_norm=None)
    optimizer.build([weight])
    for _ in range(64):
        optimizer.apply([keras.ops.cast(np.array([-1.0, 1.0, 0.0]), dtype)], [weight])
    np.testing.assert_allclose(values([weight])[0], [1.015625, 0.984375, 1.0])
    (master,) = (each for each in optimizer.variables if isinstance(each, Master))
    np.testing.assert_array_equal(values([master])[0], [1 + 64 / 4096, 1 - 64 / 4096, 1.0])
    assert (master.path, master.name, master.dtype) == (weight.path, "kernel", "float32")


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_constraint_holds_after_every_step(dtype):
    weight = keras.Variable(np.array([2.0**-12, 1.0]), dtype=dtype, name="kernel")
    weight.constraint = keras.constraints.NonNeg()
    optimizer = TrainingOptimizer(keras.optimizers.SGD(2.0**-9), clip_norm=None)
    optimizer.build([weight])
    for expected in ([0.0, 1 - 2.0**-9], [0.0, 1 - 2.0**-8]):
        optimizer.apply([keras.ops.cast(np.ones(2), dtype)], [weight])
        changed = [each for each in optimizer.variables if isinstance(each, Master)] or [weight]
        np.testing.assert_array_equal(values(changed)[0], expected)
        assert values([weight])[0].min() == 0


@pytest.mark.any_backend
def test_a_weight_that_something_else_changes_is_what_the_next_step_starts_from():
    weight = keras.Variable(np.array([1.0, 2.0, 0.0, -3.0]), dtype="bfloat16", name="kernel")
    optimizer = TrainingOptimizer(keras.optimizers.SGD(2.0**-12), clip_norm=None)
    optimizer.build([weight])
    push = keras.ops.cast(np.full(4, -1.0), "bfloat16")
    optimizer.apply([push], [weight])
    weight.assign(np.array([1.0, 5.0, 0.0, -3.0]))  # the second alone is another
    optimizer.apply([push], [weight])
    (master,) = (each for each in optimizer.variables if isinstance(each, Master))
    step = 2.0**-12
    np.testing.assert_array_equal(values([master])[0], [1 + 2 * step, 5 + step, step, -3 + 2 * step])


@pytest.mark.any_backend
def test_a_skipped_step_leaves_weights_and_copies():
    weight = keras.Variable(np.array([1.0, 2.0]), dtype="bfloat16", name="kernel")
    optimizer = TrainingOptimizer(AdamW(0.1), skip_nonfinite=2)
    optimizer.build([weight])
    optimizer.apply([keras.ops.cast(np.array([1.0, -1.0]), "bfloat16")], [weight])
    before = values([weight, *optimizer.inner_optimizer.variables[2:], *optimizer.variables[-1:]])
    optimizer.apply([keras.ops.cast(np.array([np.nan, 1.0]), "bfloat16")], [weight])
    after = values([weight, *optimizer.inner_optimizer.variables[2:], *optimizer.variables[-1:]])
    assert isinstance(optimizer.variables[-1], Master) and len(before) == 4
    for ours, theirs in zip(before, after, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_copies_are_to_the_bit_what_float32_weights_become_by_the_same_gradients(name):
    rng = np.random.default_rng(4)
    shapes = {"kernel": (8, 6), "bias": (6,)}
    starts = {key: rounded(rng.normal(0, 0.3, shape)) for key, shape in shapes.items()}
    gradients = [[rounded(rng.normal(0, 1.0, shape)) for shape in shapes.values()] for _ in range(3)]
    found = []
    for dtype in ("bfloat16", "float32"):
        variables = [keras.Variable(value, dtype=dtype, name=key) for key, value in starts.items()]
        optimizer = TrainingOptimizer(OPTIMIZERS[name](1e-3), clip_norm=None)
        optimizer.build(variables)
        for each in gradients:
            optimizer.apply([keras.ops.cast(gradient, dtype) for gradient in each], variables)
        masters = [each for each in optimizer.variables if isinstance(each, Master)]
        found.append(values(masters or variables))
    for ours, theirs, start in zip(*found, starts.values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert not np.array_equal(ours, start)


@pytest.mark.parametrize(
    ("name", "options"),  # others' first steps are signs of what may be near 0
    [
        pytest.param("adamw", {}, marks=pytest.mark.any_backend),  # GaLore moves tables and vectors by it
        ("muon", {"micro_batches": 4}),
        ("galore", {}),
    ],
)
def test_steps_are_those_of_float32_weights_that_are_rounded_to_be_computed_with(name, options):
    """The same weights, in bfloat16 and in float32, and the same products: losses agree, and so do copies.

    Those of float32 learn from whole batches.
    """
    found = {}
    for dtype in ("bfloat16", "mixed_bfloat16"):
        parts = options if dtype == "bfloat16" else {}
        model = make_model(dtype, **parts)
        rng = np.random.default_rng(3)
        for weight in model.weights:
            weight.assign(rounded(rng.normal(0, 0.3, weight.shape)))
        is_eager = not (ON_JAX or parts)  # in which parts take long
        model.compile(TrainingOptimizer(OPTIMIZERS[name](1e-2)), jit_compile=ON_JAX, run_eagerly=is_eager)
        losses = [float(model.train_on_batch(*make_batch(64), return_dict=True)["loss"]) for _ in range(3)]
        masters = masters_of(model)
        trained = [masters.get(each.path, each) for each in model.trainable_variables]
        assert len(masters) == (len(trained) if dtype == "bfloat16" else 0)
        found[dtype] = losses, values(trained), model
    losses, weights, model = found["bfloat16"]
    for variable, master in zip(model.trainable_variables, weights, strict=True):
        np.testing.assert_array_equal(values([variable])[0], rounded(master))
    np.testing.assert_allclose(losses, found["mixed_bfloat16"][0], rtol=5e-3)
    for ours, theirs in zip(weights, found["mixed_bfloat16"][1], strict=True):
        assert np.linalg.norm(ours - theirs) < 0.03 * max(np.linalg.norm(theirs), 1.0)


def test_gradients_of_micro_batches_are_summed_in_float32():
    moves = {}
    for dtype in ("bfloat16", "mixed_bfloat16"):
        model = make_model(dtype, micro_batches=64)
        rng = np.random.default_rng(3)
        for weight in model.weights:
            weight.assign(rounded(rng.normal(0, 0.3, weight.shape)))
        before = values(model.trainable_variables)
        optimizer = TrainingOptimizer(keras.optimizers.SGD(1.0), clip_norm=None)
        model.compile(optimizer, jit_compile=ON_JAX)
        model.train_on_batch(*make_batch(64))
        masters = masters_of(model)
        after = values([masters.get(each.path, each) for each in model.trainable_variables])
        moves[dtype] = np.concatenate([(now - then).ravel() for now, then in zip(after, before, strict=True)])
    right = moves["mixed_bfloat16"]
    assert np.linalg.norm(moves["bfloat16"] - right) < 0.002 * np.linalg.norm(right)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_ledger_counts_copies_and_their_slots(name):
    model = make_model("bfloat16")
    optimizer = TrainingOptimizer(OPTIMIZERS[name](1e-2))
    optimizer.build(model.trainable_variables)
    counted = ledger(model, slots=lambda entries: slots_when_built(lambda: OPTIMIZERS[name](1e-2), entries))
    remembered = [each for each in optimizer.variables if len(each.shape)]
    assert {each.dtype for each in remembered} == {"float32"}
    assert counted.optimizer_bytes["total"] == 4 * sum(int(np.prod(each.shape)) for each in remembered)
    assert counted.bytes["total"] == 2 * model.count_params()


def test_replicas_change_copies_as_one(mirrored):
    found = []
    for scope in (mirrored.scope, contextlib.nullcontext):
        with scope():
            model = make_model("bfloat16")
            # not Adam, which makes steps of one size of gradients that are nothing but rounding
            model.compile(TrainingOptimizer(keras.optimizers.SGD(0.1)), jit_compile=False, run_eagerly=True)
            model.optimizer.build(model.trainable_variables)
        rng = np.random.default_rng(3)
        for weight in model.weights:
            weight.assign(rounded(rng.normal(0, 0.3, weight.shape)))
        before = values(model.trainable_variables)
        x, y, weights = repeated(make_batch(4), 5)
        model.fit(x, y, sample_weight=weights, batch_size=4, shuffle=False, verbose=0)
        trained = values(each.value for each in model.trainable_variables)
        found.append((trained, values(each.value for each in masters_of(model).values())))
    (ours, copies), (theirs, their_copies) = found
    assert len(ours) == len(copies) > 15
    for one, other, copy, their_copy in zip(ours, theirs, copies, their_copies, strict=True):
        np.testing.assert_array_equal(one, rounded(copy))
        np.testing.assert_array_equal(other, rounded(their_copy))
    moved, difference = (
        np.sqrt(sum(np.sum((one - other) ** 2) for one, other in zip(copies, others, strict=True)))
        for others in (before, their_copies)
    )
    assert difference < 0.01 * moved


@pytest.mark.any_backend
def test_weights_of_more_bits_have_no_copies():
    for dtype in ("float32", "mixed_bfloat16", "mixed_float16"):
        model = make_model(dtype)
        optimizer = TrainingOptimizer(AdamW(1e-2))
        optimizer.build(model.trainable_variables)
        assert not any(isinstance(each, Master) for each in optimizer.variables)
