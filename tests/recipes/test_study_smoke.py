"""The smallest study, as a user runs it: killed, stopped, resumed, and inspected after.

The study and its runs are forks of one process, see `tests/interruptions/forks.py`; only what prepares its corpus, and
is stopped, is a new program, as all that a study runs is for its users.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.interruptions.forks import OF_BASELINES, command, finish, import_once, run_module, start, stop

pytestmark = pytest.mark.slow
STUDY = [
    "recipes/studies/smoke.gin",
    "WORKDIR=smoke",
    "STEPS=12",
    "LOG_EVERY=2",
    "CHECKPOINT_EVERY=4",
    "WARMUP_STEPS=2",
]
STUDY += ["declarations/tasks.ParallelText.most_lines=8", "training.retrieve.sequence_length=32"]
WITHIN = 400  # seconds


class Fork:
    """A job of a study that a fork of the study's process does, in place of a new program."""

    seconds = 1.0  # that it is said to have run

    def __init__(self, job):
        self.code = None
        self.process = start(self.alone(job), job.log)

    @staticmethod
    def alone(job):
        """The job without what a fork has of its parent and a new program has not."""

        def run():
            os.closerange(3, 1024)  # the lock of the study's folder among them
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            command(*job.command)()

        return run

    def poll(self):
        if self.code is None:
            done, status = os.waitpid(self.process, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if done else None
        return self.code

    def terminate(self):
        if self.poll() is None:
            os.kill(self.process, signal.SIGTERM)

    def wait(self):
        if self.poll() is None:
            self.code = finish(self.process, WITHIN)


def there(pattern):
    """A moment: when files are there."""
    end = time.monotonic() + WITHIN

    def is_time():
        assert time.monotonic() < end, pattern
        return any(Path("smoke").glob(pattern))

    return is_time


def main(folder):
    """A study that is stopped while its corpus is prepared, killed while two runs train, and run to its end."""
    import_once(*OF_BASELINES)
    from rembed_keras.analysis.studies import processes

    os.chdir(folder)
    study, lives = command("study", *STUDY, "--jobs", "2"), [Path(f"life{number}.txt") for number in range(3)]
    codes = [stop(start(study, lives[0]), there("corpora/*/.corpus*"), signal.SIGTERM)]
    processes.start_here = lambda job, at_once: Fork(job)
    codes.append(stop(start(study, lives[1]), there("runs/*-seed0/checkpoints/step-*")))  # its runs go on without it
    codes.append(finish(start(study, lives[2]), WITHIN))
    print(json.dumps(codes))


def test_the_smallest_study_is_killed_and_resumed_and_ends_in_a_page(tmp_path, command):
    done = run_module(__spec__.name, tmp_path, KERAS_BACKEND="tensorflow")
    said = done.stdout + done.stderr + "\n".join(life.read_text() for life in sorted(tmp_path.glob("*.txt")))
    assert done.returncode == 0, said
    assert json.loads(done.stdout.splitlines()[-1]) == [75, -signal.SIGKILL, 0], said
    smoke = tmp_path / "smoke"
    record = json.loads((smoke / "study.json").read_text())
    assert [run["state"] for run in record["runs"]] == ["finished"] * 4
    runs = [tmp_path / run["folder"] for run in record["runs"]]
    assert len({(run / "corpus").resolve() for run in runs}) == 1 and (runs[0] / "corpus").is_symlink()
    for run in runs:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses = [row["loss"] for row in rows if row["run"] == "pretrain"]
        assert len(losses) == 6 and losses[-1] < losses[0]
        of_run = [row for row in record["scores"] if f"{row['arm']}-seed{row['seed']}" == run.name]
        assert [row["value"] for row in of_run if row["measure"] == "loss"] == losses[-1:]
    assert {verdict["seeds"] for verdict in record["verdicts"]} == {2}
    assert record["verdicts"][1]["languages"] == 54
    assert "a wide output learns faster" in (smoke / "study.html").read_text()
    said = command("study", "--verify", "smoke/study.json", cwd=tmp_path)[1]
    assert "the verdicts follow from the scores" in said
    assert "4 runs, 4 finished, 0 left" in command("inspect", *STUDY, cwd=tmp_path)[1]


if __name__ == "__main__":
    main(sys.argv[1])
