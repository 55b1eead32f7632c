"""R-Drop equals the divergence of two passes that were made by hand."""

import keras
import numpy as np
import pytest

from own_parts.tasks.task import MultiLabelClassifier
from rembed_keras.adaptation.terms import RDrop
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, MaskedLM, Regressor, SpanExtractor, Sum, Tagger
from rembed_keras.modeling.layers.draws import Dropout
from tests.modeling.forward import QUICK
from tests.modeling.objectives.test_pretraining import make_batch
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def divergence(logits, others):
    """The mean of both divergences, by their definition, in float64."""
    p, q = (softmax(np.asarray(each, "float64")) for each in (logits, others))
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.where(p > 0, p * np.log(p / q), 0) + np.where(q > 0, q * np.log(q / p), 0)
    return 0.5 * both.sum(-1)


@pytest.fixture
def alternating(monkeypatch):
    """Dropout that scales by a number which each call's seed decides, whatever the batch."""

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        seed = keras.ops.cast(self.seed_generator.next(), "float32")
        return inputs * keras.ops.cast(1 + 0.2 * keras.ops.sin(keras.ops.sum(seed)), inputs.dtype)

    monkeypatch.setattr(Dropout, "call", call)


HEADS = [
    (lambda encoder: Classifier(encoder, 3, dropout=0.5), np.array([0, 2]), None),
    (lambda encoder: Tagger(encoder, 3, dropout=0.5), np.zeros((2, 8), "int32"), np.eye(2, 8, dtype="float32")),
    (SpanExtractor, np.array([[1, 2], [0, 1]]), None),
]


@pytest.mark.usefixtures("alternating")
@pytest.mark.parametrize(("make", "y", "weights"), HEADS, ids=["classifier", "tagger", "span_extractor"])
def test_it_is_the_divergence_of_two_passes(make, y, weights):
    x = make_inputs([[FIRST], [SECOND]], 8)
    model = make(make_encoder(dropout=0.1))
    outputs = []
    kept = type(model).symmetric_divergence

    def watched(self, *both):
        outputs.append([np.asarray(keras.ops.convert_to_numpy(each)) for each in both])
        return kept(self, *both)

    type(model).symmetric_divergence = watched
    try:
        model.use_terms([RDrop()])
        model.compile(optimizer="sgd", run_eagerly=True, jit_compile=False)
        if keras.config.backend() == "jax":
            pytest.skip("outputs of a traced step cannot be looked at")
        logs = model.train_on_batch(x, y, sample_weight=weights, return_dict=True)
    finally:
        type(model).symmetric_divergence = kept
    expected = divergence(*outputs[0])
    assert np.abs(outputs[0][0] - outputs[0][1]).max() > 1e-3
    assert np.isclose(logs["r_drop"], np.average(expected, weights=weights), rtol=1e-3)


@pytest.mark.usefixtures("alternating")
def test_masked_tokens_count_as_in_the_loss():
    x, y, weights = make_batch()
    model = MaskedLM(make_encoder(dropout=0.1), 20)
    first, second = ({"features": np.random.default_rng(seed).normal(size=(2, 3, 20))} for seed in (0, 1))
    logits = [keras.ops.convert_to_numpy(model.head.output_embedding(each["features"])) for each in (first, second)]
    ours = keras.ops.convert_to_numpy(model.symmetric_divergence(first, second))
    np.testing.assert_allclose(ours, divergence(*logits), rtol=1e-3)
    model.use_terms([RDrop(weight=0.5)])
    model.compile(optimizer="sgd", **QUICK)
    logs = model.train_on_batch(x, y, weights, return_dict=True)
    assert logs["r_drop"] > 0
    own = logs["loss"] - logs["term_losses"]
    assert np.isclose(logs["term_losses"], 0.5 * logs["r_drop"])
    assert np.isclose(model.nats_of(logs), own)


def test_dropout_of_the_second_pass_differs_and_is_that_of_no_step():
    """The model draws the dropout that it would draw without the term."""
    x, y = make_inputs([[FIRST], [SECOND]], 8), np.array([0, 2])
    states = []
    for terms in ([], [RDrop()]):
        model = Classifier(make_encoder(), 3, dropout=0.5)
        model.use_terms(terms)
        model.compile(optimizer=keras.optimizers.SGD(0.0), **QUICK)
        losses = [float(model.train_on_batch(x, y, return_dict=True).get("r_drop", 0)) for _ in range(2)]
        states.append([np.asarray(each) for each in model.variables if "seed" in each.path])
        assert not terms or losses[0] > 0
    assert states[0] and len(states[0]) == len(states[1])
    for one, other in zip(*states, strict=True):
        assert one[1] == other[1]  # draws; their seeds are each model's own


def test_a_model_without_dropout_or_distributions_is_refused():
    with pytest.raises(UserError, match="dropout over 0"):
        MaskedLM(make_encoder(), 20).use_terms([RDrop()])
    with pytest.raises(UserError, match="Regressor predicts none"):
        Regressor(make_encoder(dropout=0.1)).use_terms([RDrop()])
    with pytest.raises(UserError, match="MultiLabelClassifier predicts none"):
        MultiLabelClassifier(make_encoder(dropout=0.1), 3).use_terms([RDrop()])
    with pytest.raises(UserError, match="Sum predicts none"):
        Sum(make_encoder(dropout=0.1), [lambda each: MaskedLM(each, 20)]).use_terms([RDrop()])


def test_the_ledger_counts_a_second_pass():
    model = MaskedLM(make_encoder(dropout=0.1), 20)
    before = ledger(model)
    model.use_terms([RDrop()])
    costs = ledger(model)
    assert costs.flops["total"] == 2 * before.flops["total"]
    assert costs.training_flops["total"] == 2 * before.training_flops["total"]
    assert costs.activation_bytes["total"] == 2 * before.activation_bytes["total"]
    assert (costs.kept, costs.total, costs.paper_total) == (before.kept, before.total, before.paper_total)
    assert costs.optimizer_bytes == before.optimizer_bytes
