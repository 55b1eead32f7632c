"""Labels that a task model cannot learn are refused in a sentence, before a step."""

import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Regressor, SpanExtractor, Tagger
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
