"""Training in float16: gradients that would be lost are kept, those that overflow cost a step and no more."""

import contextlib
import shutil
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.attention.platforms import tracing_for
from rembed_keras.training import AdamW
from rembed_keras.training.loop.callbacks import Measures, Recorder, StepClock
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.optimizers.training_optimizer import SCALE, TrainingOptimizer, wrapped
from tests.modeling.test_micro_batches import make_batch, repeated
from tests.training.pretraining import files_of, learn, make_encoder
from tests.training.pretraining import rows as log

NO_DROPOUT = 1e-9  # with any, Keras has no attention of JAX's, which is not to be had in float16 on a CPU
ON_JAX = keras.config.backend() == "jax"


def make_model(dtype, **options):
    keras.utils.set_random_seed(2)
    encoder = Encoder(60, 1, 2, 8, 16, 6, max_sequence_length=16, dropout=NO_DROPOUT, dtype=dtype)
    return MaskedLM(encoder, 10, **options)


def moves(dtype, optimizer, **options):
    """What one step changes each weight by, by its path."""
    model = make_model(dtype, **options)
    model.compile(optimizer, run_eagerly=not ON_JAX, jit_compile=ON_JAX)
    before = read(model.weights)
    model.train_on_batch(*make_batch(64))
    return {
        weight.path: now - then for weight, now, then in zip(model.weights, read(model.weights), before, strict=True)
    }


def read(variables):
    return [keras.ops.convert_to_numpy(variable).copy() for variable in variables]


@pytest.mark.parametrize("options", [{}, {"loss_chunk": 50}, {"micro_batches": 4}])
def test_a_step_in_float16_is_that_in_float32(options):
    right = moves("float32", keras.optimizers.SGD(1.0))
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=2.0**16)
    found = moves("mixed_float16", scaled, **options)
    assert sum(np.abs(step).max() > 1e-5 for step in right.values()) > 15
    for path, step in right.items():
        nothing = 1e-9  # a bias of keys moves no attention
        assert np.linalg.norm(found[path] - step) <= 0.03 * np.linalg.norm(step) + nothing, path


def number(variable):
    return float(keras.ops.convert_to_numpy(variable))


def test_an_overflow_costs_a_step_and_half_the_scale_and_divergence_is_what_is_left_at_1():
    variables = [keras.Variable(np.ones(3, "float32"), name="kernel")]
    inner = AdamW(0.1, weight_decay=0.2)
    optimizer = TrainingOptimizer(inner, skip_nonfinite=1, initial_scale=4.0, dynamic_growth_steps=2)
    optimizer.build(variables)
    counters = []

    def step(value):
        before = read(variables)[0]
        optimizer.apply([keras.ops.convert_to_tensor(np.full(3, value, "float32"))])
        names = ("iterations", "skipped_steps", "diverged_step", "dynamic_scale")
        counters.append([*(number(getattr(optimizer, name)) for name in names), (read(variables)[0] != before).all()])

    for value in (np.inf, 2.0, 2.0, 2.0, np.nan, np.inf, np.inf, 1.0, np.nan, 1.0):
        step(value)
    assert counters == [
        [1, 0, 0, 2, False],  # overflows
        [2, 0, 0, 2, True],
        [3, 0, 0, 4, True],  # the second in a row that went well
        [4, 0, 0, 4, True],
        [5, 0, 0, 2, False],
        [6, 0, 0, 1, False],
        [7, 1, 0, 1, False],  # nothing is left to halve: it is the gradient
        [8, 1, 0, 1, True],
        [9, 2, 9, 1, False],
        [10, 2, 9, 1, False],
    ]
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert again.get_config() == optimizer.get_config() and again.initial_scale == 4.0


@pytest.mark.parametrize(("scale", "left", "counted"), [(4.0, 2.0, 0), (1.0, 1.0, 1)])
def test_a_step_that_the_scale_skips_ends_no_training_that_may_skip_steps(scale, left, counted, tmp_path):
    optimizer = TrainingOptimizer(keras.optimizers.SGD(0.1), skip_nonfinite=1, initial_scale=scale)
    variables = [keras.Variable(np.ones(3, "float32"), name="kernel")]
    optimizer.apply([keras.ops.convert_to_tensor(np.full(3, np.nan, "float32"))], variables)
    model = SimpleNamespace(
        optimizer=optimizer, stop_training=False, reset_metrics=list, jax_state_sync=list, metrics=[]
    )
    model.get_metrics_result = lambda: {"loss": np.nan}  # as Keras's mean over the batches of an interval has it
    clock = StepClock(0, 1, 8.0)
    with contextlib.closing(Workdir(tmp_path, sinks=())) as workdir:
        recorder = Recorder(clock, workdir, Measures(4), "finetune/topics", 1, lambda row: None, list)
        recorder.set_model(model)
        recorder.on_train_begin()
        clock.on_train_batch_end(0)
        recorder.on_train_batch_end(0)
    (row,) = log(tmp_path)
    assert [row[key] for key in ("loss", "grad_norm", "skipped_steps", "loss_scale")] == [None, None, counted, left]


def test_the_norm_and_the_step_are_those_without_a_scale():
    steps = []
    for scale, factor in ((SCALE, SCALE), (None, 1.0)):
        variables = [keras.Variable(np.linspace(-1, 1, 5, dtype="float32"), name="kernel")]
        optimizer = TrainingOptimizer(AdamW(0.1), clip_norm=0.5, initial_scale=scale)
        optimizer.build(variables)
        optimizer.apply([keras.ops.convert_to_tensor(np.arange(5, dtype="float32") * factor)])
        steps.append([number(optimizer.gradient_norm), *read(variables)[0]])
    assert steps[0] == steps[1] and steps[0][0] == pytest.approx(30**0.5)


@pytest.fixture
def half_precision():
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def run(folder, corpus, dtype=None):
    learn(folder, corpus, partial(make_encoder, dtype=dtype), steps=4, log_every=2, checkpoint_every=2)


@pytest.mark.slow
@pytest.mark.skipif(ON_JAX, reason="JAX has no attention in float16 on a CPU, which is reported: see below")
@pytest.mark.usefixtures("half_precision", "without_graphs")
def test_a_run_in_float16_learns_as_one_in_float32_and_goes_on_where_it_stopped(corpus, tmp_path):
    run(tmp_path / "whole", corpus)
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")  # as it was after two steps
    shutil.rmtree(tmp_path / "stopped/checkpoints/step-00000004")
    run(tmp_path / "stopped", corpus)
    run(tmp_path / "wide", corpus, dtype="float32")
    rows, wide = log(tmp_path / "whole"), log(tmp_path / "wide")
    assert rows == log(tmp_path / "stopped")
    assert files_of(tmp_path / "whole", 4) == files_of(tmp_path / "stopped", 4)
    assert [row["loss_scale"] for row in rows] == [2.0**15] * 2
    assert not any("loss_scale" in row for row in wide)
    for ours, theirs in zip(rows, wide, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=0.02)


def test_replicas_scale_as_one(mirrored):
    found = []
    for scope in (mirrored.scope, contextlib.nullcontext):
        with scope():
            model = make_model("mixed_float16")
            eager = {"run_eagerly": scope is contextlib.nullcontext}
            optimizer = TrainingOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**19)
            model.compile(optimizer, jit_compile=False, **eager)
            model.optimizer.build(model.trainable_variables)
        rng = np.random.default_rng(3)
        for weight in model.weights:
            weight.assign(rng.normal(0, 0.3, weight.shape))
        x, y, weights = repeated(make_batch(4), 6)  # an epoch of which begins slowly on replicas
        model.fit(x, y, sample_weight=weights, batch_size=4, shuffle=False, verbose=0)
        found.append((number(model.optimizer.dynamic_scale.value), read(weight.value for weight in model.weights)))
    (scale, ours), (alone, theirs) = found
    assert 2.0**19 > scale == alone > 2.0**14 and not number(model.optimizer.skipped_steps.value)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=4e-4)


@pytest.mark.skipif(not ON_JAX, reason="TensorFlow has attention in float16 on a CPU")
def test_float16_where_there_is_none_is_refused():
    with pytest.raises(UserError, match=r"JAX has no attention in float16 on a CPU: .* mixed_bfloat16"):
        wrapped(make_model("mixed_float16"), AdamW(1e-3))
    with tracing_for("tpu"):  # by a CPU, which does not run it
        assert wrapped(make_model("mixed_float16"), AdamW(1e-3)).loss_scale is not None


@pytest.mark.skipif(ON_JAX, reason="JAX has no float16 on a CPU")
@pytest.mark.parametrize(("default", "of_blocks"), [("float32", "mixed_float16"), ("mixed_float16", "float32")])
def test_the_loss_is_scaled_where_any_layer_of_the_encoder_computes_in_float16(default, of_blocks):
    policies = keras.dtype_policies.DTypePolicyMap(default, {"block_0/feed_forward/.*": keras.DTypePolicy(of_blocks)})
    assert wrapped(make_model(policies), AdamW(1e-3)).loss_scale is not None
    assert wrapped(make_model("mixed_bfloat16"), AdamW(1e-3)).loss_scale is None
