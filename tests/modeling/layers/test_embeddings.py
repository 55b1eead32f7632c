from functools import partial

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import MaskedLM
from rembed_keras.modeling.documents import document_positions
from rembed_keras.modeling.layers.embeddings import OutputEmbedding
from rembed_keras.modeling.layers.scalar_mix import ScalarMix
from rembed_keras.modeling.layers.tables import BandedTable, LookupTable
from tests.modeling.test_encoder import make_encoder, make_inputs


def step_of_sgd(model, x, y):
    """Gradient of the mean squared error, read off one step of plain gradient descent at rate 1."""
    before = [weight.numpy() for weight in model.trainable_weights]
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    model.fit(x, y, batch_size=len(x), shuffle=False, verbose=0)
    return [old - weight.numpy() for old, weight in zip(before, model.trainable_weights, strict=True)]


def test_rows_of_a_word_that_occurs_twice_are_one_gradient_row():
    inputs = keras.Input((4,), dtype="int32")
    table = LookupTable(6, 3)
    model = keras.Model(inputs, table(inputs))
    ids = np.array([[1, 2, 1, 1], [2, 0, 1, 5]], np.int32)
    target = np.random.default_rng(0).normal(size=(2, 4, 3))
    expected = np.zeros((6, 3))
    error = 2 * (table.embeddings.numpy()[ids] - target) / target.size
    np.add.at(expected, ids, error)
    np.testing.assert_allclose(step_of_sgd(model, ids, target)[0], expected, atol=1e-6)


def test_adam_squares_the_sum_of_a_words_gradients():
    inputs = keras.Input((2,), dtype="int32")
    table = LookupTable(3, 1, embeddings_initializer="zeros")
    model = keras.Model(inputs, table(inputs))
    optimizer = keras.optimizers.Adam(1e-3)
    model.compile(optimizer=optimizer, loss=keras.losses.MeanSquaredError(reduction="sum"))
    model.fit(np.array([[1, 1]], np.int32), -np.ones((1, 2, 1)), verbose=0)
    second_moment = next(variable for variable in optimizer.variables if "velocity" in variable.path)
    # each occurrence has gradient 2: (2 + 2)^2, not 2^2 + 2^2, times 1 - beta_2
    np.testing.assert_allclose(second_moment.numpy()[1, 0], 16 * 1e-3, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])
def test_gradients_of_a_word_that_is_everywhere_are_summed_in_float32(dtype):
    """4096 times a number that is a power of 2; in bfloat16 the sum ends at an eighth of it."""
    inputs = keras.Input((4096,), dtype="int32")
    table = LookupTable(3, 4, embeddings_initializer="zeros", dtype=dtype)
    model = keras.Model(inputs, table(inputs))
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    model.fit(np.ones((1, 4096), "int32"), -np.ones((1, 4096, 4)), verbose=0)
    moved = keras.ops.convert_to_numpy(keras.ops.cast(table.embeddings, "float32"))
    np.testing.assert_allclose(moved, [[0] * 4, [-0.5] * 4, [0] * 4], rtol=1e-2)


def test_positions_restart_in_each_document_and_never_in_a_plain_mask():
    masks = np.array([[1, 1, 2, 2, 2, 3, 0, 0], [1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1]])
    expected = [[0, 1, 0, 1, 2, 0, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7]]
    assert np.asarray(document_positions(masks)).tolist() == expected


def test_output_embedding_scores_every_word():
    layer = OutputEmbedding(LookupTable(7, 2), 4)
    features = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")
    logits = np.asarray(layer(features))
    np.testing.assert_allclose(
        logits, features @ layer.coupling.table.embeddings.numpy().T + layer.bias.numpy(), atol=1e-6
    )


def test_logits_are_float32_under_bfloat16():
    layer = OutputEmbedding(LookupTable(7, 2), 4, dtype="mixed_bfloat16")
    assert keras.backend.standardize_dtype(layer(np.ones((1, 4))).dtype) == "float32"


@pytest.mark.parametrize("table", ["token", "segment", "position"])
def test_a_table_may_have_a_dtype_of_its_own(table):
    dtype = keras.dtype_policies.DTypePolicyMap(
        keras.DTypePolicy("float32"), {f"embeddings/{table}": keras.DTypePolicy("bfloat16")}
    )
    mixed, whole = make_encoder(dtype=dtype), make_encoder()
    whole.set_weights([np.asarray(weight, "float32") for weight in mixed.weights])
    inputs = make_inputs([[([1, 2, 3], [0, 1, 1])]], 4)
    found, expected = (np.asarray(each(inputs)["sequence_output"]) for each in (mixed, whole))
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("length", "changes", "message"),
    [
        (13, {}, "a document is longer than max_sequence_length, 12: cut it"),
        (4, {"token_ids": 50}, "token id 50 has no row in the token table: vocabulary_size is 50"),
        (4, {"token_ids": -1}, "token id -1 has no row"),
        (4, {"segment_ids": 2}, "segment id 2 has no row in the segment table: num_segments is 2"),
    ],
)
def test_ids_without_a_row_are_reported(length, changes, message):
    inputs = make_inputs([[([1] * length, [0] * length)]], length)
    for key, value in changes.items():
        inputs[key][0, 2] = value
    encoder = make_encoder()
    with pytest.raises(UserError, match=message):
        encoder(inputs)
    if changes:  # in compiled programs too, which are not begun
        for loop in (encoder.predict, encoder.predict_on_batch, MaskedLM(encoder, 4).predict_on_batch):
            with pytest.raises(UserError, match=message):
                loop(inputs)


@pytest.mark.any_backend
def test_documents_that_are_not_numbered_from_the_left_are_refused():
    encoder, inputs = make_encoder(), make_inputs([[([1] * 4, [0] * 4), ([2] * 4, [0] * 4)]], 9)
    encoder.predict_on_batch(inputs)
    swapped = inputs | {"padding_mask": np.array([[2, 2, 2, 2, 1, 1, 1, 1, 0]])}
    with pytest.raises(
        UserError, match=r"^padding_mask has document 1 after document 2: number the documents of a row"
    ):
        encoder.predict_on_batch(swapped)


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [partial(BandedTable, 50, 8, (10,)), partial(ScalarMix, 3)])
def test_layers_of_functional_models_come_back(make):
    layer = make(name="own", trainable=False)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config() and not again.trainable


def test_a_document_that_is_too_long_is_reported_in_a_compiled_step():
    model = make_encoder()
    model.compile(jit_compile=False)
    half = ([1] * 8, [0] * 8)
    packed = model.predict(make_inputs([[half, half]], 16), verbose=0)["sequence_output"]
    np.testing.assert_allclose(packed[0, :8], packed[0, 8:], atol=1e-5)  # rows may be longer than documents
    with pytest.raises(Exception, match="a document is longer than max_sequence_length, 12: cut it"):
        model.predict(make_inputs([[(half[0] * 2, half[1] * 2)]], 16), verbose=0)


@pytest.mark.parametrize("make", [LookupTable, lambda rows, width: BandedTable(rows, width, (10, 40))])
def test_quantized_tables_score_with_the_rows_that_they_look_up(make):
    table, rng = make(100, 32), np.random.default_rng(0)
    table.build()
    for weight in table.weights:
        weight.assign(rng.normal(size=weight.shape))
    features = rng.normal(size=(3, 32)).astype("float32")

    def scores():
        parts = table.scoring(features)
        return np.concatenate([np.asarray(part) @ np.asarray(rows).T for part, rows in parts], axis=-1)

    exact = scores()
    np.testing.assert_allclose(exact, features @ np.asarray(table(np.arange(100))).T, atol=1e-3)
    layers = [layer for layer in table._flatten_layers() if len(layer._flatten_layers()) == 1]
    for layer in layers:
        layer.quantize("int8")
    assert {layer.quantization_mode for layer in layers} == {"int8"}
    assert np.abs(scores() - exact).max() < 0.05 * exact.std()
    if isinstance(table, LookupTable):
        np.testing.assert_allclose(scores(), features @ np.asarray(table(np.arange(100))).T, atol=1e-4)
