"""The folder of a run, for what fine-tunes."""

import pytest

from rembed_keras.training.loop.workdir import Workdir


@pytest.fixture
def workdir(corpus, tmp_path):
    """A run's folder that has the shared corpus."""
    made = Workdir(tmp_path / "run")
    (made.path / "corpus").symlink_to(corpus.path)
    yield made
    made.close()
