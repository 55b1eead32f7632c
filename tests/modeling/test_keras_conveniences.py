"""What Keras's users try first: summaries, exports, accuracy, and errors that are sentences."""

import importlib.util
import re
from importlib.util import find_spec

import keras
import numpy as np
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, LateMaskedLM, MaskedLM, Regressor, SpanExtractor, Tagger
from tests.modeling.forward import QUICK, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST], [SECOND]], 8)


def total_of(model):
    lines = []
    model.summary(print_fn=lambda text, **_: lines.append(text))
    (line,) = [line for line in "\n".join(lines).splitlines() if "Total params" in line]
    return int(line.split(":")[1].split()[0].replace(",", ""))


@pytest.mark.any_backend
def test_a_summary_totals_what_the_ledger_does():
    encoder = make_encoder()
    model = MaskedLM(encoder, 10)
    assert total_of(model) == ledger(model).total
    assert total_of(encoder) == ledger(model).kept
    classifier = Classifier(encoder, 3, pooling="mean")
    assert total_of(classifier) == classifier.count_params()


@pytest.mark.any_backend
def test_a_summary_has_a_line_for_each_part():
    names = {operation.name.rstrip("_0123456789") for operation in make_encoder().operations}
    inputs = {"token_ids", "segment_ids", "padding_mask"}
    parts = {"attention_mask", "block", "document_positions", "embeddings", "pooler", "projection"}
    assert names == inputs | parts | {"get_item"}  # the first token, which the pooler reads


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("make", "first"),
    [
        (lambda each: each, "embeddings"),
        (lambda each: MaskedLM(each, 10), "head"),
        (lambda each: LateMaskedLM(each, 10), "decoder"),
    ],
    ids=["encoder", "masked LM", "late"],
)
def test_a_clone_layer_by_layer_is_refused_with_what_makes_one(make, first):
    """A task model's is one of Keras's, as keras-hub's are."""
    model = make(make_encoder(num_layers=1))
    with pytest.raises(UserError, match=rf"^{first} is made by its model, .* take type\(model\).from_config"):
        keras.models.clone_model(model)
    assert type(model).from_config(model.get_config()).count_params() == model.count_params()
    classifier = Classifier(getattr(model, "encoder", model), 3)
    assert keras.models.clone_model(classifier).count_params() == classifier.count_params()


def test_an_export_names_every_output(tmp_path):
    encoder = make_encoder()
    if keras.config.backend() != "tensorflow":
        with pytest.raises(UserError, match="export needs KERAS_BACKEND=tensorflow"):
            encoder.export(str(tmp_path / "made"))
        return
    import tensorflow as tf

    encoder.export(str(tmp_path / "made"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "made"))
    served = loaded.serve(INPUTS)
    expected = forward(encoder, INPUTS)
    assert sorted(served) == [*(f"hidden_states_{i}" for i in range(3)), "pooled_output", "sequence_output"]
    for name in ("pooled_output", "sequence_output"):
        np.testing.assert_allclose(served[name], expected[name], atol=1e-5)
    np.testing.assert_allclose(served["hidden_states_1"], expected["hidden_states"][1], atol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [lambda each: Tagger(each, 4), lambda each: MaskedLM(each, 10)], ids=["task", "head"])
def test_a_model_with_a_head_is_exported_where_an_encoder_is(make, tmp_path, monkeypatch):
    """On JAX Keras ends in a traceback, or writes for a signature of one length what TensorFlow cannot run."""
    model, written = make(make_encoder(num_layers=1)), []
    monkeypatch.setattr(keras.Model, "export", lambda each, *_, **__: written.append(each))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tf2onnx" else find_spec(name))
    is_refused = keras.config.backend() != "tensorflow"
    with pytest.raises(UserError, match="export needs KERAS_BACKEND" if is_refused else "export to ONNX needs tf2onnx"):
        model.export(str(tmp_path / "made"), format="tf_saved_model" if is_refused else "onnx")
    assert not written
    if not is_refused:
        model.export(str(tmp_path / "made"))
        assert written == [model]


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="there is no export on JAX")
def test_an_export_to_onnx_asks_for_its_packages(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tf2onnx" else find_spec(name))
    with pytest.raises(UserError, match=re.escape("needs tf2onnx: pip install 'rembed_keras[onnx]'")):
        make_encoder().export(str(tmp_path / "made.onnx"), format="onnx")
    assert not any(tmp_path.iterdir())


@pytest.mark.any_backend
def test_a_classifier_reports_its_accuracy(tmp_path):
    model = Classifier(make_encoder(), 3)
    model.compile("adam")
    labels, weights = np.argmax(forward(model, INPUTS), axis=-1), np.array([1.0, 3.0])
    labels[0] = (labels[0] + 1) % 3
    logs = model.evaluate(INPUTS, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert logs["accuracy"] == pytest.approx(0.75)
    model.optimizer.build(model.trainable_variables)  # Keras warns where it has nothing to load
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.evaluate(INPUTS, labels, sample_weight=weights, verbose=0, return_dict=True) == pytest.approx(logs)
    model.compile("adam", metrics=[])
    assert "accuracy" not in model.evaluate(INPUTS, labels, verbose=0, return_dict=True)
    other = Regressor(make_encoder())
    other.compile("adam")
    assert "accuracy" not in other.evaluate(INPUTS, weights, verbose=0, return_dict=True)


@pytest.mark.parametrize("call", ["predict", "fit"])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (INPUTS | {"token_ids": INPUTS["token_ids"] + 40}, "has no row in the token table: vocabulary_size is 50"),
        (INPUTS | {"segment_ids": INPUTS["segment_ids"] + 2}, "has no row in the segment table: num_segments is 2"),
        (make_inputs([[([2] * 13, [0] * 13)]] * 2, 14), "a document is longer than max_sequence_length, 12"),
    ],
)
def test_ids_without_a_row_are_a_sentence(call, inputs, message):
    encoder = make_encoder()
    calls = {
        "predict": lambda: encoder.predict(inputs, verbose=0),
        "fit": lambda: Classifier(encoder, 2).fit(inputs, np.array([0, 1]), verbose=0),
    }
    with pytest.raises(UserError, match=message):
        calls[call]()


MASKED = INPUTS | {"mask_positions": np.array([[1, 2], [1, 2]])}


@pytest.mark.any_backend
@pytest.mark.parametrize("loop", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
@pytest.mark.parametrize(
    ("make", "x", "y", "message"),
    [
        (lambda encoder: Classifier(encoder, 3), INPUTS, np.array([1, 3]), "no label 3: num_classes is 3"),
        (lambda encoder: Classifier(encoder, 3), INPUTS, np.array([-1, 0]), "no label -1: num_classes is 3"),
        (lambda encoder: Classifier(encoder, 3), INPUTS, np.array([0.9, 0]), "no label 0.9: num_classes is 3"),
        (lambda encoder: Tagger(encoder, 2), INPUTS, np.full((2, 8), 5), "no label 5: num_tags is 2, .* from 0 to 1"),
        (lambda encoder: Classifier(encoder, 3), INPUTS, np.array([0, None], object), "weights: None is not a number"),
        (Regressor, INPUTS, np.array(["0.5", "good"]), "no label '0.5': labels are numbers"),
        (SpanExtractor, INPUTS, np.array([[1, 2], [3, 8]]), "no label 8: the length of a row is 8"),
        (lambda encoder: MaskedLM(encoder, 8), MASKED, np.array([[1, 2], [3, 50]]), "no label 50: vocabulary_size"),
    ],
)
def test_labels_without_an_output_are_a_sentence(make, x, y, message, loop):
    model = make(make_encoder())
    model.compile("sgd")
    with pytest.raises(UserError, match=message):
        getattr(model, loop)(x, y)


@pytest.mark.parametrize("make", [lambda encoder: Classifier(encoder, 3), lambda encoder: MaskedLM(encoder, 8)])
@pytest.mark.parametrize("loop", ["fit", "evaluate", "train_on_batch", "test_on_batch", "validation", "generator"])
def test_labels_that_are_left_out_are_a_sentence(make, loop):
    model = make(make_encoder(num_layers=1))
    x, is_objective = MASKED, isinstance(model, MaskedLM)
    model.compile("sgd", **QUICK)
    y = np.array([[1, 2], [3, 4]]) if is_objective else np.array([0, 1])
    said = "give the ids of the masked tokens as y" if is_objective else "give them as y"
    if loop == "generator" and not is_objective:
        pytest.skip("Keras's own loss says it")
    calls = {
        "validation": lambda: model.fit(x, y, validation_data=(x,), verbose=0),
        "generator": lambda: model.fit(((x,) for _ in range(2)), shuffle=False, verbose=0),
    }
    with pytest.raises(UserError, match=f"^there are no labels: {said}"):
        calls.get(loop, lambda: getattr(model, loop)(x))()


@pytest.mark.any_backend
@pytest.mark.parametrize("loop", ["fit", "evaluate", "predict", "train_on_batch", "predict_on_batch"])
def test_tensors_of_ids_and_labels_are_looked_at_as_arrays_are(loop):
    model = Classifier(make_encoder(num_layers=1), 3)
    model.compile("sgd")
    tensor = keras.ops.convert_to_tensor
    x = {key: tensor(column) for key, column in INPUTS.items()}
    right, wrong = ([] if "predict" in loop else [tensor(np.array(y, "int32"))] for y in ([1, 2], [1, 3]))
    with pytest.raises(UserError, match="has no row in the token table: vocabulary_size is 50"):
        getattr(model, loop)(x | {"token_ids": x["token_ids"] + 40}, *right)
    if wrong:
        with pytest.raises(UserError, match="no label 3: num_classes is 3"):
            getattr(model, loop)(x, *wrong)


@pytest.mark.any_backend
def test_lists_are_taken_as_arrays_and_a_missing_input_is_named():
    model = Classifier(make_encoder(num_layers=1), 3)
    model.compile("sgd", **QUICK)
    lists = {key: column.tolist() for key, column in INPUTS.items()}
    expected = model.test_on_batch(INPUTS, np.array([1, 2]), np.array([1.0, 0.5]))
    evaluated = model.evaluate(lists, [1, 2], sample_weight=[1.0, 0.5], verbose=0)
    np.testing.assert_allclose(model.test_on_batch(lists, [1, 2], [1.0, 0.5]), expected, rtol=1e-6)
    np.testing.assert_allclose(evaluated, expected, rtol=1e-6)
    objects = {key: np.array([*map(np.array, rows)], object) for key, rows in lists.items()}
    found = model.test_on_batch(objects, np.array([1, 2], object), np.array([1.0, 0.5], object))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(model.predict(lists, verbose=0), model.predict_on_batch(INPUTS), rtol=1e-5)
    with pytest.raises(UserError, match="rows of token_ids are of several lengths"):
        model.predict(lists | {"token_ids": [[1], [2, 3]]})
    with pytest.raises(UserError, match="a number for each text, as argmax of one-hot labels"):
        model.fit(INPUTS, [[0, 1, 0], [1, 0, 0]])
    for loop in (model.predict, model.predict_on_batch, model.encoder.predict):
        with pytest.raises(UserError, match=r"^the inputs lack segment_ids and padding_mask: .* token_ids, segment"):
            loop({"token_ids": INPUTS["token_ids"]})


@pytest.mark.any_backend
def test_labels_that_count_nothing_may_be_anything():
    model = Tagger(make_encoder(), 2)
    tags, weights = np.full((2, 8), -100), np.zeros((2, 8), "float32")
    model.check_labels(INPUTS, tags, weights)
    model.check_labels(INPUTS, tags, weights[:, 0])
    weights[1, 3] = 1
    with pytest.raises(UserError, match="no label -100"):
        model.check_labels(INPUTS, tags, weights)
    model.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100))
    model.check_labels(INPUTS, tags, None)
    assert Regressor(make_encoder()).known_labels(INPUTS) is None

    class Own(Classifier):
        def losses_of(self, y, y_pred):
            return keras.ops.binary_crossentropy(y, y_pred, from_logits=True)

    Own(make_encoder(), 3).check_labels(INPUTS, np.full((2, 3), 0.5), None)


@pytest.mark.any_backend
def test_packed_rows_may_be_longer_than_the_table():
    row = [([2] * 8, [0] * 8), ([3] * 8, [0] * 8)]
    assert make_encoder().predict(make_inputs([row], 16), verbose=0)["pooled_output"].shape == (1, 16)
