"""Completion, typed into a bash on a terminal."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROMPT = "typed> "


class Typed:
    """An interactive bash whose keys are pressed here."""

    def __init__(self, folder):
        (folder / "rembed").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rembed_keras "$@"\n')
        (folder / "rembed").chmod(0o755)
        own, theirs = pty.openpty()
        there = {
            "PATH": f"{folder}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "PS1": PROMPT,
            "TERM": "dumb",
            "LANG": "C.UTF-8",
        }
        shell = ["bash", "--norc", "--noprofile", "-i"]
        self.process = subprocess.Popen(shell, stdin=theirs, stdout=theirs, stderr=theirs, env=there, cwd=folder)
        os.close(theirs)
        self.keys, self.seen = own, ""

    def press(self, keys, until):
        """Presses keys and waits for a text."""
        self.seen = ""
        os.write(self.keys, keys.encode())
        ends = time.monotonic() + 60
        while until not in self.seen and time.monotonic() < ends:
            if select.select([self.keys], [], [], 0.5)[0]:
                self.seen += os.read(self.keys, 4096).decode()
        assert until in self.seen
        return self.seen

    def close(self):
        os.close(self.keys)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def shell(tmp_path):
    typed = Typed(tmp_path)
    yield typed
    typed.close()


def test_bash_completes_commands_recipes_and_knobs(shell, tmp_path):
    shell.press('eval "$(rembed completion bash)"; echo re""ady\n', until=f"ready\r\n{PROMPT}")
    shell.press("rembed ins\t", until="rembed inspect ")
    shell.press("recipes/quicks\t", until="recipes/quickstart.gin ")
    shell.press("STE\t", until="STEPS=")
    shell.press("3 ST\t", until="STRATEGY=")  # STEPS is given
    shell.press("x --js\t", until="--json ")
    line = "rembed inspect recipes/quickstart.gin STEPS=3 STRATEGY=x --json"  # no space between a knob and its value
    shell.press("\x01echo \x05\n", until=f"\n{line}\r\n{PROMPT}")
    (tmp_path / "own_recipe.gin").touch()
    shell.press("\x15rembed run own_\t", until="own_recipe.gin")


def test_shells_get_scripts_and_others_a_list(command, tmp_path):
    for shell, word in (("zsh", "compdef"), ("fish", "complete --no-files --command rembed")):
        code, out, _ = command("completion", shell, cwd=tmp_path)
        assert code == 0 and word in out and "_REMBED_COMPLETE" in out
    code, _, err = command("completion", "tcsh", cwd=tmp_path)
    assert code == 2 and "'bash', 'zsh', 'fish'" in err
