"""How a command ends: one line on stderr and an exit code.

0 is success, 2 a user's mistake, 1 anything else, of which output that nobody reads any more, as after `| head`, ends
without a word; 75, the EX_TEMPFAIL of sysexits.h, is a command that SIGTERM or the loss of a peer process stopped and
that should be started again.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator

import click

from rembed_keras.errors import UserError
from rembed_keras.interruption import Interrupted, PeerLost, Stopped, stopping_at_once


def open_closed() -> None:
    """Opens what a shell closed, as `>&-` does: files would take its place, and what is printed would get into them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open to the end


@contextlib.contextmanager
def reported_in_one_line() -> Iterator[None]:
    """A block whose signals and users' mistakes become one line on stderr and an exit code.

    Raises:
        SystemExit: instead of them.
    """
    signals: list[int] = []
    try:
        with stopping_at_once() as signals:
            yield
            _flush()
    except click.ClickException as error:
        _refuse(error)
    except (click.Abort, KeyboardInterrupt):
        _stop(Interrupted(signal.SIGINT))
    except Stopped as stopped:
        _stop(stopped)
    except Exception as error:
        if signals:  # the interrupted code mistook the interruption for an error, or C code made one of it
            _stop(Interrupted(signals[0]))
        if isinstance(error, BrokenPipeError) and _is_unread():
            _leave()
        if isinstance(error, OSError):
            _exit(f"{error.filename or _unnamed(error)}: {error.strerror or error}", 2)
        if isinstance(error, UserError):
            _exit(str(error), 2)
        first = _first(error)
        if isinstance(first, UnicodeEncodeError) and _is_of_output(first):
            unknown = first.object[first.start]
            _exit(f"output in {sys.stdout.encoding} cannot have {unknown!a}: set PYTHONIOENCODING=utf-8", 2)
        raise


def _flush():
    """Prints what waits to be, since a failure of that may be said by nobody once the command has ended."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _silence()
        raise OSError(error.errno, error.strerror, "standard output") from None


def _refuse(error):
    """Ends as click asks, which of a command alone shows the help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        sys.exit(error.exit_code)
    knob = error.option_name.lstrip("-") if isinstance(error, click.NoSuchOption) else ""
    advice = f" Knobs have no dashes: {knob}=VALUE." if knob.isupper() else ""
    message = error.format_message() + advice
    _exit(" ".join(message.split()), error.exit_code)  # choices stand on lines of their own


def _stop(stopped):
    if isinstance(stopped, PeerLost):
        stopped.end()
    _exit(str(stopped), stopped.code)


def _is_unread():
    """Whether nobody reads the output any more; another pipe may be broken, as that of a process that was killed."""
    try:
        output = sys.stdout.fileno()
    except OSError:  # a stand-in for it, in memory
        return False
    watched = select.poll()
    watched.register(output, 0)
    return any(event & select.POLLERR for _, event in watched.poll(0))


def _first(error):
    """What could not be encoded, where gin has raised another of its kind, that has its text alone."""
    while isinstance(error, UnicodeEncodeError) and not error.encoding:
        error = error.__context__
    return error


def _is_of_output(error):
    """Whether the output's encoding would raise that error, which may call it by another name, such as charmap."""
    try:
        error.object[error.start].encode(sys.stdout.encoding)
    except UnicodeEncodeError as own:
        return own.encoding == error.encoding
    return False


def _unnamed(error):
    """What failed where the system names no file: the output, if what is left to print fails alike."""
    try:
        sys.stdout.flush()
    except OSError as again:
        if again.errno == error.errno:
            _silence()
            return "standard output"
    return "a file"


def _leave():
    """Ends without a word, as Rich does."""
    _silence()
    sys.exit(1)


def _silence():
    """What is left to print goes where Python's own end does not fail of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit(message, code):
    click.echo(f"rembed: {(message.splitlines() or ['?'])[0]}", err=True)
    sys.exit(code)
