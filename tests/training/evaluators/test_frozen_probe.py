"""The probe of a frozen encoder while it is pre-trained, against the stage that probes all layers."""

from types import SimpleNamespace

import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks import Classification, Tagging
from rembed_keras.tasks.kinds.examples import Labelled, Splits, Tagged
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.evaluators import FrozenProbe
from rembed_keras.training.evaluators.evaluator import EvaluationData
from rembed_keras.training.probing.labelled import LabelledProbing
from tests.training.evaluators.test_held_out_loss import compiled
from tests.training.pretraining import make_mixture

WORDS = ("save the file", "open the table now", "a long name of all the new files that are in the window")


def examples(count, shift=0):
    return [Labelled(str(i), f"{WORDS[i % 3]} {i + shift}", None, "abc"[i % 3]) for i in range(count)]


def make_task(test, train=24):
    return Classification("words", Splits(examples(train), {}, test))


@pytest.fixture(scope="module")
def data(held_out_corpus):
    return EvaluationData(make_mixture(held_out_corpus), place("one_device", 4))


def test_it_is_the_last_layer_of_the_stage_that_probes_all(data, held_out_corpus):
    task, model = make_task({"en": examples(9, 40), "de": examples(7, 60), "fr": examples(300, 80)}), compiled()
    found = FrozenProbe(task, 12).evaluate(model, data)
    initial = SimpleNamespace(tokenizer=held_out_corpus.tokenizer, num_segments=2)
    rows, _ = LabelledProbing(task, initial, 12, 64, 0).score("pretrained", model.encoder, (1.0,))
    last = f"probe/words/layer{model.encoder.num_layers}"
    expected = {f"probe/words/{row.language}": row.value for row in rows if row.task == last}
    assert len(expected) == 3
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert found["probe/words"] == pytest.approx((expected["probe/words/de"] + expected["probe/words/fr"]) / 2)
    assert found["baseline/probe/words/majority"] == pytest.approx((3 / 7 + 100 / 300) / 2)
    assert {"baseline/probe/words/tfidf", "baseline/probe/words/majority"} == {
        name for name in found if name.startswith("base")
    }


def test_it_follows_the_encoder_and_leaves_it_as_it_was(data):
    task, model = make_task({"en": examples(30, 40)}), compiled()
    probe = FrozenProbe(task, 12)
    before = [np.array(weight) for weight in model.get_weights()]
    first = probe.evaluate(model, data)
    assert all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
    assert first == probe.evaluate(model, data) and first["probe/words"] == first["probe/words/en"] > 1 / 3
    norm = model.encoder.parts.blocks[-1].feed_forward.norm
    for weight in norm.weights:
        weight.assign(np.zeros(weight.shape))
    assert probe.evaluate(model, data)["probe/words"] == pytest.approx(1 / 3)  # all texts are alike
    norm.weights[0].assign(np.full(norm.weights[0].shape, np.inf))
    with pytest.raises(UserError, match="the encoder's outputs for words are not finite"):
        probe.evaluate(model, data)


def test_what_it_cannot_do_is_refused(data):
    words = [Tagged("0", ("a", "b"), ("X", "O"))]
    with pytest.raises(UserError, match=r"FrozenProbe takes a Classification, and .*Tagging"):
        FrozenProbe(Tagging("tags", Splits(words, {}, {"en": words})))
    task = make_task({"en": examples(3)})
    with pytest.raises(UserError, match="inverse_strength of FrozenProbe is 0"):
        FrozenProbe(task, inverse_strength=0)
    with pytest.raises(UserError, match="sequence_length is 4000; the model's max_sequence_length is 16"):
        FrozenProbe(task, 4000).evaluate(compiled(), data)
