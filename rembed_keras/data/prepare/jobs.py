"""Work on many parts at once, by as many processes as there are cores, and a line that says how far it is."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky import ProcessPoolExecutor, get_reusable_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from rembed_keras.data.prepare import survey
from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.sources import Part
from rembed_keras.errors import UserError

LEAST = 8_000_000  # bytes of text for which a process of its own is worth its start
PAUSE = 0.5  # seconds between lines on a terminal
LONG_PAUSE = 30.0  # and elsewhere
WATCH = 0.1  # seconds between looks at whether the process that started this one is there

Job = tuple[int, Sequence[Any]]  # its size, and what its function is called with


class WorkerLostError(UserError):
    """A process was ended from outside, most likely because memory ran out; what was made stays."""


class Workers:
    """Processes for jobs, and the progress of all of them.

    Args:
        processes: how many at most; one for each core by default.
        size: bytes of text of the whole work: little text is done in this process.
        quiet: whether to say nothing of progress.
    """

    def __init__(self, processes: int | None, size: int, quiet: bool = False):
        self.cores = processes or _cores()
        self.processes = max(1, min(self.cores, size // LEAST))
        self.quiet = quiet

    def threads(self, jobs: int) -> int:
        """Threads for each of so many jobs, where there are fewer of them than cores."""
        return max(1, self.cores // max(1, min(self.processes, jobs)))

    def run(self, what: str, function: Callable, jobs: Sequence[Job]) -> list:
        """Does jobs, the first ones first.

        Args:
            what: for the line of progress.
            function: what a job is; in another process, so importable by name.
            jobs: their sizes in bytes, and arguments.

        Returns:
            What they gave, in their order.

        Raises:
            WorkerLostError: if a process was ended from outside.
        """
        line = Line(what, sum(size for size, _ in jobs), self.quiet)
        results: list = [None] * len(jobs)
        for number, result in self._results(function, jobs):
            results[number] = result
            line.add(jobs[number][0], result if isinstance(result, int) else 0)
        line.end()
        return results

    def compare(self, parts: Sequence[Part], languages: Sequence[str], notes: Path, cleaning: Cleaning) -> None:
        """Finds which paragraphs go because of earlier ones; a language is a job.

        Args:
            parts: all parts, in order.
            languages: all languages.
            notes: folder of the survey's notes.
            cleaning: what may go.
        """
        totals = [survey.totals_of(part, notes) for part in parts]
        jobs = []
        for language in languages:
            own = [part for part, total in zip(parts, totals, strict=True) if language in total]
            jobs.append((sum(part.size for part in own), (language, own, notes, cleaning)))
        self.run("comparing", survey.compare, jobs)

    def _results(self, function, jobs) -> Iterator[tuple[int, Any]]:
        if self.processes == 1 or len(jobs) < 2:
            yield from ((number, function(*arguments)) for number, (_, arguments) in enumerate(jobs))
            return
        pool = joblib.Parallel(self.processes, backend="loky", return_as="generator_unordered", batch_size=1)
        with _told_of_lost_workers():
            yield from pool(
                joblib.delayed(_numbered)(os.getpid(), number, function, arguments)
                for number, (_, arguments) in enumerate(jobs)
            )

    def apart(self, function: Callable, *arguments: Any) -> Any:
        """Calls a function in a process of its own, which gives all its memory back; for little text in this one.

        No other process is there meanwhile.

        Args:
            function: importable by name, as are its arguments' classes.
            arguments: of the function.

        Returns:
            What it returned.

        Raises:
            WorkerLostError: if the process was ended from outside.
        """
        if self.processes == 1:
            return function(*arguments)
        shut_down()
        own = ProcessPoolExecutor(1)
        try:
            with _told_of_lost_workers():
                return own.submit(_tied, os.getpid(), function, arguments).result()
        finally:
            own.shutdown(kill_workers=True)


@contextlib.contextmanager
def _told_of_lost_workers():
    try:
        yield
    except TerminatedWorkerError as error:
        advice = "if memory ran out, try fewer processes; the same command goes on where it was"
        raise WorkerLostError(f"a process that prepares text was ended from outside: {advice}") from error


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _numbered(parent, number, function, arguments):
    return number, _tied(parent, function, arguments)


def _tied(parent, function, arguments):
    """Calls a function in a process that is not to outlive the one that started it."""
    _end_with(parent)
    return function(*arguments)


@lru_cache(1)
def _end_with(parent):
    """Has this process end when its parent has: what it still wrote would get among the files of the next attempt."""

    def watch():
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Line:
    """A line of progress on stderr: on a terminal one that changes, elsewhere a new one now and then.

    Args:
        what: is being done.
        size: bytes of all of it.
        quiet: whether to say nothing.
    """

    def __init__(self, what: str, size: int, quiet: bool = False):
        self.what, self.size, self.quiet = what, max(size, 1), quiet
        self.done = self.tokens = 0
        self.begun = self.said = time.monotonic()
        self.live = sys.stderr.isatty()

    def add(self, size: int, tokens: int = 0) -> None:
        """Notes what was done, and says so if it is time."""
        self.done += size
        self.tokens += tokens
        if time.monotonic() - self.said > (PAUSE if self.live else LONG_PAUSE):
            self.said = time.monotonic()
            self._say(self.text())

    def text(self) -> str:
        """What the line says."""
        seconds = max(time.monotonic() - self.begun, 1e-6)
        left = seconds * (self.size - self.done) / max(self.done, 1)
        parts = [f"{self.what}: {self.done / self.size:.0%} of {self.size / 1e6:,.0f} MB"]
        parts += [f"{self.done / seconds / 1e6:,.1f} MB/s"]
        parts += [f"{self.tokens / seconds / 1e6:,.2f} Mtokens/s"] if self.tokens else []
        return ", ".join([*parts, f"{left:,.0f} s left"])

    def _say(self, text):
        if not self.quiet:
            sys.stderr.write(f"\r\x1b[K{text}" if self.live else f"{text}\n")
            sys.stderr.flush()

    def end(self) -> None:
        """Leaves a terminal's line clean."""
        if self.live:
            self._say("")


def shut_down() -> None:
    """Ends the processes that wait for more work, and frees their memory."""
    get_reusable_executor().shutdown(wait=True)
