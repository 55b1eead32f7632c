"""A stranger's first half hour: the README's commands and the first notebook, to the letter, in a fresh clone.

`make test-readme` runs it. `make test`, which is one of the README's commands, is left to whoever runs these tests.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from tests.docs.test_notebooks import SAID

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = "".join(text for language, text in BLOCKS if not language)

pytestmark = pytest.mark.skipif("FIRST_STEPS" not in os.environ, reason="make test-readme runs it")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of what is committed."""
    folder = tmp_path_factory.mktemp("first") / "rembed_keras"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def terminal(clone, users_environment):
    """Runs commands in one shell, in the clone; gives what they print."""
    own = str(Path(sys.executable).parent)
    path = os.pathsep.join(each for each in users_environment["PATH"].split(os.pathsep) if each != own)
    environment = users_environment | {"PATH": path}

    def run(commands):
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail"],
            input=commands,
            cwd=clone,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    return run


def test_the_readme_is_followed_to_the_letter(terminal, clone):
    commands = [line for line in COMMANDS.splitlines() if not line.startswith("make test")]
    assert [line.split("#")[0].split()[:2] for line in commands][-1] == ["make", "quickstart"]
    printed = terminal("\n".join(commands))
    (total,) = re.findall(r"^\| \*\*parameters\*\*.*$", README, re.MULTILINE)
    for number in re.findall(r"[\d,]+", total):
        assert number in printed, printed[-4000:]
    (row,) = re.findall(r"^\| `make quickstart`.*$", README, re.MULTILINE)
    rows = json.loads((clone / "runs/quickstart/scores.json").read_text(encoding="utf-8"))
    scores = [each for each in rows if each["task"] == "topics" and each["system"] == "pretrained"]
    english = [each["value"] for each in scores if each["language"] == "en"]
    others = [each["value"] for each in scores if each["language"] != "en"]
    for found, (mean, deviation) in zip((english, others), re.findall(r"([\d.]+) ±([\d.]+)", row), strict=True):
        # machines round elsewhere
        assert 100 * fmean(found) == pytest.approx(float(mean), abs=2 * float(deviation))


def test_the_python_of_the_readme_prints_what_it_says(terminal):
    terminal("source .venv/bin/activate\npython -m doctest README.md")


def test_the_first_notebook_runs_at_full_size(terminal, clone):
    terminal(
        "source .venv/bin/activate\n"
        "python -m pip install --quiet nbclient ipykernel\n"
        "jupyter execute --inplace notebooks/five_minutes.ipynb"
    )
    printed = printed_by(clone / "notebooks/five_minutes.ipynb")
    for said in SAID["five_minutes"]:  # its accuracy too
        assert said in printed, printed


def printed_by(notebook):
    """What the cells of an executed notebook printed."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "".join(line for cell in cells for output in cell.get("outputs", []) for line in output.get("text", []))
