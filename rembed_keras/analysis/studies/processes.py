"""Runs of a study as processes, some at once.

Each is a `rembed` command of its own, so that one that fails takes no other with it, and one that is killed resumes.
SIGTERM and SIGINT are passed on: every process saves, and the study ends with 75, the code of a command that resumes.
"""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from joblib import cpu_count

from rembed_keras.data.writing import locked
from rembed_keras.interruption import RESTART, Stopped, stopping_between_steps

POLL = 0.1  # seconds
THREADS = "TF_NUM_INTRAOP_THREADS", "PJRT_NPROC", "OMP_NUM_THREADS"  # TensorFlow's, JAX's, those of linear algebra


@dataclass(frozen=True)
class Job:
    """A command of a study.

    Attributes:
        name: in messages.
        command: arguments of `rembed`.
        folder: of the run; while another process holds it, as that of a killed study may, the job waits.
        log: file that stdout and stderr are appended to.
    """

    name: str
    command: Sequence[str]
    folder: Path
    log: Path

    @property
    def words(self) -> list[str]:
        """The whole command."""
        return [sys.executable, "-m", "rembed_keras", *self.command]

    @property
    def last_line(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n") if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def failure(self, code: int) -> str:
        """Why it ended with an exit code: the last line of its log, or, where it had no time for one, the signal."""
        if code >= 0:
            return self.last_line or f"exit code {code}"
        name = signal.Signals(-code).name if -code in [*signal.Signals] else f"signal {-code}"
        return f"killed by {name}{', as when memory runs out' * (-code == signal.SIGKILL)}"


class Running(Protocol):
    """A job that was started: what `subprocess.Popen` offers of it, and how long it has run."""

    @property
    def seconds(self) -> float:
        """How long it has run, without what it waited in a queue; of a job of a cluster once it has ended."""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""

    def terminate(self) -> object:
        """Asks it to save and to end."""

    def wait(self) -> object:
        """Waits until it has ended."""


class Process(subprocess.Popen):
    """A process of this machine."""

    begun: float  # by the clock of `time.monotonic`

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self.begun


def start_here(job: Job, at_once: int = 1) -> Running:
    """Starts a job as a process of this machine.

    Args:
        job: the job.
        at_once: how many run beside one another. Each takes its share of the cores, unless the environment says how
            many threads there are: processes with as many threads as cores each wait for one another.
    """
    shared = dict.fromkeys(THREADS, str(max(1, cpu_count() // at_once))) if at_once > 1 else {}
    with open(job.log, "ab") as log:  # a group of its own, so that a signal of the terminal comes once
        process = Process(
            job.words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, process_group=0, env=shared | os.environ
        )
    process.begun = time.monotonic()
    return process


@dataclass
class _Started:
    job: Job
    running: Running
    is_asked: bool = False  # to end


def run_jobs(
    jobs: Sequence[Job],
    at_once: int,
    on_end: Callable[[Job, int, float], None],
    start: Callable[[Job], Running] = start_here,
) -> None:
    """Runs jobs, in their order, some at once.

    Args:
        jobs: the jobs.
        at_once: how many run, or wait in the queue of a cluster.
        on_end: called with a job that ended, its exit code and how many seconds it ran.
        start: starts a job.

    Raises:
        Stopped: after a signal, when all processes have saved and ended.
        Interrupted: at a second signal, which the processes are passed as well.
    """
    waiting = deque(jobs)
    running: list[_Started] = []
    with stopping_between_steps(lambda: True) as received:
        try:
            while running or (waiting and not received):
                _start(waiting, running, 0 if received else at_once, start)
                time.sleep(POLL)
                if received:
                    _terminate_once(running)
                codes = [(each, each.running.poll()) for each in running]
                for each, code in ((each, code) for each, code in codes if code is not None):
                    running.remove(each)
                    if code and is_held(each.job.folder):  # a run of a killed study was first
                        waiting.append(each.job)
                        continue
                    on_end(each.job, code, each.running.seconds)
        finally:
            for each in running:
                each.running.terminate()
            for each in running:
                each.running.wait()
    if received:
        raise AllStopped(received[0], "what was running is saved")


class AllStopped(Stopped):
    """A study that a signal stopped, and all its processes with it.

    Args:
        number: the signal.
        done: what was saved.

    >>> AllStopped(signal.SIGINT, "all is saved").code
    75
    """

    code = RESTART

    def __init__(self, number: int, done: str):
        super().__init__(f"stopped by {signal.Signals(number).name}", done)


def _start(waiting, running, at_once, start):
    """Starts what there is room for; a job whose folder is held goes to the end of the queue."""
    for _ in range(len(waiting)):
        if len(running) >= at_once:
            return
        job = waiting.popleft()
        if is_held(job.folder):
            waiting.append(job)
            continue
        job.log.parent.mkdir(parents=True, exist_ok=True)
        running.append(_Started(job, start(job)))


def _terminate_once(running):
    for each in running:
        if not each.is_asked:
            each.running.terminate()
            each.is_asked = True


def is_held(folder: Path) -> bool:
    """Whether a process works in a run's folder."""
    if not (folder / ".lock").exists():
        return False
    with open(folder / ".lock", "ab") as lock:
        return not locked(lock)
