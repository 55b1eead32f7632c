"""The loss on held-out text, against a definition of its own."""

import keras
import numpy as np
import pytest

from rembed_keras.modeling import LateMaskedLM, MaskedLM
from rembed_keras.modeling.layers import draws
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.evaluators import HeldOutLoss
from rembed_keras.training.evaluators.evaluator import EvaluationData
from rembed_keras.training.loop.evaluation import unchanged
from tests.training.loop.test_evaluation import make_encoder, make_mixture, make_sum
from tests.training.pretraining import make_head


def make_late(encoder):
    return LateMaskedLM(encoder, 8, decoder_layers=1)


def compiled(make=make_head):
    keras.utils.set_random_seed(4)
    model = make(make_encoder())
    model.track_groups(["de", "en", "ja"])
    model.compile(jit_compile=False)
    return model


def test_held_out_loss_is_the_mean_over_masked_tokens(held_out_corpus):
    """Against logits and float64; of 15 rows in batches of 4 the last one is padded."""
    model, mixture = compiled(), make_mixture(held_out_corpus)
    data = EvaluationData(mixture, place("one_device", 4))
    x, y, weights = mixture.held_out(rows=14)
    assert len(y) == 15
    found = HeldOutLoss(rows=14).evaluate(model, data)
    logits = np.asarray(model.predict({name: x[name] for name in model.input}, verbose=0), np.float64)  # [N, P, V]
    shares = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(shares, y[..., None], axis=-1)[..., 0]
    hits = logits.argmax(axis=-1) == y
    expected = {"loss": np.average(losses, weights=weights), "accuracy": np.average(hits, weights=weights)}
    for i, language in enumerate(mixture.languages):
        own = weights * (x["language_ids"] == i)[:, None]
        expected[f"loss/{language}"] = np.average(losses, weights=own)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("without_graphs")
def test_as_many_rows_are_taken_at_once_as_training_computes(held_out_corpus, monkeypatch):
    mixture, found, sizes = make_mixture(held_out_corpus), [], []
    for parts in (1, 4):  # micro-batches
        model = compiled(lambda encoder, parts=parts: MaskedLM(encoder, 8, micro_batches=parts))
        step = model.test_step
        monkeypatch.setattr(model, "test_step", lambda data, step=step: sizes.append(len(data[1])) or step(data))
        found.append(HeldOutLoss(rows=5).evaluate(model, EvaluationData(mixture, place("one_device", 4))))
    assert sizes == [4] * 2 + [1] * 7
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("make", [make_late, make_sum])
def test_padding_the_last_batch_counts_nothing_and_draws_are_the_same_each_time(make, held_out_corpus, monkeypatch):
    model, mixture = compiled(make), make_mixture(held_out_corpus)
    assert len(mixture.held_out(rows=5)[1]) == 7
    found = []
    for size in (4, 4, 32):  # 4 leaves three rows, 32 is one batch, and mostly padding
        if size == 32:  # other batches draw other numbers
            monkeypatch.setattr(draws, "uniform", lambda shape, **_: keras.ops.full(shape, 0.5))
            model = compiled(make)
        monkeypatch.setattr(mixture, "batch_size", size)
        data = EvaluationData(mixture, place("one_device", 4))
        with unchanged(model):
            found.append(HeldOutLoss(rows=5).evaluate(model, data))
    assert found[0] == found[1]
    with unchanged(model):
        monkeypatch.setattr(mixture, "batch_size", 1)  # no padding
        whole = HeldOutLoss(rows=5).evaluate(model, EvaluationData(mixture, place("one_device", 1)))
    assert found[2] == pytest.approx(whole, rel=1e-5)
