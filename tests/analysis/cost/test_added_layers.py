"""Layers that fine-tuning adds to an encoder, in the ledger of a model."""

import pytest

from rembed_keras.adaptation.methods import Adapters, Lora, RoAd
from rembed_keras.analysis import ledger
from rembed_keras.modeling import Encoder, MaskedLM
from tests.analysis.cost.test_ledger import SMALL


@pytest.mark.any_backend
@pytest.mark.parametrize("method", [Adapters(width=2), Lora(rank=3), Lora(rank=3, per_head=True), RoAd()])
def test_layers_that_were_added_to_a_model_are_counted(method):
    model = MaskedLM(Encoder(**SMALL), 10)
    before = ledger(model)
    method.apply(model)
    after = ledger(model)
    assert before.kept < after.kept == model.encoder.count_params() and after.dropped == before.dropped
    assert after.total == model.count_params() and after.flops["kept"] >= before.flops["kept"]
    assert ledger(model.encoder).kept == after.kept
