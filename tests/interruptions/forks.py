"""Commands in forked processes, which can be killed at random moments.

A start of Python with all that a command imports takes seconds, so one process imports it once and forks; it never
computes anything itself, so that no threads are lost in a fork. Draws follow the seed in KILL_SEED, 0 by default.
"""

import importlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("KILL_SEED", "0"))
OF_BASELINES = "sklearn.feature_extraction.text", "sklearn.linear_model", "sklearn.metrics"
PAUSE = 0.002  # seconds between two looks at a process: to look ten times as often takes a third of a core


AS_COMMANDS_DO = """\
import runpy
import sys
from rembed_keras.config.backend import import_framework
import_framework()
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def run_module(module: str, *words: object, **environment: str) -> subprocess.CompletedProcess:
    """Runs a module as `python -m` does, after the backend was imported as commands import it: in half of the time."""
    command = [sys.executable, "-c", AS_COMMANDS_DO, module, *map(str, words)]
    own = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, env=own, cwd=ROOT, capture_output=True, text=True, check=False)


def import_once(*others: str) -> None:
    """Imports what commands import, TensorFlow too, for all forks, and has these do no more than tests do.

    Args:
        others: modules that the forks' commands import where they need them.
    """
    from rembed_keras.config.backend import import_framework

    import_framework()
    from rembed_keras import cli, config, interop, training

    for module in (cli, config, interop, training):
        assert [getattr(module, name) for name in dir(module)]
    for name in others:
        importlib.import_module(name)
    import conftest

    conftest.work_quickly()


def start(job: Callable[[], object], output: Path, file_size: int | None = None) -> int:
    """Runs a job in a process of its own.

    Args:
        job: an exception of it gives exit code 1, a SystemExit its own code.
        output: file to which stdout and stderr are appended.
        file_size: maximum bytes of a file.

    Returns:
        The process's id.
    """
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        with open(output, "ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        job()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - the traceback is in the output
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def command(*arguments: object, **environment: str) -> Callable[[], None]:
    """A job: `rembed` with arguments, as a user starts it; with TensorFlow imported, as `import_framework` would."""

    def job():
        from rembed_keras import cli

        os.environ.update(environment)
        sys.argv = ["rembed", *map(str, arguments)]
        cli.main()

    return job


def finish(process: int, within: float = 900.0) -> int:
    """The exit code of a process that ends by itself; minus the signal if one killed it."""
    code = _ended_before(process, after(within))
    if code is not None:
        return code
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError(f"process {process} did not end within {within:.0f} s")


def stop(process: int, when: Callable[[], bool], number: int = signal.SIGKILL) -> int:
    """Sends a signal once a condition holds, unless the process ended before; returns its exit code."""
    code = _ended_before(process, when)
    if code is not None:
        return code
    os.kill(process, number)
    return finish(process)


def copy_as_killed(process: int, when: Callable[[], bool], folder: Path, copy: Path) -> bool:
    """Copies a folder as a kill would leave it that hits a process once a condition holds; the process goes on.

    Returns:
        Whether it did; False if the process ended before.
    """
    if _ended_before(process, when) is not None:
        return False
    os.kill(process, signal.SIGSTOP)  # what is on the disk now is what a kill would leave
    os.waitpid(process, os.WUNTRACED)
    shutil.copytree(folder, copy, symlinks=True)
    os.kill(process, signal.SIGCONT)
    return True


def _ended_before(process, when):
    """The exit code of a process that ends before a condition holds; None once it holds."""
    while not when():
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(PAUSE)
    return None


def after(seconds: float) -> Callable[[], bool]:
    """A condition that holds from some seconds on."""
    moment = time.monotonic() + seconds
    return lambda: time.monotonic() >= moment


def survive(
    job: Callable[[], object], output: Path, draw: random.Random, longest: float, check: Callable = lambda: None
):
    """Starts a job repeatedly and kills it at random moments, until it ends by itself.

    Args:
        job: as in `start`.
        output: as in `start`.
        draw: of the moments.
        longest: maximum seconds before a kill.
        check: called after each kill.

    Returns:
        The number of kills.
    """
    kills = 0
    while True:
        code = stop(start(job, output), after(draw.uniform(0.0, longest)))
        if code != -signal.SIGKILL:
            assert code == 0, f"exit code {code} after {kills} kills, KILL_SEED {SEED}\n{output.read_text()[-3000:]}"
            return kills
        kills += 1
        check()
