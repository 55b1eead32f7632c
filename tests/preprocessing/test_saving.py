"""Models that take texts come back from Keras's files with all that they read texts by, and are gone when unused."""

import copy
import gc
import weakref

import h5py
import keras
import numpy as np
import pytest

from rembed_keras import Classifier, Encoder, MaskedLM, MaskedLMPreprocessor, TextClassifierPreprocessor, Tokenizer
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import merge, tokenizer_of, write
from rembed_keras.modeling import Sum
from rembed_keras.modeling.attention import Nystrom
from rembed_keras.modeling.blocks import PreNorm
from tests.modeling.forward import forward

pytestmark = [pytest.mark.any_backend, pytest.mark.usefixtures("without_graphs")]


def make_encoder(longest=32, num_layers=1, **changes):
    return Encoder(400, num_layers, 2, 8, 16, 4, max_sequence_length=longest, **changes)


def come_back(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


@pytest.mark.parametrize("encoders", ["none", "the model's", "taken away", "its own"])
def test_a_preprocessor_that_was_set_comes_back(encoders, tokenizer, lines, tmp_path):
    model = Classifier(make_encoder(), num_classes=2)
    if encoders == "its own":
        model.encoder.preprocessor = TextClassifierPreprocessor(Tokenizer.train(lines, 300))
    model.preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    if encoders == "taken away":
        model.encoder.preprocessor = None
    elif encoders == "the model's":
        model.encoder.preprocessor = model.preprocessor
    again = come_back(model, tmp_path)
    assert again.preprocessor.sequence_length == 16
    np.testing.assert_allclose(again.predict(lines[:3], verbose=0), model.predict(lines[:3], verbose=0), atol=1e-5)
    np.testing.assert_allclose(again.encoder.encode(lines[:3]), model.encoder.encode(lines[:3]), atol=1e-5)


def test_an_encoder_comes_back_with_its_tokenizer(tokenizer, lines, tmp_path):
    encoder = make_encoder()
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    for again in (come_back(encoder, tmp_path), copy.deepcopy(encoder)):
        assert again.preprocessor.sequence_length == 16
        np.testing.assert_allclose(again.encode(lines[:3]), encoder.encode(lines[:3]), atol=1e-5)
    assert "preprocessor" not in encoder.get_config()
    model = come_back(Classifier(encoder, 2, preprocessor=None), tmp_path)
    assert model.preprocessor is None
    np.testing.assert_allclose(model.encoder.encode(lines[:3]), encoder.encode(lines[:3]), atol=1e-5)


def test_a_preset_replaces_the_one_that_its_folder_had(tokenizer, tmp_path):
    MaskedLM(make_encoder(), 8, preprocessor=MaskedLMPreprocessor(tokenizer)).save_to_preset(str(tmp_path))
    MaskedLM.from_preset(str(tmp_path)).save_to_preset(str(tmp_path))  # whose tokenizer's file is replaced too
    assert len(MaskedLM.from_preset(str(tmp_path)).fill_mask("open the [MASK]", top=3)) == 3
    encoder = make_encoder(num_layers=3)
    for model, layers in ((MaskedLM(encoder, 8, kept_layers=1), 1), (encoder, 3)):
        model.save_to_preset(str(tmp_path))
        again = Encoder.from_preset(str(tmp_path))
        assert again.preprocessor is None and again.num_layers == layers
    with pytest.raises(UserError, match="num_classes"):
        Classifier.from_preset(str(tmp_path))


def test_a_preset_in_the_place_of_a_converted_one_has_its_own_tokenizer_alone(tokenizer, lines, tmp_path):
    write(make_encoder(), str(tmp_path / "preset"), "preset", tokenizer.model.copy_to(tmp_path))
    assert tokenizer_of(tmp_path / "preset") == tmp_path / "preset/tokenizer.model"
    other, encoder = Tokenizer.train(lines, 300), make_encoder()
    encoder.preprocessor = TextClassifierPreprocessor(other)
    encoder.save_to_preset(tmp_path / "preset")
    assert open_tokenizer(tokenizer_of(tmp_path / "preset")).segmentation == other.model.segmentation
    encoder.preprocessor = None
    encoder.save_to_preset(tmp_path / "preset")
    assert tokenizer_of(tmp_path / "preset") is None and Encoder.from_preset(tmp_path / "preset").preprocessor is None


def test_a_preset_in_a_path_is_the_one_in_that_folder(tokenizer, lines, tmp_path):
    encoder = make_encoder()
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    model, folder = Classifier(encoder, num_classes=2), tmp_path / "preset"
    model.save_to_preset(folder)
    again = Classifier.from_preset(folder)
    np.testing.assert_allclose(forward(again, again.preprocessor(lines)), forward(model, again.preprocessor(lines)))
    kinds = (Encoder, Tokenizer, TextClassifierPreprocessor)
    assert [type(kind.from_preset(folder)) for kind in kinds] == [*kinds]


def test_texts_of_a_pipeline_in_columns_are_no_rows_of_single_texts(tokenizer):
    if keras.config.backend() != "tensorflow":
        pytest.skip("pipelines of tf.data are TensorFlow's")
    import tensorflow as tf

    model = Classifier(make_encoder(), 2, preprocessor=TextClassifierPreprocessor(tokenizer, 16))
    pairs = tf.data.Dataset.from_tensor_slices(np.array([["a", "b"], ["c", "d"]])).batch(2)
    with pytest.raises(UserError, match=r"texts are of shape \(None, 2\): a row is a text, or a pair a tuple of two"):
        model.predict(pairs)


def test_a_text_alone_has_the_vector_that_it_has_beside_others(tokenizer, lines):
    encoder = make_encoder(longest=64, attention=Nystrom(landmarks=8), num_layers=2)
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer)
    text = " ".join(lines[:2])
    long = " ".join(lines[:9])
    np.testing.assert_allclose(encoder.encode([text])[0], encoder.encode([text, long])[0], atol=1e-6)


def test_a_merged_encoder_has_the_tokenizer_of_the_first(tokenizer, lines):
    encoder, other = make_encoder(), make_encoder()
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    merged, _ = merge([encoder, other], "slerp", share=0.0)
    np.testing.assert_allclose(merged.encode(lines[:3]), encoder.encode(lines[:3]), atol=1e-5)
    merged, _ = merge([encoder, other], "greedy", score=lambda each: each.similarity(lines[0], lines[1]))
    assert merged.preprocessor is encoder.preprocessor and other.preprocessor is None


def test_a_sum_comes_back_with_its_tokenizer(tokenizer, lines, tmp_path):
    encoder = make_encoder()
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    model = Sum(encoder, [lambda encoder: MaskedLM(encoder, 12)])
    again = come_back(model, tmp_path)
    np.testing.assert_allclose(again.encode(lines[:3]), model.encode(lines[:3]), atol=1e-5)


def test_two_encoders_share_a_preprocessor_and_not_its_length(tokenizer, lines):
    preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=32, mask_rate=0.3)
    long, short = (MaskedLM(make_encoder(longest), 8, preprocessor=preprocessor) for longest in (32, 16))
    single = Classifier(make_encoder(num_segments=1), 2, preprocessor=TextClassifierPreprocessor(tokenizer, 32))
    assert (long.preprocessor.sequence_length, short.preprocessor.sequence_length) == (32, 16)
    assert short.preprocessor.mask_rate == 0.3 and short.preprocessor.tokenizer is tokenizer
    assert (preprocessor.sequence_length, preprocessor.num_segments) == (32, 2)
    assert single.preprocessor.num_segments == single.encoder.preprocessor.num_segments == 1
    assert long.preprocessor(lines[:2])[0]["token_ids"].shape == (2, 32)


def test_an_encoder_without_a_table_of_positions_reads_any_length(tokenizer, lines):
    rotary = Encoder(400, 1, 2, 8, 16, 4, max_sequence_length=16, block=PreNorm)
    text = " ".join(lines[:8])
    model = Classifier(rotary, 2, preprocessor=TextClassifierPreprocessor(tokenizer, sequence_length=64))
    assert model.preprocessor.sequence_length == 64
    inputs = model.preprocessor([text])
    assert model.predict(inputs, verbose=0).shape == (1, 2) and inputs["padding_mask"].sum() == 64
    states = forward(rotary, inputs)["sequence_output"]
    np.testing.assert_allclose(model.encode(text), states.mean(axis=1), atol=1e-5)
    masked = MaskedLM(rotary, 8, preprocessor=MaskedLMPreprocessor(tokenizer))
    assert masked.preprocessor.sequence_length == 16  # as nobody said another
    assert len(masked.fill_mask(f"{lines[0]} {lines[1]} [MASK]", top=2)) == 2


def test_an_encoder_that_gave_vectors_is_saved_as_one_that_gave_none(tokenizer, lines, tmp_path):
    encoder, groups = make_encoder(), []
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    for path in (tmp_path / "before.weights.h5", tmp_path / "after.weights.h5"):
        encoder.save_weights(path)
        with h5py.File(path) as file:
            groups.append([])
            file.visit(groups[-1].append)
        encoder.encode(lines[:2])
    assert groups[0] == groups[1]
    encoder.load_weights(tmp_path / "before.weights.h5")


@pytest.mark.usefixtures("without_old_garbage")
def test_an_encoder_that_gave_vectors_is_gone_when_nobody_has_it(tokenizer, lines):
    encoder = make_encoder()
    encoder.preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    model = MaskedLM(encoder, 12)
    model.encode(lines[:2])
    left = weakref.ref(encoder)
    del encoder, model
    gc.collect()
    assert left() is None
