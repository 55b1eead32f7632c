"""The comparison compares like with like: peers take the same batches and start from the same loss."""

import math

import numpy as np
import pytest

from benchmarks.compare import summary, table
from benchmarks.shapes import SHAPES, batches
from benchmarks.worker import measure


def losses(peer, variant, work="training"):
    return measure(peer, variant, work, "tiny", steps=2)["losses"]


def test_batches_are_the_same_for_everybody_and_hide_what_is_there():
    first, again = batches(SHAPES["tiny"], 2), batches(SHAPES["tiny"], 2)
    for one, other in zip(first, again, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])
    batch = first[0]
    np.testing.assert_array_equal(
        np.take_along_axis(batch["token_ids"], batch["mask_positions"], axis=1), batch["targets"]
    )
    assert (np.diff(batch["mask_positions"], axis=1) > 0).all()
    assert batch["token_ids"].max() < SHAPES["tiny"].vocabulary_size


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # of keras-hub's pooler, which it does not read
def test_peers_start_where_chance_is():
    chance = math.log(SHAPES["tiny"].vocabulary_size)
    own = losses("rembed", "xla")
    np.testing.assert_allclose(own, losses("rembed", "no xla"), rtol=1e-5)
    for other in (own, losses("keras_hub", "as shipped")):
        assert other[0] == pytest.approx(chance, abs=0.1)


@pytest.mark.slow
def test_gathering_changes_the_time_and_not_the_loss(peers):
    gathered = losses("huggingface", "gathered")
    np.testing.assert_allclose(gathered, losses("huggingface", "as shipped"), rtol=1e-4)
    assert gathered[0] == pytest.approx(math.log(SHAPES["tiny"].vocabulary_size), abs=0.1)


@pytest.mark.slow
def test_a_table_has_medians_and_says_what_did_not_run():
    measured = measure("rembed", "xla", "inference", "tiny", steps=3)
    rounds = [measured, measured | {"steps_s": [2 * seconds for seconds in measured["steps_s"]]}]
    own = summary(("rembed", "xla", "inference", "tiny"), rounds)
    middle = sorted(measured["steps_s"])[1]
    assert own["step_s"] == pytest.approx(1.5 * middle)
    assert own["tokens_per_s"] == pytest.approx(SHAPES["tiny"].tokens / (1.5 * middle))
    absent = summary(("torch", "", "inference", "tiny"), [{"error": "No module named 'torch'"}])
    shown = table({"results": [own, absent], "share_of_products": {"tiny": 0.5}, "products_best": "9 GFLOP/s (xla)"})
    assert "not run: No module named 'torch'" in shown
    assert "1.00×" in shown and "50% of the best rate" in shown
