"""Interruption: SIGTERM and SIGINT, and the loss of a peer process.

A machine that is about to be preempted sends SIGTERM and kills some time later. Training uses that time to finish its
step and save a checkpoint; anything else ends at once and cleans up after itself. Either way the same command resumes,
so the process ends with an exit code that tells a scheduler to start it again.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

RESTART = os.EX_TEMPFAIL  # 75 in sysexits.h: failed for now, try again
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A command that was interrupted without an error; only the command line catches it.

    Args:
        why: in a few words.
        done: what was saved; "" for nothing.

    Attributes:
        code: the exit code.
    """

    code = RESTART

    def __init__(self, why: str, done: str = ""):
        super().__init__("; ".join(part for part in (why, done, "the same command resumes") if part))


class PeerLost(Stopped):
    """A process whose peer is lost, so that all must be started again.

    >>> str(PeerLost("stopped because a peer process is lost"))
    'stopped because a peer process is lost; the same command resumes'
    """

    def end(self) -> None:
        """Reports it and ends this process at once: at a regular exit, libraries would wait for the lost peer."""
        sys.stderr.write(f"rembed: {self}\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(self.code)


class Interrupted(Stopped):
    """A command that a signal stopped.

    Args:
        number: the signal.
        done: what was saved, to end a message with.

    Attributes:
        number: the signal.
        code: the exit code: 75 after SIGTERM, which asks to be started again, 1 after SIGINT.

    >>> stopped = Interrupted(signal.SIGTERM, "step 7 is saved")
    >>> stopped.code, str(stopped)
    (75, 'stopped by SIGTERM; step 7 is saved; the same command resumes')
    """

    def __init__(self, number: int, done: str = ""):
        super().__init__(f"stopped by {signal.Signals(number).name}", done)
        self.number = int(number)
        self.code = RESTART if number == signal.SIGTERM else 1


@contextlib.contextmanager
def stopping_at_once() -> Iterator[list[int]]:
    """A block that a signal ends at once by `Interrupted`; yields the signals received."""
    received: list[int] = []

    def stop(number, _):
        received.append(number)
        raise Interrupted(number)

    with _handled(stop):
        _stops.append(received)
        try:
            yield received
        finally:
            _stops.pop()


_stops: list[list[int]] = []  # signals that each block of `stopping_at_once` received


def stop_if_asked() -> None:
    """Raises `Interrupted` if a signal came whose exception was lost, as in C code that Python's code calls back.

    Raises:
        Interrupted: before what a stopped command must not do.
    """
    received = [number for each in _stops for number in each]
    if received:
        raise Interrupted(received[0])


@contextlib.contextmanager
def stopping_between_steps(has_begun: Callable[[], bool]) -> Iterator[list[int]]:
    """A block that the first signal asks to stop between steps, and the second ends at once.

    Args:
        has_begun: whether there is something to save; until then the first signal ends the block at once.

    Yields:
        The signals received, which the block checks between steps.

    Raises:
        Interrupted: at the second signal.
    """
    received: list[int] = []

    def ask(number, _):
        received.append(number)
        if len(received) > 1 or not has_begun():
            raise Interrupted(number)

    with _handled(ask):
        yield received


@contextlib.contextmanager
def _handled(handler):
    """A block with a signal handler, in the main thread only; signals that were ignored stay ignored."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        handled = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
        before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
