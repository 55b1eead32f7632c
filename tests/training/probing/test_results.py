"""Tables of layers, in a terminal of any width."""

import pytest

from rembed_keras.tasks.scores import Score
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.probing.results import Probed

SYSTEMS = ("pretrained", "untrained", "finetuned", "tfidf", "majority")


@pytest.mark.parametrize("width", [30, 50, 70])
def test_scores_by_layer_keep_all_digits(width, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        Score("probe/topics/layer0", language, "accuracy", 0.1 + 0.01 * number, 0, 9, system)
        for number, system in enumerate(SYSTEMS)
        for language in ("en", "de")
    ]
    with Workdir(tmp_path / "run") as workdir:
        Probed("probe/topics", "en", ["accuracy"], rows, 1).publish(workdir)
    shown = capsys.readouterr().out
    assert all(f"1{number}.0" in shown and system in shown for number, system in enumerate(SYSTEMS))
