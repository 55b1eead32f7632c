"""How a command ends: one line on stderr and an exit code, whatever went wrong.

0 is success, 2 a mistake of the user's, 1 anything else; 75, the EX_TEMPFAIL of sysexits.h, is a command that SIGTERM
or the end of another process stopped and that is to be started again.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator

import click

from rembed_keras.errors import UserError
from rembed_keras.interruption import Abandoned, Interrupted, Stopped, stopping_at_once


@contextlib.contextmanager
def told_in_one_line() -> Iterator[None]:
    """A command: signals and mistakes of the user's that end it become a line and an exit code.

    Raises:
        SystemExit: instead of what ended it.
    """
    signals: list[int] = []
    try:
        with stopping_at_once() as signals:
            yield
    except click.ClickException as error:
        _exit(error.format_message(), error.exit_code)
    except (UserError, OSError) as error:
        if signals:  # what was under way took its end for a mistake
            _stop(Interrupted(signals[0]))
        if isinstance(error, OSError):
            _exit(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
        _exit(str(error), 2)
    except (click.Abort, KeyboardInterrupt):
        _stop(Interrupted(signal.SIGINT))
    except Stopped as stopped:
        _stop(stopped)


def _stop(stopped):
    if isinstance(stopped, Abandoned):
        stopped.end()
    _exit(str(stopped), stopped.code)


def _exit(message, code):
    click.echo(f"rembed: {(message.splitlines() or ['?'])[0]}", err=True)
    sys.exit(code)
