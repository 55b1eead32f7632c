"""Files are written whole, or stay as they were."""

import math

import pytest

from rembed_keras.analysis.reports.comparison import ScoreRow
from rembed_keras.analysis.reports.report import Report
from rembed_keras.data.writing import write_atomically
from rembed_keras.tasks.kinds.examples import Labelled
from rembed_keras.tasks.suites.submissions import write_glue
from rembed_keras.tasks.suites.xtreme_submissions import write_labels

ONE = [Labelled("0", "It is.", "It was.")]
ROW = ScoreRow("xnli", "accuracy", "de", 1, 9, 9, "a", None, None, "pretrained", 0.5, math.nan, 1, 0)
LABELS = {"old": "entailment", "new": "neutral"}
WRITERS = {  # of a folder, and of one of two contents
    "text": lambda folder, which: write_atomically(folder / "x.json", which),
    "bytes": lambda folder, which: write_atomically(folder / "x.json", which.encode()),
    "report": lambda folder, which: Report([], [ROW], [], [which]).write(folder),
    "glue": lambda folder, which: write_glue(folder, "mnli", ONE, [LABELS[which]]),
    "xnli": lambda folder, which: write_labels(folder, "xnli", ONE, [LABELS[which]], "de"),
}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.any_backend
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_is_written_whole_or_stays_as_it_was(write, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    write(tmp_path, "old")
    before = contents(tmp_path)
    with monkeypatch.context() as disk:
        disk.setattr("os.fsync", full)
        with pytest.raises(Exception, match="No space left"):
            write(tmp_path, "new")
    assert contents(tmp_path) == before
    write(tmp_path, "new")
    assert contents(tmp_path) != before
    assert contents(tmp_path).keys() == before.keys()
