import sys

import pytest

from rembed_keras.analysis.studies import processes
from rembed_keras.analysis.studies.processes import Job
from tests.analysis.studies.two_arms import RUN, STUDY


@pytest.fixture
def study(tmp_path, monkeypatch, command):
    """Runs `rembed study` here, with a script in place of every run."""
    (tmp_path / "own.gin").write_text(STUDY)
    (tmp_path / "run.py").write_text(RUN)
    words = property(lambda job: [sys.executable, "-S", str(tmp_path / "run.py"), *job.command])  # without packages
    monkeypatch.setattr(Job, "words", words)
    monkeypatch.setattr(processes, "POLL", 0.01)
    return lambda *bindings: command("study", "own.gin", *bindings, cwd=tmp_path)
