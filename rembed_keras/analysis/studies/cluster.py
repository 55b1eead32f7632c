"""Runs of a study as jobs of a cluster, which `submitit` submits; an extra, `pip install 'rembed_keras[cluster]'`.

A job is a `rembed` command, as on one machine, in a folder that all machines see. A job that the cluster preempts, or
whose time is up, is asked to save, and is put in the queue again, where it resumes.
"""

import ast
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rembed_keras.analysis.studies.processes import Job
from rembed_keras.errors import UserError
from rembed_keras.interruption import RESTART

Kind = Literal["slurm", "local"]


class Cluster:
    """Where the jobs of a study run.

    Args:
        kind: "slurm", or "local" for processes of this machine that are handled as jobs of a cluster are.
        folder: for what `submitit` writes: scripts, and each job's result.
        options: of jobs, for example `{"slurm_partition": "gpu", "timeout_min": 600}`; see `parse_options`.

    Raises:
        UserError: without `submitit`, without the cluster's commands, or for an option that it does not know.
    """

    def __init__(self, kind: Kind, folder: Path, options: Mapping[str, Any]):
        try:
            import submitit
        except ImportError:
            raise UserError("--cluster needs submitit: pip install 'rembed_keras[cluster]'") from None

        def executor(place):
            made = submitit.AutoExecutor(place, cluster=kind)
            made.update_parameters(**options)
            return made

        try:
            with tempfile.TemporaryDirectory() as elsewhere:  # it makes its folder before it refuses an option
                executor(elsewhere)
            self._executor = executor(folder)
        except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
            reason = (str(error).strip().splitlines() or ["it cannot be used"])[0]
            raise UserError(f"--cluster {kind}: {reason}") from None

    def start(self, job: Job) -> "Submitted":
        """Submits a job."""
        self._executor.update_parameters(name=job.name)
        with _interruptible():
            return Submitted(self._executor.submit(Command(job.words, job.log)), job.log)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """While open, processes that start heed SIGINT, by which submitit cancels: what a shell starts in the background
    ignores it, and so do the children."""
    is_main = threading.current_thread() is threading.main_thread()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN or not is_main:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class Submitted:
    """A job that was submitted, with what `run_jobs` asks of a process."""

    def __init__(self, job: Any, log: Path):
        self._job, self._log = job, log
        self._is_cancelled = False
        self.seconds = 0.0  # that it ran, known once it has ended by itself

    def poll(self) -> int | None:
        """The exit code, once it has ended; 1 for a job that the cluster gave up, 75 if it was to."""
        if not self._job.done():
            return None
        error = self._job.exception()
        if error is None:
            code, self.seconds = self._job.result()
            return code
        if self._is_cancelled:
            return RESTART
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(f"{str(error).strip() or type(error).__name__}\n")
        return 1

    def terminate(self) -> None:
        """Has the cluster cancel it; what runs saves."""
        self._is_cancelled = True
        self._job.cancel(check=False)

    def wait(self) -> int | None:
        """Waits until it has ended."""
        self._job.wait()
        return self.poll()


class Command:
    """A command as the function that a job calls: it gives the exit code, and how many seconds the command ran.

    Args:
        words: the command.
        log: file that stdout and stderr are appended to.
        seconds: that it ran before the cluster took the job away.
    """

    def __init__(self, words: Sequence[str], log: Path, seconds: float = 0.0):
        self.words, self.log, self.seconds = list(words), log.absolute(), seconds
        self._begun = 0.0
        self._process: subprocess.Popen | None = None

    def __call__(self) -> tuple[int, float]:
        self._begun = time.monotonic()
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(self.words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            return self._process.wait(), self._ran()
        finally:
            self._save()

    def checkpoint(self) -> Any:
        """What to submit when the cluster takes the job away: the same command, which resumes."""
        from submitit.helpers import DelayedSubmission

        self._save()
        return DelayedSubmission(Command(self.words, self.log, self._ran()))

    def _ran(self):
        return self.seconds + time.monotonic() - self._begun

    def _save(self):
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        with contextlib.suppress(ChildProcessError):  # Popen's lock is held where a signal interrupts `wait`
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Options of jobs, `KEY=VALUE`; a value that is no Python literal is a text.

    Raises:
        UserError: for what is not of that form.

    >>> parse_options(["slurm_partition=gpu", "timeout_min=600"])
    {'slurm_partition': 'gpu', 'timeout_min': 600}
    """
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise UserError(f"--cluster-option {text}: it must be KEY=VALUE")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    return options
