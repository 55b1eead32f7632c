"""Runs of a study as jobs of a cluster: for real on this machine, and what Slurm would be given."""

import signal
import sys
import time
from pathlib import Path

import pytest
import submitit  # noqa: F401 - sets up logging, which has absl close the stream of stderr if pytest has replaced it

from rembed_keras.analysis.studies.cluster import Cluster, Command, parse_options
from rembed_keras.analysis.studies.processes import Job, run_jobs
from rembed_keras.errors import UserError
from tests.analysis.studies.two_arms import record, started

SAVES = """\
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(pathlib.Path("saved").write_text("x") and 75))
pathlib.Path("ready").touch()
time.sleep(60)
"""
# of submitit 1.5.4, of which it says that the order may change
SLURM = """\
#SBATCH --cpus-per-task=2
#SBATCH --error=FOLDER/%j_0_log.err
#SBATCH --gpus-per-node=1
#SBATCH --job-name=wide-seed0
#SBATCH --nodes=1
#SBATCH --open-mode=append
#SBATCH --output=FOLDER/%j_0_log.out
#SBATCH --partition=gpu
#SBATCH --signal=USR2@90
#SBATCH --time=600
#SBATCH --wckey=submitit
"""


def job(script, folder):
    class Script(Job):
        words = property(lambda self: [sys.executable, "-c", script])

    return Script("wide-seed0", [], folder / "run", folder / "log.txt")


def wait_for(path, within=120.0):
    deadline = time.monotonic() + within
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} is not there"
        time.sleep(0.01)


def test_a_study_runs_as_jobs(study):
    code, shown, said = study("--cluster", "local", "--jobs", "5", "--cluster-option", "timeout_min=5", "SEEDS=(0,)")
    assert code == 0, (shown, said)
    assert started()[1:] == ["one-seed0", "wide-seed0"]
    assert {run["state"] for run in record()["runs"]} == {"finished"}
    assert study("SEEDS=(0,)")[0] == 0 and started() == []  # what jobs finished is not run again


def test_a_job_that_fails_is_reported(study, monkeypatch):
    monkeypatch.setenv("FAILS", "one-seed0")
    code, _, said = study("--cluster", "local", "--jobs", "2", "SEEDS=(0,)")
    assert code == 1 and "one-seed0 failed: rembed: it failed" in said


def test_a_job_that_is_cancelled_saves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what is in its background
    try:
        submitted = Cluster("local", tmp_path / "jobs", {"timeout_min": 5}).start(job(SAVES, tmp_path))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(tmp_path / "ready")
    assert submitted.poll() is None
    submitted._job._results_timeout_s = 1  # submitit waits 15 s for a result, which a job that is cancelled has not
    submitted.terminate()
    assert submitted.wait() == 75  # of what was stopped, and has not failed
    wait_for(tmp_path / "saved")


def test_a_job_that_is_preempted_saves_and_is_submitted_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = Command(job(SAVES, tmp_path).words, tmp_path / "log.txt")
    again = []

    def preempt(*_):
        if (tmp_path / "ready").exists():
            signal.setitimer(signal.ITIMER_REAL, 0)
            again.append(command.checkpoint())
            assert (tmp_path / "saved").exists()

    before = signal.signal(signal.SIGALRM, preempt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        code, seconds = command()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert code == 75 and again[0].function.words == command.words
    assert 0 < again[0].function.seconds <= seconds


def test_a_job_that_was_preempted_ran_before_too(tmp_path):
    code, seconds = Command([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log.txt", 100.0)()
    assert code == 3 and 100 < seconds < 200


def test_seconds_in_the_queue_are_not_those_of_a_run(tmp_path):
    class Queued:
        seconds = 0.0

        def poll(self):
            self.seconds = 0.25
            return 0

    ended = []
    jobs = [job(SAVES, tmp_path)]
    run_jobs(jobs, 1, lambda job, code, seconds: ended.append((job.name, code, seconds)), lambda job: Queued())
    assert ended == [("wide-seed0", 0, 0.25)]


def test_slurm_is_given_the_run(tmp_path, monkeypatch):
    """A stand-in for Slurm's commands keeps the script that it is given."""
    for name in ("sbatch", "srun", "scancel", "sacct"):
        script = 'cp "$1" script.sh; echo "Submitted batch job 12"' if name == "sbatch" else "true"
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    options = parse_options(["slurm_partition=gpu", "timeout_min=600", "gpus_per_node=1", "cpus_per_task=2"])
    Cluster("slurm", tmp_path / "jobs", options).start(job(SAVES, tmp_path))
    lines = Path("script.sh").read_text().replace(str(tmp_path / "jobs"), "FOLDER").splitlines()
    asked = sorted(line for line in lines if line.startswith("#SBATCH"))
    assert asked == SLURM.splitlines()
    assert any(line.startswith("srun") and "submitit.core._submit" in line for line in lines)


MISTAKES = {
    "an option that is not there": (["--cluster", "local", "--cluster-option", "colour=red"], "colour"),
    "no value": (["--cluster", "local", "--cluster-option", "timeout_min"], "it must be KEY=VALUE"),
    "a list of a cluster's jobs": (["--list", "--cluster", "local"], "--list runs nothing: leave out --cluster"),
    "a list at once": (["--list", "--jobs", "2"], "--list runs nothing: leave out --jobs"),
    "options without a cluster": (["--cluster-option", "a=1"], "--cluster-option needs --cluster"),
    "no Slurm here": (["--cluster", "slurm"], "--cluster slurm: "),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_reported_before_anything_runs(study, monkeypatch, tmp_path, what):
    monkeypatch.setenv("PATH", str(tmp_path))
    words, message = MISTAKES[what]
    code, _, said = study(*words)
    assert code == 2 and message in said.splitlines()[-1] and said.splitlines()[-1].startswith("rembed: ")
    assert started() == [] and not Path("study").exists()


def test_without_submitit_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install 'rembed_keras\[cluster\]'"):
        Cluster("local", tmp_path, {})
