"""Stopped from outside: what SIGTERM and SIGINT mean to a command, and the end of a process that it works with.

A machine that is about to be taken away says so by SIGTERM and waits a while before it kills. Training uses that time
to finish its step and save it; whatever else a command does ends at once and cleans up after itself. Either way the
same command goes on later, so the process ends with a code by which whoever started it knows to start it again.
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
    """A command that ends too early by no mistake of anybody's; nothing but the command line catches it.

    Args:
        why: in a few words.
        done: what is kept; "" to say nothing of it.

    Attributes:
        code: the exit code.
    """

    code = RESTART

    def __init__(self, why: str, done: str = ""):
        super().__init__("; ".join(part for part in (why, done, "the same command goes on") if part))


class Abandoned(Stopped):
    """A process of several whose fellow is gone, so that all are to be started again.

    >>> str(Abandoned("stopped because another process is gone"))
    'stopped because another process is gone; the same command goes on'
    """

    def end(self) -> None:
        """Says so and ends this process at once: libraries would wait for the lost one before they let it end."""
        sys.stderr.write(f"rembed: {self}\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(self.code)


class Interrupted(Stopped):
    """A command that was asked to stop and did.

    Args:
        number: the signal that asked.
        done: what is kept, to end a message with.

    Attributes:
        code: the exit code: 75 after SIGTERM, which asks for the same command again, 1 after SIGINT, which does not.

    >>> stopped = Interrupted(signal.SIGTERM, "step 7 is saved")
    >>> stopped.code, str(stopped)
    (75, 'stopped by SIGTERM; step 7 is saved; the same command goes on')
    """

    def __init__(self, number: int, done: str = ""):
        super().__init__(f"stopped by {signal.Signals(number).name}", done)
        self.code = RESTART if number == signal.SIGTERM else 1


@contextlib.contextmanager
def stopping_at_once() -> Iterator[list[int]]:
    """A block that a signal ends by `Interrupted`, wherever it is; yields the signals that came."""
    came: list[int] = []

    def stop(number, _):
        came.append(number)
        raise Interrupted(number)

    with _handled(stop):
        yield came


@contextlib.contextmanager
def stopping_between_steps(has_begun: Callable[[], bool]) -> Iterator[list[int]]:
    """A block that is asked once to stop when it can, and then is stopped.

    Args:
        has_begun: whether there is something to save; until then the first signal ends the block too.

    Yields:
        The signals that came; the block looks there between steps.

    Raises:
        Interrupted: at the second signal.
    """
    came: list[int] = []

    def ask(number, _):
        came.append(number)
        if len(came) > 1 or not has_begun():
            raise Interrupted(number)

    with _handled(ask):
        yield came


@contextlib.contextmanager
def _handled(handler):
    """A block whose signals go to a handler; those that were ignored stay so, and only the main thread has any."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        heeded = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
        before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
