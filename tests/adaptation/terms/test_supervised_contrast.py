"""Supervised contrast equals a loop over pairs on random input."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.terms import SupervisedContrast
from rembed_keras.adaptation.terms.supervised_contrast import contrast
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, MaskedLM, Regressor, Tagger
from tests.modeling.forward import QUICK, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs


def reference(features, labels, counted, temperature):
    """Equation 2 of Gunel et al., a row and a partner at a time, in float64."""
    z = np.asarray(features, "float64")
    z = z / np.sqrt((z**2).sum(-1, keepdims=True))
    losses = []
    for i in range(len(z)):
        others = [k for k in range(len(z)) if k != i and counted[k]]
        partners = [j for j in others if labels[j] == labels[i]]
        mass = sum(np.exp(z[i] @ z[k] / temperature) for k in others)
        nats = [-np.log(np.exp(z[i] @ z[j] / temperature) / mass) for j in partners]
        losses.append(np.mean(nats) if nats else 0.0)
    return losses


@pytest.mark.parametrize("temperature", [0.1, 0.3, 1.0])
def test_equals_a_loop_over_pairs(temperature):
    rng = np.random.default_rng(4)
    features, labels = rng.normal(size=(17, 5)).astype("float32"), rng.integers(0, 5, 17)
    labels[0] = 9  # which no other has
    weights = (rng.uniform(size=17) > 0.2).astype("float32")
    for counted in (None, weights):
        ours = np.asarray(contrast(features, labels, counted, temperature))
        there = np.ones(17) if counted is None else counted
        np.testing.assert_allclose(ours, reference(features, labels, there, temperature), rtol=1e-4, atol=1e-5)


def test_a_classifier_contrasts_what_its_head_reads():
    x, y = make_inputs([[FIRST], [SECOND], [FIRST[:2]], [SECOND]], 8), np.array([0, 1, 1, 0])
    model = Classifier(make_encoder(), 2, dropout=0.0)
    expected = reference(forward(model.encoder, x)["pooled_output"], y, np.ones(4), 0.3)
    own = np.mean(keras.ops.convert_to_numpy(model.losses_of(y, model(x))))
    model.use_terms([SupervisedContrast(weight=2.0)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), **QUICK)
    logs = model.train_on_batch(x, y, return_dict=True)
    assert np.isclose(logs["supervised_contrast"], np.mean(expected), rtol=1e-4)
    assert np.isclose(logs["loss"], own + 2 * np.mean(expected), rtol=1e-4)


@pytest.mark.any_backend
def test_one_hot_labels_of_a_loss_that_a_user_compiles_are_refused():
    x, y = make_inputs([[FIRST], [SECOND]], 8), np.eye(3)[[0, 2]]
    model = Classifier(make_encoder(), 3)
    model.use_terms([SupervisedContrast()])
    model.compile("sgd", loss=keras.losses.CategoricalCrossentropy(from_logits=True), run_eagerly=True)
    with pytest.raises(UserError, match=r"^supervised_contrast compares labels that are a number .* \(2, 3\): give"):
        model.train_on_batch(x, y)


@pytest.mark.parametrize("make", [Regressor, lambda e: Tagger(e, 3), lambda e: MaskedLM(e, 20)])
def test_models_without_labels_of_rows_are_refused(make):
    with pytest.raises(UserError, match="different labels"):
        make(make_encoder()).use_terms([SupervisedContrast()])


def test_a_temperature_of_0_is_refused():
    with pytest.raises(UserError, match="temperature"):
        SupervisedContrast(temperature=0.0)
