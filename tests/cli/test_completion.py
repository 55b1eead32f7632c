"""Completion, typed into shells on a terminal."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from rembed_keras.cli import rembed

ROOT = Path(__file__).parents[2]
SHELLS = {  # how each starts without the user's files, and what its help of `rembed completion` says
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(rembed completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -u; eval "$(rembed completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "rembed completion fish | source"),
}


class Typed:
    """An interactive shell whose keys are pressed here, and what one sees of it."""

    def __init__(self, name, folder):
        (folder / "rembed").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rembed_keras "$@"\n')
        (folder / "rembed").chmod(0o755)
        own, theirs = pty.openpty()
        there = {
            "PATH": f"{folder}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "HOME": str(folder),
        }
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *SHELLS[name][0]],  # fish reads of a terminal of its own alone
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=there,
            cwd=folder,
        )
        os.close(theirs)
        self.keys, self.seen = own, ""

    def press(self, keys, until):
        """Presses keys and waits for a text."""
        self.seen = ""
        os.write(self.keys, keys.encode())
        ends = time.monotonic() + 60
        while until not in self.line() and time.monotonic() < ends:
            if select.select([self.keys], [], [], 0.5)[0]:
                self.seen += os.read(self.keys, 4096).decode(errors="replace")
        assert until in self.line()

    def line(self):
        """What was written since, without what moves the cursor."""
        return re.sub(r"\x1b\[\??[0-9;]*[a-zA-Z]|\x08", "", self.seen)

    def close(self):
        os.close(self.keys)
        self.process.kill()
        self.process.wait()


@pytest.fixture(params=SHELLS)
def shell(request, tmp_path):
    if shutil.which(request.param, path="/usr/bin:/bin") is None:
        pytest.skip(f"{request.param} is not installed")
    typed = Typed(request.param, tmp_path)
    typed.press(f'{SHELLS[request.param][1]}; echo re""ady\n', until="\nready\r\n")
    yield typed
    typed.close()


def test_a_shell_completes_commands_recipes_and_knobs(shell, tmp_path):
    shell.press("rembed ins\t", until="rembed inspect ")
    shell.press("recipes/quicks\t", until="recipes/quickstart.gin ")
    shell.press("STE\t", until="STEPS=")
    shell.press("3 ST\t", until="STRATEGY=")  # STEPS is given
    shell.press("x --js\t", until="--json ")
    line = "rembed inspect recipes/quickstart.gin STEPS=3 STRATEGY=x --json"  # no space between a knob and its value
    shell.press("\x01echo \x05\n", until=f"\n{line}\r\n")
    (tmp_path / "own_recipe.gin").touch()
    shell.press("\x15rembed run own_\t", until="own_recipe.gin")


def test_shells_get_scripts_and_others_a_list(command, tmp_path):
    for shell, word in (("zsh", "compdef"), ("fish", "complete --no-files --command rembed")):
        code, out, _ = command("completion", shell, cwd=tmp_path)
        assert code == 0 and word in out and "_REMBED_COMPLETE" in out
    code, _, err = command("completion", "tcsh", cwd=tmp_path)
    assert code == 2 and "'bash', 'zsh', 'fish'" in err


def test_knobs_of_a_recipe_with_parts_of_ones_own_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").touch()
    (tmp_path / "own.gin").write_text(
        "from __gin__ import dynamic_registration\nimport mine\nSTEPS = 3  # batches\nmine.part.steps = %STEPS\n"
    )
    shell = ShellComplete(rembed, {}, "rembed", "_REMBED_COMPLETE")
    for words in (["--allow-import", "mine", "own.gin"], ["own.gin", "--allow-import", "mine"]):
        (found,) = shell.get_completions(["inspect", *words], "ST")
        assert (found.value, found.help) == ("STEPS=", "batches")
    assert shell.get_completions(["inspect", "own.gin"], "ST") == []


def test_files_are_completed_where_one_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = ShellComplete(rembed, {}, "rembed", "_REMBED_COMPLETE")
    words = [["report"], ["report", "a", "--against"], ["convert", "a"], ["predict", "a"], ["prepare"]]
    words += [["inspect", "recipes/quickstart.gin", *own] for own in (["TEXT_DIR"], ["STEPS=3", "TEXT_DIR", "="])]
    for each in words:
        assert [(found.type, found.value) for found in shell.get_completions(each, "te")] == [("file", "te")], each
    in_bash = shell.get_completions(["inspect", "recipes/quickstart.gin", "STEPS", "=", "3"], "ST")
    assert [found.value for found in in_bash] == ["STRATEGY="]
