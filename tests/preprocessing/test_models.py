"""Models that take texts, as someone in a notebook uses them."""

import itertools
import re
from pathlib import Path

import grain
import keras
import keras_hub
import numpy as np
import pytest

from rembed_keras import (
    Classifier,
    Encoder,
    MaskedLM,
    MaskedLMPreprocessor,
    ReplacedTokenDetection,
    Tagger,
    TextClassifierPreprocessor,
)
from rembed_keras.errors import UserError
from rembed_keras.modeling.input_embeddings import Summed, Trigrams
from rembed_keras.modeling.texts import feeding
from tests.modeling.forward import forward


@pytest.fixture(scope="module")
def texts(lines):
    """Of two batches, so that there is one program for both."""
    return lines[:64]


@pytest.fixture(scope="module")
def labels(texts):
    return np.array(["file" in line.lower() for line in texts], np.int32)


@pytest.fixture(scope="module")
def model(preset):
    return Classifier.from_preset(preset, num_classes=2)


def test_a_classifier_takes_lists(model, texts, labels):
    keras.utils.set_random_seed(0)
    history = model.fit(texts, [*labels], epochs=1, verbose=0, validation_split=0.5).history
    assert {"loss", "accuracy", "val_accuracy"} <= history.keys()
    outputs = model.predict(texts[:3], verbose=0)
    assert outputs.shape == (3, 2)
    tokenized = model.preprocessor(texts[:3])
    np.testing.assert_allclose(outputs, forward(model, tokenized), atol=1e-5)
    np.testing.assert_allclose(model.predict(tokenized, verbose=0), outputs, atol=1e-6)
    assert model.preprocessor.sequence_length == 32


def batches_of_tensorflow(lines, labels):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((lines, labels)).batch(32)


def batches_of_grain(lines, labels):
    return grain.MapDataset.source([*zip(lines, labels, strict=True)]).batch(32)


@pytest.mark.parametrize("batches", [batches_of_tensorflow, batches_of_grain])
def test_data_sets_give_what_lists_give(batches, model, texts, labels):
    each = batches(texts, labels)
    expected = model.evaluate(np.array(texts), labels, verbose=0, return_dict=True)
    found = model.evaluate(each, verbose=0, return_dict=True)
    assert np.isclose(found["loss"], expected["loss"], atol=1e-5)
    assert np.isclose(found["accuracy"], expected["accuracy"])
    history = model.fit(each, verbose=0, validation_data=(texts, labels)).history
    expected = model.evaluate(texts, labels, verbose=0, return_dict=True)
    assert np.isclose(history["val_loss"][0], expected["loss"], atol=1e-5)


SHORT = ["open the file", "save it"]
OF_TASKS = {
    "classifier": (Classifier, {"num_classes": 2}, SHORT, [0, 1], 16),
    "masked_lm": (MaskedLM, {}, SHORT, None, 32),  # its logits could be of as many tokens, for all that a shape says
    "tagger": (Tagger, {"num_tags": 3}, [text.split() for text in SHORT], [[0, 1, 2], [2, 0]], 32),
}


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("task", OF_TASKS)
def test_padding_behind_the_longest_text_is_not_computed(task, preset, monkeypatch):
    make, options, texts, labels, predicted = OF_TASKS[task]
    model = make.from_preset(preset, **options)
    model.compile(optimizer=None)
    batch = keras.utils.unpack_x_y_sample_weight(model.preprocessor(texts, y=labels))
    expected = [model.evaluate(*batch[:2], sample_weight=batch[2], verbose=0), model.predict(batch[0], verbose=0)]
    lengths = []
    for loop in ("evaluate", "predict"):
        own = getattr(keras.Model, loop)

        def noted(model, x, *arguments, own=own, **named):
            lengths.append(x["token_ids"].shape[1])
            return own(model, x, *arguments, **named)

        monkeypatch.setattr(keras.Model, loop, noted)
    found = [model.evaluate(texts, labels, verbose=0), model.predict(texts, verbose=0)]
    assert lengths == [16, predicted]
    keras.tree.map_structure(lambda *pair: np.testing.assert_allclose(*pair, atol=1e-6), found, expected)


def test_rows_stay_whole_where_it_is_not_known_what_outputs_have(model, monkeypatch):
    lengths = []
    monkeypatch.setattr(feeding, "token_axes", lambda model: None)
    monkeypatch.setattr(keras.Model, "predict", lambda model, x, *_, **named: lengths.append(x["token_ids"].shape[1]))
    model.predict(SHORT, verbose=0)
    assert lengths == [32]


@pytest.mark.usefixtures("without_graphs")
def test_masked_lm_learns_from_texts_and_repeats(preset, texts):
    runs = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        model = MaskedLM.from_preset(preset)
        assert model.preprocessor.mask_rate == 0.2
        model.compile(keras.optimizers.Lion(1e-2))
        runs.append(model.fit(texts, epochs=2, verbose=0).history["loss"])
    assert runs[0] == runs[1] and runs[0][1] < runs[0][0]
    source = grain.MapDataset.source(texts).batch(32)
    expected = model.evaluate(texts, verbose=0, return_dict=True)
    found = model.evaluate(source, verbose=0, return_dict=True)
    assert np.isclose(found["loss"], expected["loss"], atol=1e-5)


def test_vectors_are_means_of_the_layer(preset, lines):
    encoder = Encoder.from_preset(preset)
    vectors = encoder.encode(lines[:3], layer=1, batch_size=2, verbose=False)
    for line, vector in zip(lines[:3], vectors, strict=True):
        ids = np.array([[2, *encoder.preprocessor.tokenizer(line)[:30], 3]])
        states = forward(encoder, {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1})
        np.testing.assert_allclose(vector, states["hidden_states"][1][0].mean(axis=0), atol=1e-5)
    first = encoder.encode(lines[2], pooling="first")
    np.testing.assert_allclose(first[0], states["sequence_output"][0, 0], atol=1e-5)
    assert encoder.similarity(lines[0], lines[0]) == pytest.approx(1, abs=1e-5)
    cosines = MaskedLM.from_preset(preset).similarity(lines[:2], lines[:3])
    assert cosines.shape == (2, 3) and np.isclose(cosines[0, 1], cosines[1, 0], atol=1e-5)
    with pytest.raises(UserError, match="layers 0 to 1"):
        encoder.encode(lines[0], layer=2)
    with pytest.raises(UserError, match="there is no tokenizer"):
        Encoder(10, 1, 2, 8, 16, 4).encode("a")


@pytest.mark.parametrize("embedding", [Summed, Trigrams])
def test_a_vector_is_of_the_whole_text_however_long_and_whatever_is_beside_it(embedding, tokenizer, lines):
    encoder = Encoder(400, 1, 2, 8, 16, 4, max_sequence_length=32, input_embedding=embedding)
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer)
    for weight in encoder.weights:
        weight.assign(weight + 0.3 * np.random.default_rng(3).normal(size=weight.shape))  # as far apart as trained ones
    count = {len(encoder.preprocessor.tokenizer(text)): text for text in _beginnings(" ".join(lines[:3]))}
    lengths = [*range(9, 20), 29, 30]
    texts = [count[length] for length in lengths]
    beside = encoder.encode([*texts, count[28]])
    for length, text, vector in zip(lengths, texts, beside, strict=False):
        np.testing.assert_allclose(encoder.encode(text)[0], vector, atol=1e-5, err_msg=str(length))


def _beginnings(text):
    return (text[:end] for end in range(len(text)))


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")
@pytest.mark.usefixtures("without_old_garbage")
def test_an_encoder_with_its_tokenizer_is_quantized(preset, lines, tmp_path):
    encoder = Encoder.from_preset(preset)
    before = encoder.encode(lines[:2])
    encoder.quantize("int8")
    after = encoder.encode(lines[:2])
    assert 0 < np.abs(after - before).max() < 0.1 * np.abs(before).max()
    encoder.save_to_preset(str(tmp_path / "quantized"))
    np.testing.assert_array_equal(Encoder.from_preset(str(tmp_path / "quantized")).encode(lines[:2]), after)


@pytest.mark.any_backend
def test_vectors_are_of_the_table_that_detection_reads(tokenizer, lines):
    encoder = Encoder(400, 1, 2, 8, 16, 4, max_sequence_length=32)
    model = ReplacedTokenDetection(encoder, 8, 1, sharing="gdes", preprocessor=MaskedLMPreprocessor(tokenizer))
    before = model.encode(lines[:2])
    difference = model.reader.parts.embeddings.difference.embeddings
    difference.assign(np.random.default_rng(0).normal(size=difference.shape))
    after = model.encode(lines[:2])
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(after, model.drop_heads().encode(lines[:2]), atol=1e-6)


def test_long_lists_show_progress(preset, lines, capsys):
    encoder = Encoder.from_preset(preset)
    encoder.encode(lines[:8], batch_size=2)
    assert "4/4" in capsys.readouterr().out
    encoder.encode(lines[:2], batch_size=2)
    assert capsys.readouterr().out == ""


def test_masks_are_filled(preset):
    model = MaskedLM.from_preset(preset)
    fills = model.fill_mask("Save the [MASK] and close.", top=5)
    assert len(fills) == 5 and all(a.probability >= b.probability for a, b in itertools.pairwise(fills))
    tokenizer = model.preprocessor.tokenizer
    ids = np.array([[2, *tokenizer.tokenize_masked("Save the [MASK] and close."), 3]])
    place = np.flatnonzero(ids[0] == tokenizer.model.mask_id)
    inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1, "mask_positions": place[None]}
    logits = forward(model, inputs)[0, 0].astype("float64")
    shares = np.exp(logits) / np.exp(logits).sum()
    shares[tokenizer.model.unk_id] = 0
    best = np.argmax(np.where(tokenizer.model.is_special, 0, shares))
    assert fills[0].token == tokenizer.shown(best) and np.isclose(fills[0].probability, shares[best])
    every = [fill.token for fill in model.fill_mask("Save the [MASK]", top=1000)]
    assert len(every) == (~tokenizer.model.is_special).sum() - 1 and not {"[PAD]", "[CLS]", "[UNK]"} & {*every}
    two = model.fill_mask(["[MASK] the [MASK]", "a [MASK]"], top=2)
    assert [len(each) for each in two] == [2, 2] and len(two[0][0]) == 2
    with pytest.raises(UserError, match=r"no \[MASK\] in 'nothing'"):
        model.fill_mask("nothing")


@pytest.mark.any_backend
@pytest.mark.usefixtures("without_graphs")
def test_the_first_block_of_the_page_runs(lines):
    page = Path(__file__).parents[2] / "docs/guides/python.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names = {"texts": lines[:6], "labels": [0, 1, 2] * 2}
    exec(block, names)
    assert names["model"].predict(["a new text"], verbose=0).shape == (1, 3)


def test_keras_hub_opens_presets(preset, model, lines, tmp_path):
    made = keras_hub.models.TextClassifier.from_preset(preset, num_classes=2)
    assert isinstance(made, Classifier) and made.predict(lines[:2], verbose=0).shape == (2, 2)
    assert isinstance(keras_hub.models.Backbone.from_preset(preset), Encoder)
    assert isinstance(keras_hub.models.MaskedLM.from_preset(preset), MaskedLM)
    model.save_to_preset(str(tmp_path / "fine_tuned"))
    expected = model.predict(lines[:4], verbose=0)
    for loader in (Classifier, keras_hub.models.TextClassifier):
        again = loader.from_preset(str(tmp_path / "fine_tuned"))
        np.testing.assert_allclose(again.predict(lines[:4], verbose=0), expected, atol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(lines[:4], verbose=0), expected, atol=1e-5)


@pytest.mark.any_backend
@pytest.mark.usefixtures("without_graphs")
def test_a_text_of_weight_0_counts_nothing(preset, model, lines):
    tagger, masked = Tagger(model.encoder, 2), MaskedLM.from_preset(preset)
    tags = (([["save", "it"], ["open"]], [[0, 1], [1]]), ([["save", "it"]], [[0, 1]]))
    as_list, as_array = [1.0, 0.0], np.array([1.0, 0.0])
    for each, weights, (x, y), first in (
        (model, as_list, (lines[:2], [0, 1]), (lines[:1], [0])),
        (model, as_array, (lines[:2], [0, 1]), (lines[:1], [0])),
        (tagger, as_list, *tags),
        (masked, as_array, (lines[:2], None), (lines[:1],)),
    ):
        whole = each.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)["loss"]
        assert np.isclose(whole, each.evaluate(*first, verbose=0, return_dict=True)["loss"], rtol=1e-4)
    history = model.fit(lines[:2], [0, 1], verbose=0, validation_data=(lines[:2], [0, 1], [1.0, 0.0])).history
    assert "val_loss" in history
    with pytest.raises(UserError, match="3 lists in a tuple"):
        model.predict((lines[:1], lines[:1], lines[:1]))


@pytest.mark.usefixtures("without_graphs")
def test_other_models_of_the_encoder_take_its_tokenizer(preset):
    model = Tagger(MaskedLM.from_preset(preset).drop_heads(), num_tags=2)
    model.fit([["save", "file"], ["open"]], [[0, 1], [1]], verbose=0)
    assert model.predict([["save"]], verbose=0).shape == (1, 32, 2)
    assert Tagger(model.encoder, 2, preprocessor=None).preprocessor is None


def pairs_of_tensorflow():
    return batches_of_tensorflow(["a", "b"], np.array([0, 1]))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda model: model.fit([], []), "there are no texts"),
        (lambda model: model.predict([]), "there are no texts"),
        (lambda model: model.fit(None), "x is None: give texts"),
        (lambda model: model.evaluate(), "x is None: give texts"),
        (lambda model: model.train_on_batch(["a"], np.array([0])), "train_on_batch takes inputs of numbers"),
        (lambda model: model.encoder.predict(["a"]), "predict takes inputs of numbers"),
        (lambda model: model.fit(["a", "b"]), "there are no labels: give them as y"),
        (lambda model: model.evaluate(["a", "b"]), "there are no labels"),
        (lambda model: model.fit(["a", "b"], [[0, 1], [1, 0]]), r"labels are of shape \(2, 2\); they are a number"),
        (
            lambda model: model.fit(pairs_of_tensorflow(), validation_split=0.5),
            "give another data set as validation_data",
        ),
        (lambda model: model.encode(["a"], batch_size=0), "batch_size is 0"),
        (lambda model: model.encode(["a"], layer="last"), "layer is 'last'; this encoder has layers 0 to 1"),
    ],
)
def test_mistakes_are_said(call, said, model):
    with pytest.raises(UserError, match=said):
        call(model)
