import keras
import numpy as np
import pytest

from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.modeling.layers.activation import activation_function
from rembed_keras.modeling.layers.adapters import sublayers
from rembed_keras.modeling.layers.attention import RotaryAttention, SelfAttention
from tests.modeling import reference
from tests.modeling.forward import forward
from tests.modeling.test_encoder import FIRST, make_encoder, make_inputs


def test_gelu_is_that_of_float64():
    x = np.linspace(-12, 12, 4801)
    ours = activation_function("gelu")(x.astype("float32"))
    np.testing.assert_allclose(ours, reference.gelu(x), rtol=1e-6, atol=1e-6)


def test_gelu_of_half_precision_keeps_small_values():
    x = keras.ops.cast(np.linspace(-3, 3, 25), "bfloat16")
    wide = np.asarray(keras.ops.cast(x, "float32"), "float64")
    ours = keras.ops.convert_to_numpy(keras.ops.cast(activation_function("gelu")(x), "float32"))
    np.testing.assert_allclose(ours, reference.gelu(wide), rtol=0.004)


@pytest.mark.filterwarnings("ignore:Layer (?!EinsumDense)", "ignore:__array__ implementation")  # Keras's own
@pytest.mark.usefixtures("without_old_garbage")
@pytest.mark.parametrize(
    "changes", [pytest.param({}, marks=pytest.mark.any_backend), {"block": PreNorm, "num_segments": 0}]
)
def test_every_matrix_of_a_block_can_be_quantized(changes):
    encoder = make_encoder(hidden_dim=32, intermediate_dim=64, **changes)
    inputs = make_inputs([[FIRST]], 7)
    before = forward(encoder, inputs)["sequence_output"]
    encoder.quantize("int8")
    matrices = [matrix for each in sublayers(encoder.parts.blocks) for matrix in each.projections.values()]
    assert len(matrices) == 12 and {layer.quantization_mode for layer in matrices} == {"int8"}
    difference = np.abs(np.asarray(forward(encoder, inputs)["sequence_output"]) - before)
    assert 0 < difference.mean() < 0.1


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="TensorFlow's gradient is the one that has rows")
@pytest.mark.parametrize("kind", [SelfAttention, RotaryAttention])
def test_a_kernel_has_one_gradient_and_not_one_for_each_row(kind):
    import tensorflow as tf

    rows, length, width = 3, 5, 8
    attention = kind(num_heads=2, head_dim=4)
    hidden = tf.constant(np.random.default_rng(0).normal(size=(rows, length, width)), "float32")
    mask, positions = tf.ones((rows, length, length), "bool"), tf.tile(tf.range(length)[None], (rows, 1))

    @tf.function(jit_compile=True)
    def gradients(hidden):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(attention(hidden, mask, positions) ** 3)
        return tape.gradient(loss, attention.trainable_variables)

    attention(hidden, mask, positions)
    program = gradients.experimental_get_compiler_ir(hidden)(stage="hlo")
    assert f"f32[{rows},{length},{width}]" in program
    assert f"f32[{rows},{width},{width}]" not in program
