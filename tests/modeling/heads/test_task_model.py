import keras
import numpy as np
import pytest

from rembed_keras.modeling import Classifier, Regressor, SpanExtractor, Tagger
from tests.forward import EAGER, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST], [SECOND], [FIRST], [SECOND]], 8)


@pytest.mark.parametrize(
    ("make", "shape", "target"),
    [
        (lambda encoder: Classifier(encoder, 3), (4, 3), np.array([0, 2, 0, 2])),
        (lambda encoder: Tagger(encoder, 5), (4, 8, 5), np.tile(np.arange(16).reshape(2, 8) % 5, (2, 1))),
        (SpanExtractor, (4, 2, 8), np.array([[1, 2], [1, 1], [1, 2], [1, 1]])),
        (Regressor, (4,), np.array([0.5, -1.0, 0.5, -1.0])),
    ],
)
def test_task_models_learn_and_come_back(make, shape, target, tmp_path):
    model = make(make_encoder())
    assert forward(model, INPUTS).shape == shape
    model.compile(keras.optimizers.Adam(1e-2))
    losses = model.fit(INPUTS, target, batch_size=4, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(forward(again, INPUTS), forward(model, INPUTS))


def test_spans_never_lie_in_padding():
    logits = forward(SpanExtractor(make_encoder()), INPUTS)
    padding = INPUTS["padding_mask"] == 0
    assert (logits.transpose(0, 2, 1)[padding] < -1e8).all()
    assert (logits.transpose(0, 2, 1)[~padding] > -1e3).all()


def test_padded_tags_count_nothing():
    model = Tagger(make_encoder(), 5)
    model.compile("sgd", **EAGER)
    tags = np.ones((4, 8), int)
    weight = (INPUTS["padding_mask"] > 0).astype("float32")
    other = np.where(weight > 0, tags, 4)
    losses = [model.test_on_batch(INPUTS, y, sample_weight=weight) for y in (tags, other)]
    assert np.isclose(losses[0], losses[1])


def test_number_of_outputs_is_checked():
    with pytest.raises(ValueError, match="classifier: the number of outputs is 0"):
        Classifier(make_encoder(), 0)
