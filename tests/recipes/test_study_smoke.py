"""The smallest study, run as a user runs it: killed, stopped, resumed, and inspected after."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STUDY = ["study", "recipes/studies/smoke.gin", "WORKDIR=smoke", "--jobs", "2"]
WITHIN = 400  # seconds


def rembed(*words):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, "-m", "rembed_keras", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(process, pattern):
    """Waits until files are there."""
    deadline = time.monotonic() + WITHIN
    while not [*Path("smoke").glob(pattern)]:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, pattern
        time.sleep(0.05)


def test_the_smallest_study_is_killed_and_resumed_and_ends_in_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = rembed(*STUDY)
    wait_for(process, "corpora/*/.corpus*")  # while the corpus is prepared
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=WITHIN)[0]
    assert process.returncode == 75, said
    process = rembed(*STUDY)
    wait_for(process, "runs/*-seed0/checkpoints/step-*")  # while two runs train, which go on without it
    process.kill()
    process.communicate()
    process = rembed(*STUDY)
    said = process.communicate(timeout=WITHIN)[0]
    assert process.returncode == 0, said
    record = json.loads(Path("smoke/study.json").read_text())
    assert [run["state"] for run in record["runs"]] == ["finished"] * 4
    runs = [Path(run["folder"]) for run in record["runs"]]
    assert len({(run / "corpus").resolve() for run in runs}) == 1 and (runs[0] / "corpus").is_symlink()
    for run in runs:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses = [row["loss"] for row in rows if row["run"] == "pretrain"]
        assert len(losses) == 6 and losses[-1] < losses[0]
        of_run = [row for row in record["scores"] if f"{row['arm']}-seed{row['seed']}" == run.name]
        assert [row["value"] for row in of_run if row["measure"] == "loss"] == losses[-1:]
    assert {verdict["seeds"] for verdict in record["verdicts"]} == {2}
    assert record["verdicts"][1]["languages"] == 54
    assert "a wide output learns faster" in Path("smoke/study.html").read_text()
    process = rembed("study", "--verify", "smoke/study.json")
    assert "the verdicts follow from the scores" in process.communicate(timeout=WITHIN)[0]
    process = rembed("inspect", STUDY[1], STUDY[2])
    assert "4 runs, 4 finished, 0 left" in process.communicate(timeout=WITHIN)[0]
