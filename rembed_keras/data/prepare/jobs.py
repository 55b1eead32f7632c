"""Jobs in as many worker processes as there are cores, and their progress."""

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

LEAST = 8_000_000  # bytes of text that are worth the start of a worker process
PAUSE = 0.5  # seconds between progress lines on a terminal
LONG_PAUSE = 30.0  # and elsewhere
TALKS = 1_000_000  # bytes of text from which on what begins is said
RESUMES = "the same command resumes"  # what is said of work that is kept
WATCH = 0.1  # seconds between checks that the parent process is alive

Job = tuple[int, Sequence[Any]]  # size in bytes, and the arguments of its function


class WorkerLostError(UserError):
    """A worker process was killed from outside, most likely because memory ran out, or a cluster cannot be reached;
    finished work is kept."""


class Workers:
    """Worker processes for jobs, and the progress of all of them.

    Args:
        processes: how many at most; one per core by default.
        size: bytes of text in all; a small text is prepared in this process.
        quiet: whether to print no progress.
    """

    def __init__(self, processes: int | None, size: int, quiet: bool = False):
        self.cores = processes or joblib.cpu_count()
        self.processes = max(1, min(self.cores, size // LEAST))
        self.quiet = quiet

    def threads(self, jobs: int) -> int:
        """Threads for each job, where there are fewer jobs than cores."""
        return max(1, self.cores // max(1, min(self.processes, jobs)))

    def run(self, what: str, function: Callable, jobs: Sequence[Job]) -> list:
        """Runs jobs, the first ones first.

        Args:
            what: name of the work, for the progress line.
            function: called for each job in another process, so it must be importable by name.
            jobs: their sizes in bytes, and arguments.

        Returns:
            Their results, in order.

        Raises:
            WorkerLostError: if a process was killed from outside.
        """
        progress = Progress(what, sum(size for size, _ in jobs), self.quiet)
        results: list = [None] * len(jobs)
        for number, result in self._results(function, jobs):
            results[number] = result
            progress.add(jobs[number][0], result if isinstance(result, int) else 0)
        progress.end()
        return results

    def announce(self, what: str, size: int) -> None:
        """Says that work begins which shows no progress of its own.

        Args:
            what: the work.
            size: bytes of text; of little nothing is said.
        """
        if size >= TALKS and not self.quiet:
            sys.stderr.write(f"{what}, {size / 1e6:,.0f} MB of text\n")
            sys.stderr.flush()

    def compare(self, parts: Sequence[Part], languages: Sequence[str], notes: Path, cleaning: Cleaning) -> None:
        """Marks duplicates and near-duplicates of earlier paragraphs; a language is a job.

        Args:
            parts: all parts, in order.
            languages: all languages.
            notes: folder of the survey's notes.
            cleaning: the settings.
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
        with _lost_workers_reported():
            yield from pool(
                joblib.delayed(_numbered)(os.getpid(), number, function, arguments)
                for number, (_, arguments) in enumerate(jobs)
            )

    def run_alone(self, function: Callable, *arguments: Any) -> Any:
        """Calls a function in a process of its own, whose memory is freed in the end; in this one for a small text.

        No other worker runs meanwhile.

        Args:
            function: importable by name, as are its arguments' classes.
            arguments: of the function.

        Returns:
            Its result.

        Raises:
            WorkerLostError: if the process was killed from outside.
        """
        if self.processes == 1:
            return function(*arguments)
        shut_down()
        own = ProcessPoolExecutor(1)
        try:
            with _lost_workers_reported():
                return own.submit(_tied, os.getpid(), function, arguments).result()
        finally:
            own.shutdown(kill_workers=True)


@contextlib.contextmanager
def _lost_workers_reported():
    try:
        yield
    except TerminatedWorkerError as error:
        advice = f"if memory ran out, use fewer --processes; {RESUMES}"
        raise WorkerLostError(f"a process that prepares text was killed: {advice}") from error


def _numbered(parent, number, function, arguments):
    return number, _tied(parent, function, arguments)


def _tied(parent, function, arguments):
    """Calls a function in a process that must not outlive its parent."""
    _end_with(parent)
    return function(*arguments)


@lru_cache(1)
def _end_with(parent):
    """Ends this process when its parent ends: its late writes would mix with the files of the next attempt."""

    def watch():
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Progress:
    """Progress on stderr: one line that is rewritten on a terminal, elsewhere a new line now and then.

    Args:
        what: name of the work.
        size: bytes in all.
        quiet: whether to print nothing.
    """

    def __init__(self, what: str, size: int, quiet: bool = False):
        self.what, self.size, self.quiet = what, max(size, 1), quiet
        self.done = self.tokens = 0
        self.started = self.said = time.monotonic()
        self.live = sys.stderr.isatty()
        if self.live and size >= TALKS:
            self._say(self.text())

    def add(self, size: int, tokens: int = 0) -> None:
        """Adds finished work, and prints a line if the last one is old enough."""
        self.done += size
        self.tokens += tokens
        if time.monotonic() - self.said > (PAUSE if self.live else LONG_PAUSE):
            self.said = time.monotonic()
            self._say(self.text())

    def text(self) -> str:
        """The line to print."""
        seconds = max(time.monotonic() - self.started, 1e-6)
        left = seconds * (self.size - self.done) / max(self.done, 1)
        parts = [f"{self.what}: {self.done / self.size:.0%} of {self.size / 1e6:,.0f} MB"]
        if not self.done:
            return parts[0]
        parts += [f"{self.done / seconds / 1e6:,.1f} MB/s"]
        parts += [f"{self.tokens / seconds / 1e6:,.2f} Mtokens/s"] if self.tokens else []
        return ", ".join([*parts, f"{left:,.0f} s left"])

    def _say(self, text):
        if not self.quiet:
            sys.stderr.write(f"\r\x1b[K{text}" if self.live else f"{text}\n")
            sys.stderr.flush()

    def end(self) -> None:
        """Clears the line on a terminal."""
        if self.live:
            self._say("")


def shut_down() -> None:
    """Ends idle worker processes, which frees their memory."""
    get_reusable_executor().shutdown(wait=True)
