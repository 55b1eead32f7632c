import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.training.optimizers.adamw import AdamW
from rembed_keras.training.optimizers.schedules import WarmupLinearDecay
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer


def reference_step(value, gradients, rate, decay, clip_norm, steps):
    """AdamW in float64 on a list of arrays; `decay` per array."""
    first = [np.zeros_like(v) for v in value]
    second = [np.zeros_like(v) for v in value]
    for t in range(1, steps + 1):
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        scale = min(1.0, clip_norm / (norm + 1e-6))
        for i, gradient in enumerate(gradients):
            g = gradient * scale
            value[i] = value[i] - rate * decay[i] * value[i]
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g**2
            corrected = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            value[i] = value[i] - corrected * first[i] / (np.sqrt(second[i]) + 1e-6)
    return value


@pytest.mark.parametrize("clip_norm", [0.5, 1e6])
def test_steps_equal_a_reference_in_float64(clip_norm):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(3, 2)), rng.normal(size=(2,)), rng.normal(size=(2,))]
    gradients = [rng.normal(size=value.shape) for value in values]
    variables = [keras.Variable(v, name=n) for v, n in zip(values, ("kernel", "bias", "gamma"), strict=True)]
    optimizer = TrainingOptimizer(AdamW(learning_rate=0.1, weight_decay=0.2), clip_norm=clip_norm)
    for _ in range(3):
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in gradients], variables)
    expected = reference_step(values, gradients, 0.1, (0.2, 0.0, 0.0), clip_norm, 3)
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, atol=1e-5)
    norm = np.sqrt(sum((g**2).sum() for g in gradients))
    assert np.isclose(float(optimizer.gradient_norm.numpy()), norm, rtol=1e-5)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="JAX has one gradient a row")
def test_a_row_of_a_table_that_was_read_twice_has_one_gradient():
    import tensorflow as tf

    table = keras.Variable(np.zeros((3, 2), "float32"))
    optimizer = TrainingOptimizer(keras.optimizers.SGD(1.0), clip_norm=1.0)
    parts = (tf.constant(each) for each in ([[1.5, 2.0], [1.5, 2.0]], [1, 1], [3, 2]))
    optimizer.apply([tf.IndexedSlices(*parts)], [table])
    assert np.isclose(float(optimizer.gradient_norm), 5.0)
    np.testing.assert_allclose(table.numpy(), [[0, 0], [-0.6, -0.8], [0, 0]], rtol=1e-5)


def test_the_optimizer_comes_back_from_its_config():
    optimizer = TrainingOptimizer(AdamW(learning_rate=WarmupLinearDecay(1e-3, 10, 100)), clip_norm=0.7)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert again.get_config() == optimizer.get_config()
    assert again.clip_norm == 0.7


def test_warm_up_may_be_absent_or_longer_than_the_run():
    assert float(WarmupLinearDecay(2.0, 0, 10)(0)) == 2.0
    assert [float(WarmupLinearDecay(1.0, 100, 10)(step)) for step in (0, 10)] == pytest.approx([0.0, 0.1])
    with pytest.raises(UserError, match="cannot warm up for -1 of 10 steps"):
        WarmupLinearDecay(1.0, -1, 10)


def test_clipping_at_nothing_is_a_mistake():
    with pytest.raises(ValueError, match="clip_norm is 0"):
        TrainingOptimizer(AdamW(), clip_norm=0)


def test_a_non_finite_gradient_changes_nothing_and_one_too_many_freezes_all():
    values = [np.array([1.0, -0.0, -2.0], "float32"), np.array([0.5], "float32")]
    gradient = [keras.ops.convert_to_tensor(np.full(value.shape, 0.1, "float32")) for value in values]
    bad = [keras.ops.convert_to_tensor(np.array([0.1, np.inf, 0.1], "float32")), gradient[1]]
    variables = [keras.Variable(value, name=name) for value, name in zip(values, ("kernel", "bias"), strict=True)]
    optimizer = TrainingOptimizer(AdamW(learning_rate=0.1, weight_decay=0.2), skip_nonfinite=1)

    def state():
        own = [variable for variable in optimizer.variables if variable.path.endswith(("momentum", "velocity"))]
        assert len(own) == 4
        return [np.asarray(keras.ops.convert_to_numpy(variable.value)).tobytes() for variable in (*variables, *own)]

    def counters():
        names = ("iterations", "skipped_steps", "diverged_step")
        return [int(keras.ops.convert_to_numpy(getattr(optimizer, name).value)) for name in names]

    optimizer.build(variables)
    optimizer.apply(bad)
    first = state()
    assert first[:2] == [value.tobytes() for value in values]  # the sign of zero too
    assert counters() == [1, 1, 0]
    optimizer.apply(gradient)
    moved = state()
    assert all(ours != theirs for ours, theirs in zip(moved[:2], first[:2], strict=True)) and counters() == [2, 1, 0]
    optimizer.apply(bad)
    assert state() == moved and counters() == [3, 2, 3]
    optimizer.apply(gradient)  # a step that is taken after training diverged
    assert state() == moved and counters() == [4, 2, 3]


@pytest.mark.parametrize("value", [-1, 1.5, True])
def test_how_many_steps_may_be_skipped_is_a_number(value):
    with pytest.raises(UserError, match=r"skip_nonfinite is .*; it must be a whole number of at least 0"):
        TrainingOptimizer(AdamW(), skip_nonfinite=value)


def test_a_finite_step_is_taken_though_more_were_skipped_before_than_may_be_now():
    """As in a second pre-training that allows none."""
    variable = keras.Variable([1.0, 2.0])
    optimizer = TrainingOptimizer(keras.optimizers.SGD(1.0), clip_norm=None, skip_nonfinite=0)
    optimizer.build([variable])
    optimizer.skipped_steps.assign(3)
    for gradient, diverged in (([1.0, 1.0], 0), ([np.inf, 0.0], 2)):
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")], [variable])
        assert int(keras.ops.convert_to_numpy(optimizer.diverged_step)) == diverged
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), [0.0, 1.0])


def scale_and_kernel():
    """Variables as of a layer in float8: a scale, which takes its gradient as its value, and a kernel."""
    scale = keras.Variable(np.ones((), "float32"), name="scale")
    scale.overwrite_with_gradient = True
    return scale, keras.Variable(np.zeros(1, "float32"), name="kernel")


@pytest.mark.parametrize("loss_scale", [None, 4.0])
def test_what_is_measured_is_neither_clipped_nor_a_part_of_the_norm(loss_scale):
    scale, kernel = variables = scale_and_kernel()
    optimizer = TrainingOptimizer(keras.optimizers.SGD(1.0), clip_norm=1.0, initial_scale=loss_scale)
    optimizer.apply([keras.ops.convert_to_tensor(each) for each in (40.0, [2.0 * (loss_scale or 1.0)])], variables)
    assert np.isclose(float(optimizer.gradient_norm.numpy()), 2.0)
    assert np.isclose([scale.numpy().item(), kernel.numpy().item()], [40.0, -1.0]).all()


@pytest.mark.parametrize(("measured", "gradient"), [(2.0, np.nan), (0.0, 0.0)])
def test_a_step_that_is_skipped_or_does_not_reach_a_layer_leaves_its_scale(measured, gradient):
    scale, kernel = variables = scale_and_kernel()
    optimizer = TrainingOptimizer(keras.optimizers.SGD(1.0), skip_nonfinite=1)
    optimizer.apply([keras.ops.convert_to_tensor(each) for each in (measured, [gradient])], variables)
    assert [scale.numpy().item(), kernel.numpy().item()] == [1.0, 0.0]


def test_replicas_take_the_largest_of_what_each_measured(mirrored):
    import tensorflow as tf

    with mirrored.scope():
        scale, kernel = variables = scale_and_kernel()
        optimizer = TrainingOptimizer(keras.optimizers.SGD(1.0))
        optimizer.build([*variables])
    each = mirrored.experimental_distribute_values_from_function(
        lambda replica: tf.constant(2.0 + replica.replica_id_in_sync_group)
    )
    tf.function(lambda: mirrored.run(lambda value: optimizer.apply([value, tf.ones(1)], variables), args=(each,)))()
    for weight, expected in ((scale, 3.0), (kernel, -1.0)):  # the kernel's gradient is clipped
        copies = mirrored.experimental_local_results(weight.value)
        assert [copy.numpy().item() for copy in copies] == pytest.approx([expected] * 2)
