"""The benchmark is fair: peers get the same batches and start from the same loss."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import accelerator
from benchmarks.accelerator import NOT_RATED, PEERS
from benchmarks.compare import machine, summary, table
from benchmarks.growth import SIZES, curves, spec, work
from benchmarks.shapes import SHAPES, batches
from benchmarks.worker import measure

ROOT = Path(__file__).parent.parent.parent
ONLY_JAX = "import sys; sys.modules |= dict.fromkeys(('tensorflow', 'sklearn', 'matplotlib'))"


def losses(peer, variant, work="training"):
    return measure(peer, variant, work, "tiny", steps=2)["losses"]


def test_batches_are_the_same_for_all_peers_and_mask_real_tokens():
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
def test_peers_start_at_the_loss_of_chance():
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
def test_the_script_for_accelerators_runs_where_there_is_none(tmp_path):
    """Tests, then steps in processes of their own; a test that fails is said at the end, and the rest is done.

    There is no TensorFlow either: Keras would import what it finds in each process, in a third of its time.
    """
    settings = {
        "PYTHON": sys.executable,
        "TESTS": "tests/modeling/layers/test_draws.py tests/no_such_test.py",
        "BACKENDS": "jax",
        "SHAPES": "tiny",
        "PEERS": "rembed, bfloat16, rematerialized;huggingface",  # and one chunk is profiled
        "ROUNDS": "1",
        "STEPS": "2",
        "LENGTHS": "128",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    (tmp_path / "sitecustomize.py").write_text(ONLY_JAX)
    command = ["bash", "benchmarks/gpu.sh", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "failed: tests on jax")
    assert "tests/no_such_test.py" in (tmp_path / "tests-jax.txt").read_text()
    attention = json.loads((tmp_path / "attention.json").read_text())["lengths"]["128"]
    assert attention["mask of all pairs"]["error"] < 0.03 and "refused" in attention["cuDNN"]
    report = json.loads((tmp_path / "accelerator.json").read_text())
    assert report["device"] == "cpu" and report["flops_per_second"] > 0
    named = {(row["peer"], row["variant"]): row for row in report["results"]}
    own = ("rembed", "bfloat16, rematerialized")
    assert named.keys() == {own, *(peer for peer in PEERS if peer[0] == "huggingface")}
    assert named[own]["tokens_per_s"] > 0
    assert 0 < named[own]["share_of_products"] < 1
    assert "rembed, bfloat16, rematerialized" in (tmp_path / "accelerator.md").read_text()
    assert [*(tmp_path / "trace").rglob("*.xplane.pb")]


def test_predicted_step_times_and_memory_hold_for_a_linear_model():
    specs = {spec(field, size): (field, size) for field, sizes in SIZES.items() for size in sizes}
    rounds = {}
    for name in specs:
        flops, weights, activations = work(name)
        seconds = flops / 3e11 + (weights + activations) / 1e10
        rounds[name] = [{"steps_s": [seconds, 2 * seconds], "peak_bytes": 1e9 + 1.5 * (weights + activations)}]
    for point in curves(specs, rounds):
        assert point["predicted_step_s"] == pytest.approx(point["step_s"])
        assert point["predicted_peak_bytes"] == pytest.approx(point["peak_bytes"])


@pytest.mark.slow
def test_a_table_has_medians_and_reports_what_did_not_run():
    measured = measure("rembed", "xla", "inference", "tiny", steps=3)
    rounds = [measured, measured | {"steps_s": [2 * seconds for seconds in measured["steps_s"]]}]
    own = summary(("rembed", "xla", "inference", "tiny"), rounds)
    middle = sorted(measured["steps_s"])[1]
    assert own["step_s"] == pytest.approx(1.5 * middle)
    assert own["tokens_per_s"] == pytest.approx(SHAPES["tiny"].tokens / (1.5 * middle))
    absent = summary(("torch", "", "inference", "tiny"), [{"error": "No module named 'torch'"}])
    report = {"results": [own, absent], "share_of_products": {"tiny": 0.5}, "products_best": "9 GFLOP/s (xla)"}
    shown = table(report | {"machine": machine(), "products": [{"numpy": 4e9, "xla": 9e9}, {"numpy": 5e9, "xla": 8e9}]})
    assert "not run: No module named 'torch'" in shown
    assert "1.00×" in shown and "50% of the best rate" in shown and "numpy 5, xla 9." in shown
    assert machine()["vectors"] in shown and machine()["cores"] == os.cpu_count()


def test_tables_are_made_where_what_others_are_held_against_did_not_run():
    steps = {"steps_s": [1.0, 2.0, 3.0], "first_step_s": 4.0, "peak_bytes": 5e9, "losses": [1.0], "device_bytes": None}
    own = summary(("rembed", "xla", "training", "tiny"), [{"error": "out of memory"}])
    peer = summary(("keras_hub", "xla", "training", "tiny"), [steps])
    report = {"results": [own, peer], "share_of_products": {}, "products_best": None}
    shown = table(report | {"machine": machine(), "products": [{"error": "no torch"}]})
    assert "not run: out of memory" in shown and "| 4 | 5.0 |  |" in shown
    found = accelerator.summary(("rembed", "bfloat16", "tiny"), [steps], None, None)
    shown = accelerator.table(NOT_RATED | {"results": [found]})
    assert "products of bfloat16 not measured" in shown and "| tiny | rembed, bfloat16 |" in shown
