"""Labels that a task model cannot learn are refused in a sentence, before a step."""

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, LateMaskedLM, MaskedLM, Regressor, SpanExtractor, Tagger
from rembed_keras.modeling.losses.softmax import cross_entropies
from tests.modeling.forward import QUICK, forward
from tests.modeling.heads.test_task_model import INPUTS
from tests.modeling.test_encoder import make_encoder

TAGS = np.zeros((4, 8), "int32")


@pytest.mark.any_backend
def test_labels_of_another_shape_than_predictions_are_refused():
    tagger, spans = Tagger(make_encoder(num_layers=1), 3), SpanExtractor(make_encoder(num_layers=1))
    for labels in (np.zeros((4, 8, 3)), TAGS[:, :5], TAGS[:, 0], TAGS[..., None, None]):
        with pytest.raises(UserError, match=r"^labels are of shape .*; they are a number for each token, padding too"):
            tagger.fit(INPUTS, labels)
    for labels in (TAGS[:, 0], TAGS[:, :3]):
        with pytest.raises(UserError, match=r"^labels are of shape .*; they are the positions of two tokens for each"):
            spans.fit(INPUTS, labels)
    for labels in (TAGS, TAGS[..., None]):
        tagger.check_labels(INPUTS, labels, None)
    spans.check_labels({"token_ids": INPUTS["token_ids"]}, TAGS[:, :2], None)  # as of a data set


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [MaskedLM, LateMaskedLM])
def test_labels_of_a_pretraining_model_are_those_of_its_masked_positions(make):
    model, x = make(make_encoder(num_layers=1), 20), INPUTS | {"mask_positions": np.ones((4, 2), "int32")}
    for labels in (TAGS, TAGS[:, :2, None]):
        with pytest.raises(UserError, match=r"they are the ids of mask_positions, \(4, 2\)$"):
            model.fit(x, labels)
    for place in (-1, 8):
        with pytest.raises(UserError, match=f"^mask position {place} is no token's: rows have 8$"):
            model.fit(x | {"mask_positions": np.full((4, 2), place)}, TAGS[:, :2])


@pytest.mark.any_backend
def test_one_hot_tags_that_weigh_count_as_numbers_do():
    model, hot = Tagger(make_encoder(num_layers=1), 3), np.eye(3, dtype="float32")[TAGS]
    weights = np.random.default_rng(0).uniform(size=TAGS.shape).astype("float32")
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss=loss, weighted_metrics=["categorical_accuracy"], **QUICK)
    hits = forward(model, INPUTS).argmax(-1) == TAGS
    found = model.test_on_batch(INPUTS, hot, weights, return_dict=True)
    assert found["categorical_accuracy"] == pytest.approx((hits * weights).sum() / weights.sum(), rel=1e-5)


@pytest.mark.any_backend
def test_weights_that_are_not_finite_are_refused():
    model, weights = Classifier(make_encoder(num_layers=1), 3), np.array([1, np.nan, 1, 1])
    with pytest.raises(UserError, match=r"^sample_weight has NaN, from which"):
        model.fit(INPUTS, TAGS[:, 0], sample_weight=weights)


@pytest.mark.any_backend
@pytest.mark.parametrize("names", [["a", "b", "a", "b"], np.array([b"a", b"b", b"a", b"b"], object)])
def test_names_in_place_of_labels_are_refused(names):
    with pytest.raises(UserError, match=r"^there is no label b?'a': num_classes is 2, and labels are numbers from 0"):
        Classifier(make_encoder(num_layers=1), 2).fit(INPUTS, names)


@pytest.mark.any_backend
def test_weights_in_a_column_are_those_of_rows():
    model, labels = Classifier(make_encoder(num_layers=1), 2), np.array([0, 1, -100, 0])
    model.check_labels(INPUTS, labels, np.array([[1.0], [1.0], [0.0], [1.0]]))
    with pytest.raises(UserError, match="no label -100"):
        model.check_labels(INPUTS, labels, np.array([[0.0], [0.0], [1.0], [0.0]]))


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [lambda encoder: Tagger(encoder, 3), Regressor])
def test_weights_that_fit_no_labels_are_refused_in_a_sentence(make):
    model = make(make_encoder(num_layers=1))
    labels, weights = TAGS if make is not Regressor else TAGS[:, 0], np.ones((4, 5))
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(UserError, match=r"^weights of shape \(4, 5\) are none of losses of shape \(4,"):
            train(INPUTS, labels, sample_weight=weights)


@pytest.mark.any_backend
def test_answers_in_padding_are_refused():
    model = SpanExtractor(make_encoder(num_layers=1))
    answers, weights = np.array([[1, 2], [1, 5], [6, 6], [0, 0]]), np.array([1.0, 0.0, 1.0, 1.0])
    model.check_labels(INPUTS, answers, weights)  # of rows of 7, 4, 7 and 4 tokens
    with pytest.raises(
        UserError, match=r"^an answer is where its row has padding: give it the position 0, or the sample"
    ):
        model.fit(INPUTS, answers)


@pytest.mark.parametrize("wrong", [3, -1])
def test_a_label_of_a_data_set_that_has_no_output_costs_what_no_one_overlooks(wrong):
    logits = np.log(np.array([[1, 2, 5], [1, 1, 2]], "float32"))
    losses = keras.ops.convert_to_numpy(cross_entropies(np.array([[1.0], [2.0]]), logits))
    np.testing.assert_allclose(losses, np.log([4, 2]), rtol=1e-6)
    if keras.backend.backend() == "tensorflow":
        with pytest.raises(Exception, match="label value"):
            cross_entropies(np.array([1, wrong]), logits)
    else:
        losses = keras.ops.convert_to_numpy(cross_entropies(np.array([1, wrong]), logits))
        assert np.isnan(losses).tolist() == [False, True]
