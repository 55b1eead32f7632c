"""One call of the command line in this process, and the invariants that every call must keep.

Hypothesis makes the same attempts each time. `FUZZ=20 pytest tests/bad_input` makes twenty times as many, and others
each time.
"""

import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from hypothesis import HealthCheck, settings

from rembed_keras import cli

FACTOR = float(os.environ.get("FUZZ", "1"))
SECONDS = 60  # timeout of an attempt; the slowest takes a hundredth of that
FAILURES: dict[str, str] = {}  # tracebacks by what was attempted


def attempts(count):
    """The settings of a test of so many attempts."""
    return settings(
        max_examples=max(1, round(count * FACTOR)),
        derandomize=FACTOR == 1,
        database=None,
        deadline=None,  # `attempt` has one, which also ends what would hang
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def attempt(arguments, files=None, link=None, whole=None):
    """Runs `rembed` with arguments in a new folder, and checks how it ends.

    Args:
        arguments: of `rembed`.
        files: files of the folder, bytes by path; None makes a folder instead.
        link: symbolic links of the folder: targets by name.
        whole: checks the output folder `out`, if there is one.

    Returns:
        (exit code, stdout, stderr).

    Raises:
        AssertionError: for an invariant that was not kept. Hypothesis repeats what failed; what a library says once a
            process, or a cache hides, does not fail again, and is reported as it was and not as flaky.
    """
    words = repr((arguments, files, link))
    if words not in FAILURES:
        try:
            return _attempt(arguments, files, link, whole)
        except Exception:  # noqa: BLE001 - whatever it is, it is raised below, always at the same place
            FAILURES[words] = traceback.format_exc()
    raise AssertionError(FAILURES[words])


def _attempt(arguments, files, link, whole):
    here = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="attempt-"))
    try:
        for name, content in (files or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if content is None else path.write_bytes(content)
        for name, target in (link or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(target)
        os.chdir(folder)
        code, out, err = _run(arguments)
        output = f"rembed {arguments}\n{files}\nexit code {code}\n{out}\n{err}"
        assert code in (0, 2), output
        assert "Traceback" not in out + err, output
        if code == 2:
            assert err.startswith("rembed: ") and err.endswith("\n") and len(err.splitlines()) == 1, output
            assert not (folder / "out").exists() or (files or {}).keys() & {"out"}, output
        left = [path for path in folder.rglob("*") if "writing" in path.name]
        assert not left, f"{output}\nleft behind: {left}"
        if code == 0 and whole is not None and (folder / "out").exists():
            whole(folder / "out")
        return code, out, err
    finally:
        os.chdir(here)
        shutil.rmtree(folder)


def _run(arguments):
    """The exit code, stdout and stderr, also of libraries that write to the file descriptor of stderr."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["rembed", *arguments]
    code = 0
    with tempfile.TemporaryFile() as below, _stderr_to(below):
        handler = signal.signal(signal.SIGALRM, _hangs)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                cli.main()
        except SystemExit as exit_:
            code = exit_.code
        except Exception:  # noqa: BLE001 - `attempt` fails with the traceback, and always at the same place
            code = 1
            err.write(traceback.format_exc())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            sys.argv = argv
        below.seek(0)
        output = err.getvalue() + below.read().decode("utf-8", "replace")
    return code, out.getvalue(), output


@contextlib.contextmanager
def _stderr_to(file):
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Hangs(BaseException):
    """A timeout, which no handler of the package catches."""


def _hangs(*_):
    raise Hangs(f"no end after {SECONDS} seconds")
