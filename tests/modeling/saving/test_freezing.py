"""Layers that were frozen by hand are frozen when their model comes back, and training goes on as it would have."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation import Biases, LayerwiseDecay, Lora
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, MaskedLM
from rembed_keras.modeling.saving.changes import changes_of, frozen_in
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST], [SECOND]], 7)
LABELS = np.array([0, 1])


def trained_names(model):
    return sorted(weight.path for weight in model.trainable_weights)


def frozen_classifier(**changes):
    """The table, the first block and the second's attention do not move."""
    encoder = make_encoder(**changes)
    for layer in (encoder.token_embedding, encoder.parts.blocks[0], encoder.parts.blocks[1].attention):
        layer.trainable = False
    return Classifier(encoder, 2, dropout=0)


@pytest.mark.any_backend
@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("changes", [{}, {"layer_sharing": "attention", "num_layers": 3}, {"dtype": "mixed_bfloat16"}])
def test_training_goes_on_with_what_was_frozen(tmp_path, changes):
    model = frozen_classifier(**changes)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.train_on_batch(INPUTS, LABELS)
    model.save(tmp_path / "model.keras")
    back = keras.models.load_model(tmp_path / "model.keras")
    assert trained_names(back) == trained_names(model)
    assert len(back.optimizer.variables) == len(model.optimizer.variables)
    for each in (model, back):
        each.train_on_batch(INPUTS, LABELS)
    for here, there in zip(model.weights, back.weights, strict=True):
        np.testing.assert_array_equal(here.numpy(), there.numpy(), err_msg=here.path)


@pytest.mark.any_backend
def test_an_encoder_says_what_is_frozen_and_is_read_again_from_a_preset(tmp_path):
    encoder = frozen_classifier().encoder
    said = {"frozen": ["block_0", "block_1/attention", "embeddings/token"]}
    assert frozen_in(encoder) == said
    assert changes_of(encoder) == {}  # its weights fit any other of these sizes
    encoder.save_to_preset(str(tmp_path))
    back = Encoder.from_preset(str(tmp_path))
    assert frozen_in(back) == said
    assert trained_names(back) == trained_names(encoder)


@pytest.mark.any_backend
def test_what_arguments_freeze_is_said_once():
    assert frozen_in(make_encoder(freeze_input_embedding=True)) == {}
    encoder = make_encoder()
    encoder.trainable = False
    model = Classifier(encoder, 2)
    assert frozen_in(encoder) == {}
    assert "frozen" not in model.get_config()
    assert Classifier.from_config(model.get_config()).encoder.trainable is False


@pytest.mark.any_backend
def test_a_head_is_frozen_as_it_was():
    model = MaskedLM(make_encoder(), output_embedding_dim=6)
    model.output.trainable = False
    assert trained_names(MaskedLM.from_config(model.get_config())) == trained_names(model)


@pytest.mark.any_backend
@pytest.mark.parametrize("freezes_before", [True, False])
@pytest.mark.parametrize("methods", [[Lora(2)], [Biases()], [LayerwiseDecay(0.5)]])
def test_what_methods_train_and_what_was_frozen_beside_them_come_back(methods, freezes_before):
    model = Classifier(make_encoder(), 2)
    blocks = model.encoder.parts.blocks
    if freezes_before:
        blocks[0].trainable = False
    model.adapt(methods)
    if not freezes_before:
        blocks[0].attention.projections["query"].trainable = blocks[1].trainable = model.head.trainable = False
    assert trained_names(Classifier.from_config(model.get_config())) == trained_names(model)


@pytest.mark.any_backend
def test_what_was_thawed_in_a_frozen_block_is_trained_when_it_comes_back():
    encoder = make_encoder()
    encoder.parts.blocks[0].trainable = False
    encoder.parts.blocks[0].feed_forward.trainable = True
    assert trained_names(Encoder.from_config(encoder.get_config())) == trained_names(encoder)


@pytest.mark.any_backend
def test_what_was_thawed_in_a_frozen_encoder_is_trained_when_it_is_cut_and_when_it_comes_back(tmp_path):
    """As where all is frozen but the last block: Keras trains that in a model of the encoder."""
    model = Classifier(make_encoder(), 2)
    model.encoder.trainable = False
    model.encoder.parts.blocks[-1].trainable = True
    trained = trained_names(model)
    assert {name.split("/")[0] for name in trained} == {"block_1", "head"}
    model.save_to_preset(str(tmp_path))
    for back in (Classifier.from_config(model.get_config()), Classifier.from_preset(str(tmp_path))):
        assert trained_names(back) == trained
    model.encoder.with_layers(1, "top")
    assert trained_names(model) == trained


@pytest.mark.any_backend
def test_what_keras_lora_froze_is_not_frozen_where_there_is_no_lora():
    plain, encoder = make_encoder(), make_encoder()
    encoder.enable_lora(2)
    assert "frozen" not in encoder.get_config()
    assert trained_names(Encoder.from_config(encoder.get_config())) == trained_names(plain)


@pytest.mark.any_backend
def test_a_frozen_layer_that_is_quantized_too_comes_back_as_both(tmp_path):
    encoder = make_encoder()
    encoder.parts.projection.quantize("int8")
    encoder.parts.projection.trainable = encoder.parts.blocks[1].trainable = False
    encoder.save(tmp_path / "encoder.keras")
    back = keras.models.load_model(tmp_path / "encoder.keras")
    assert back.parts.projection.quantization_mode == "int8"
    assert frozen_in(back) == frozen_in(encoder) == {"frozen": ["block_1", "projection"]}


@pytest.mark.any_backend
def test_a_layer_that_is_not_there_is_not_frozen():
    with pytest.raises(UserError, match="'block_7' is frozen: this model has no such layer"):
        Encoder.from_config(make_encoder().get_config() | {"frozen": ["block_7"]})


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "make", [lambda encoder: Classifier(encoder, 3), lambda encoder: MaskedLM(encoder, 6, "coupled")]
)
@pytest.mark.parametrize("of_encoder", [True, False])
def test_a_frozen_table_stays_frozen_when_all_else_is_thawed(make, of_encoder):
    model = make(make_encoder(num_layers=1, freeze_input_embedding=True))
    trained = [weight.path for weight in model.trainable_variables]
    part = model.encoder if of_encoder else model
    for value in (False, True):
        part.trainable = value
        assert part.trainable == value
    assert [weight.path for weight in model.trainable_variables] == trained
    assert not model.encoder.token_embedding.trainable_variables
    model.encoder.trainable = True  # again
    assert not model.encoder.token_embedding.trainable_variables


@pytest.mark.any_backend
def test_a_table_that_is_not_frozen_is_thawed():
    encoder = make_encoder(num_layers=1)
    count = len(encoder.trainable_variables)
    encoder.trainable = False
    assert not encoder.trainable_variables
    encoder.trainable = True
    assert len(encoder.trainable_variables) == count
