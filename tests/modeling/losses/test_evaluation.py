"""Losses that a task model is given, and loss terms: evaluation computes none, and has the logs of one without them."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.terms import Term
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, SpanExtractor, Tagger
from tests.modeling.forward import EAGER, QUICK, forward
from tests.modeling.losses.test_terms import JIT, both, masked
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

INPUTS = make_inputs([[FIRST], [SECOND]], 8)
ROWS = ("token_ids", "segment_ids", "padding_mask")


class One(Term):
    """1 for each row, whatever the model gives."""

    def loss(self, model, batch, outputs):
        return keras.ops.ones_like(batch[0]["token_ids"][:, 0], "float32")


def classifier(encoder):
    return Classifier(encoder, 3, dropout=0.0)


@pytest.mark.parametrize(
    ("make", "compiling"),
    [pytest.param(both, EAGER, marks=pytest.mark.any_backend), (masked, JIT), (classifier, JIT)],
    ids=["eager-both", "graph-masked", "graph-classifier"],
)
def test_evaluation_stays_as_it_is(make, compiling):
    x, y, weights = make_batch()
    model = make(make_encoder(num_layers=1))
    x, y, weights = (x, y, weights) if make is not classifier else ({key: x[key] for key in ROWS}, y[:, 0] % 3, None)
    model.compile("sgd", **compiling)
    plain = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    model.use_terms([One({0: 0.5, 9: 1.0}, "one")])
    model.compile(keras.optimizers.SGD(0.0), **compiling)
    logs = model.fit(x, y, sample_weight=weights, validation_data=(x, y, weights), verbose=0).history
    assert logs["one"] == [1.0] and logs["one/weight"] == [0.5]
    evaluated = {name.removeprefix("val_"): logs[name][0] for name in logs if name.startswith("val_")}
    assert evaluated == pytest.approx(plain, rel=1e-5)
    again = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    assert again == pytest.approx(plain, rel=1e-5)
    read = {name: float(value) for name, value in model.get_metrics_result().items()}
    assert read == pytest.approx(plain, rel=1e-5)


def test_a_loss_that_a_task_model_cannot_learn_by_is_refused_or_warned_of():
    model = classifier(make_encoder(num_layers=1))
    with pytest.raises(UserError, match=r"^Classifier brings its own loss: give loss_weights beside a loss of yours"):
        model.compile("adam", loss_weights=[2.0])
    model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), loss_weights=[2.0])
    for loss in ("sparse_categorical_crossentropy", keras.losses.CategoricalCrossentropy()):
        with pytest.warns(UserWarning, match="Classifier gives logits, which this loss takes for probabilities"):
            model.compile("adam", loss=loss)


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [SpanExtractor, lambda encoder: Tagger(encoder, 3)], ids=["spans", "tags"])
def test_weights_of_rows_are_those_of_all_predictions_in_a_loss_that_is_given(make):
    model = make(make_encoder(num_layers=1))
    model.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=[])
    logits = np.random.default_rng(0).normal(size=(2, 2, 3)).astype("float32")  # as many rows as predictions in each
    labels, weights = np.array([[0, 2], [1, 0]]), np.array([1.0, 3.0], "float32")
    of_each = np.array([[1.0, 1.0], [3.0, 3.0]], "float32")
    losses = [model.compute_loss(y=labels, y_pred=logits, sample_weight=given) for given in (weights, of_each)]
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)


@pytest.mark.any_backend
@pytest.mark.usefixtures("without_graphs")
def test_every_weighted_prediction_counts_the_same_in_batches_of_any_size():
    x = {key: column for key, column in make_batch()[0].items() if key in ROWS}
    y, weights = np.arange(16).reshape(2, 8) % 3, np.zeros((2, 8), "float32")
    weights[0, 1], weights[1, 1:4] = 1.0, 0.5
    model = Tagger(make_encoder(num_layers=1), 3, dropout=0.0)
    model.head.kernel.assign(np.random.default_rng(0).normal(size=model.head.kernel.shape))
    logits = forward(model, x).astype("float64")
    losses = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, y[..., None], axis=-1)[..., 0]
    given = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for loss, wanted in ((None, np.average(losses, weights=weights)), (given, (losses * weights).mean())):
        model.compile("sgd", loss=loss)
        for size in (1, 2):
            logs = model.evaluate(x, y, size, sample_weight=weights, verbose=0, return_dict=True)
            assert np.isclose(logs["loss"], wanted, rtol=1e-5)


class Second(Term):
    """The second id of each row, whatever the model gives."""

    def loss(self, model, batch, outputs):
        return keras.ops.cast(batch[0]["token_ids"][:, 1], "float32")


@pytest.mark.any_backend
def test_a_row_whose_tags_weigh_nothing_counts_in_no_term():
    x = {key: column for key, column in make_batch()[0].items() if key in ROWS}
    weights = np.zeros((2, 8), "float32")
    weights[0, 1:3] = 1.0
    model = Tagger(make_encoder(num_layers=1), 3, dropout=0.0)
    model.use_terms([Second(1.0, "second")])
    model.compile(keras.optimizers.SGD(0.0), **QUICK)
    logs = model.train_on_batch(x, np.zeros((2, 8), int), weights, return_dict=True)
    assert logs["second"] == x["token_ids"][0, 1] != x["token_ids"][1, 1]


@pytest.mark.any_backend
@pytest.mark.parametrize("classes", [1, 3])
def test_labels_that_a_loss_takes_by_themselves_have_their_own_accuracy(classes):
    """Keras's would look for the one label of a row, or take a logit of 0.5 for even odds."""
    model = Classifier(make_encoder(num_layers=1), classes, dropout=0)
    model.head.bias.assign(np.full(classes, 0.3))
    labels = (forward(model, INPUTS) > 0).astype("float32")
    assert labels.all()
    labels[0, 0] = classes == 1
    model.compile("sgd", loss=keras.losses.BinaryCrossentropy(from_logits=True), **QUICK)
    model.compile_from_config(model.get_compile_config())
    _, accuracy = model.test_on_batch(INPUTS, labels)
    assert accuracy == pytest.approx(labels.mean())
    if classes == 1:
        model.train_on_batch(INPUTS, labels, class_weight={0: 1.0, 1: 2.0})
    else:
        with pytest.raises(UserError, match="has no class for each row"):
            model.train_on_batch(INPUTS, labels, class_weight={0: 1.0, 1: 2.0})
