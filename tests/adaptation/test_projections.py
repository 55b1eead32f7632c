"""Changes of projections do what their papers say, and every one of them folds into the matrices that it changes."""

import math

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.methods import Adapters, Lora, RoAd
from rembed_keras.adaptation.projections import LowRank, Rotations
from rembed_keras.adaptation.tuning import tune, tuned
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier
from rembed_keras.modeling.layers.adapters import (
    PROJECTIONS,
    BottleneckAdapter,
    added_variables,
    hosted_by,
    insert_changes,
    merge,
    plain_weights,
)
from rembed_keras.modeling.layers.sublayer import ProjectionChange
from tests.adaptation.test_tuning import INPUTS, PRE_NORM, learn, make_model, outputs, values
from tests.modeling.forward import forward

FOLDED = {
    "lora": [Lora(2, alpha=5.0, targets=PROJECTIONS)],
    "lora of every head": [Lora(2, alpha=5.0, targets=PROJECTIONS, per_head=True)],
    "road 1": [RoAd()],
    "road 2": [RoAd(2, group_size=4)],
    "road 4": [RoAd(4)],
    "both": [Lora(3), RoAd(2)],
    "both the other way around": [RoAd(4), Lora(3), Lora(2, targets=("down",), per_head=True)],
}


def stir(model):
    """Values for all that was added, as if much had been learned."""
    rng = np.random.default_rng(7)
    for weight in model.weights:
        if "lora" in weight.path or "road" in weight.path:
            weight.assign(np.array(weight.numpy()) + rng.normal(0, 0.3, weight.shape))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lora", {}),
        ("lora", PRE_NORM),
        ("lora of every head", {"layer_sharing": "all"}),
        ("lora of every head", PRE_NORM),
        ("road 1", {}),
        ("road 2", PRE_NORM),
        ("road 4", {"layer_sharing": "all"}),
        ("both", {"layer_sharing": "all"}),
        ("both the other way around", {}),
        ("both the other way around", PRE_NORM),
    ],
)
def test_every_change_folds(name, changes):
    model = make_model(**changes)
    plain, paths = outputs(model), values(model).keys()
    tune(model, FOLDED[name])
    stir(model)
    learned = outputs(model)
    assert np.abs(learned - plain).max() > 1e-2
    with pytest.raises(UserError, match="fold it in with `merge`"):
        plain_weights(model)
    merge(model.encoder)
    np.testing.assert_allclose(outputs(model), learned, atol=1e-6)
    weights = plain_weights(model)
    assert weights.keys() == paths
    again = make_model(**changes)
    for weight in again.weights:
        weight.assign(np.asarray(weights[weight.path]))
    np.testing.assert_allclose(outputs(again), learned, atol=1e-6)
    assert all(np.any(weight.numpy()) for weight in model.weights if weight.path.endswith(("left", "scale", "nel_a")))


@pytest.mark.skipif(keras.config.backend() == "jax", reason="JAX computes in float32 unless its x64 mode is on")
@pytest.mark.parametrize("name", ["lora", "road 2"])
def test_a_change_folds_in_float64_without_rounding(name):
    model = make_model(dtype="float64")
    tune(model, FOLDED[name])
    stir(model)
    learned = forward(model.encoder, INPUTS)["sequence_output"]
    merge(model.encoder)
    np.testing.assert_allclose(forward(model.encoder, INPUTS)["sequence_output"], learned, atol=1e-12)
    assert all(np.asarray(each).dtype == "float64" for each in plain_weights(model.encoder).values())


@pytest.mark.parametrize("methods", [[Lora(2)], [RoAd()], [Lora(2, per_head=True)]], ids=["lora", "road", "per head"])
def test_what_is_folded_into_bfloat16_is_plain(methods):
    model = make_model(dtype="bfloat16")
    paths = values(model).keys()
    tune(model, methods)
    stir(model)
    with pytest.raises(UserError, match="fold it in with `merge`"):
        plain_weights(model)
    merge(model.encoder)
    assert plain_weights(model).keys() == paths


class Shift(ProjectionChange):
    """Adds a learned number to a projection's outputs; it folds into the bias alone."""

    def build(self, inputs_shape, outputs_shape):
        self.shift = self.add_weight(shape=(outputs_shape[-1],), initializer="ones", name="shift")

    def call(self, inputs, outputs):
        return outputs + self.shift

    def fold(self, kernel, bias):
        return kernel, bias + self.shift

    def clear(self):
        self.shift.assign(keras.ops.zeros(self.shift.shape))


def test_a_change_of_a_bias_alone_is_not_lost():
    model = make_model()
    insert_changes(model.encoder.parts.blocks, ["up"], lambda dtype: Shift(dtype=dtype))
    learned = outputs(model)
    with pytest.raises(UserError, match="fold it in with `merge`"):
        plain_weights(model)
    merge(model.encoder)
    np.testing.assert_allclose(outputs(model), learned, atol=1e-6)
    plain_weights(model)


@pytest.mark.parametrize("name", ["token", "pooler", "projection"])
def test_keras_lora_is_folded_wherever_it_stands(name):
    model = make_model()
    model.encoder.enable_lora(2, [name])
    stir(model)
    learned = outputs(model)
    with pytest.raises(UserError, match="fold it in with `merge`"):
        plain_weights(model)
    assert {weight.name[:4] for weight in added_variables(model.encoder)} == {"lora"}
    merge(model.encoder)
    np.testing.assert_allclose(outputs(model), learned, atol=1e-6)
    plain_weights(model)


def test_a_folded_quantized_matrix_is_refused():
    model = make_model()
    tune(model, [Lora(2)])
    model.encoder.parts.blocks[0].attention.heads.query_dense.quantize("int8")
    with pytest.raises(UserError, match="merge what fine-tuning learned before `quantize`"):
        merge(model.encoder)


@pytest.mark.any_backend
def test_changes_of_two_tasks_are_read_back_in_their_order(tmp_path):
    model = make_model()
    tune(model, [RoAd(), Adapters(2)])
    tune(Classifier(model.encoder, 3), [Lora(2, targets=PROJECTIONS)])
    stir(model)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert [layer.name for layer in hosted_by(again.encoder)] == [layer.name for layer in hosted_by(model.encoder)]
    np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-6)


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")  # of norms
@pytest.mark.usefixtures("without_old_garbage")
@pytest.mark.parametrize("name", ["lora", "road 1"])
def test_a_model_is_quantized_with_the_projections_that_host_changes(name, tmp_path):
    model = make_model()
    tune(model, FOLDED[name])
    stir(model)
    learned = outputs(model)
    model.quantize("int8", filters="^query$")
    sublayers = [each for block in model.encoder.parts.blocks for each in (block.attention, block.feed_forward)]
    hosts = {path: layer for each in sublayers for path, layer in each.projections.items()}
    assert {path for path, layer in hosts.items() if layer.quantization_mode} == {"query"}
    model.quantize("int8")
    assert {layer.quantization_mode for layer in hosts.values()} == {"int8"}
    assert 0 < np.abs(outputs(model) - learned).max() < 0.3 * np.abs(learned).max()
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(outputs(keras.saving.load_model(tmp_path / "model.keras")), outputs(model), atol=1e-5)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`", "ignore:__array__ implementation")  # Keras's
@pytest.mark.usefixtures("without_old_garbage")
def test_projections_that_stay_as_they_are_in_int4_are_named():
    model = make_model()
    tune(model, [Lora(2)])
    with pytest.warns(
        UserWarning, match="4 projections with lora and the like stay .* int4 leaves no room for: take int8"
    ):
        model.quantize("int4")


@pytest.mark.parametrize("alpha", [None, 6.0])
def test_low_rank_is_what_the_paper_says(alpha):
    change, rng = LowRank(3, alpha), np.random.default_rng(0)
    change.build((None, None, 5), (None, None, 7))
    left, right = rng.normal(size=(5, 3)), rng.normal(size=(3, 7))
    change.left.assign(left)
    change.right.assign(right)
    x, y = rng.normal(size=(2, 4, 5)), rng.normal(size=(2, 4, 7))
    expected = y + (1 if alpha is None else 2) * x @ left @ right
    np.testing.assert_allclose(np.asarray(change(x, y)), expected, rtol=1e-5, atol=1e-5)


def test_loras_rank_is_that_of_the_whole_matrix():
    model = make_model()
    before = np.array(model.encoder.parts.blocks[0].attention.heads.query_dense.kernel.numpy())
    tune(model, [Lora(2, targets=("query",))])
    hidden, encoder = before.shape[0], model.encoder
    assert tuned(model).trainable - 3 * (hidden + 1) == 2 * 2 * (hidden + hidden)  # 2 layers, rank 2
    stir(model)
    merge(encoder)
    moved = np.array(encoder.parts.blocks[0].attention.heads.query_dense.kernel.numpy()) - before
    assert np.linalg.matrix_rank(moved.reshape(hidden, -1), tol=1e-5) == 2


@pytest.mark.parametrize("group", [2, 4, 12], ids=str)
@pytest.mark.parametrize("variant", [1, 2, 4])
def test_rotations_are_matrices_of_pairs(variant, group):
    """Against a matrix with cosines on its diagonal and sines between the halves of a group."""
    change, rng = Rotations(variant, group), np.random.default_rng(variant)
    change.build((None, None, 3), (None, None, 12))
    assert change.count_params() == variant * 12
    angle, scale = rng.normal(size=change.angle.shape), rng.normal(1, 0.5, size=change.angle.shape)
    change.angle.assign(angle)
    change.scale.assign(scale)
    which = {1: [(0, 0), (0, 0)], 2: [(0, 0), (1, 1)], 4: [(0, 2), (1, 3)]}[variant]  # (cosine's, sine's) of a row
    matrix = np.zeros((12, 12))
    for start in range(0, 12, group):
        for i in range(group // 2):
            first, second, of = start + i, start + i + group // 2, start // group
            for row, (cosine, sine), partner, sign in ((first, which[0], second, -1), (second, which[1], first, 1)):
                matrix[row, row] = scale[cosine, of, i] * np.cos(angle[cosine, of, i])
                matrix[row, partner] = sign * scale[sine, of, i] * np.sin(angle[sine, of, i])
    y = rng.normal(size=(2, 4, 12))
    np.testing.assert_allclose(np.asarray(change(np.zeros((2, 4, 3)), y)), y @ matrix.T, atol=1e-5)
    kernel, bias = rng.normal(size=(3, 12)).astype("float32"), rng.normal(size=12).astype("float32")
    folded = [keras.ops.convert_to_numpy(each) for each in change.fold(kernel, bias)]
    np.testing.assert_allclose(folded[0], kernel @ matrix.T, atol=1e-5)
    np.testing.assert_allclose(folded[1], matrix @ bias, atol=1e-5)


def test_an_adapter_is_what_the_paper_says():
    adapter = BottleneckAdapter(3, "gelu_tanh")
    x = np.random.default_rng(0).normal(size=(2, 4, 5))
    adapter(x)
    for weight in adapter.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    down, down_bias, up, up_bias = (np.array(weight.numpy(), "float64") for weight in adapter.weights)
    inner = x @ down + down_bias
    inner = 0.5 * inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    np.testing.assert_allclose(np.asarray(adapter(x)), x + inner @ up + up_bias, atol=1e-5)


def test_an_adapter_beside_reads_what_the_sublayer_reads():
    model = make_model()
    tune(model, [Adapters(3), Adapters(2, place="beside")])
    rng = np.random.default_rng(3)
    for layer in hosted_by(model.encoder):
        for weight in layer.weights:
            weight.assign(rng.normal(0, 0.3, weight.shape))
    sublayer = model.encoder.parts.blocks[0].feed_forward
    width = model.encoder.arguments["hidden_dim"]
    hidden = keras.ops.convert_to_tensor(rng.normal(size=(2, 3, width)).astype("float32"))
    branch = sublayer.down(sublayer.activation(sublayer.up(hidden))) + sublayer.beside[0](hidden)
    expected = sublayer.norm(hidden + sublayer.after[0](branch))
    np.testing.assert_allclose(np.asarray(sublayer(hidden)), np.asarray(expected), atol=1e-5)
    assert not sublayer.beside[0].residual and sublayer.after[0].residual


def test_kept_heads_learn_and_come_back(tmp_path):
    model = make_model()
    tune(model, [RoAd(2), Lora(2)])
    learn(model)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-6)
    merge(again.encoder)
    np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-6)
