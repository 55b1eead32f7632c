"""Files are written whole, or stay as they were."""

import errno
import fcntl
import itertools
import math
import os

import pytest
import tokenizers

from rembed_keras.analysis.reports.comparison import ScoreRow
from rembed_keras.analysis.reports.report import Report
from rembed_keras.analysis.studies.processes import is_held
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.writing import write_atomically, written_together
from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Labelled
from rembed_keras.tasks.suites.submissions import write_glue
from rembed_keras.tasks.suites.xtreme_submissions import write_labels
from rembed_keras.training.loop.workdir import Workdir
from tests.data.tokenizers.trained import SPECIAL

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


@pytest.mark.any_backend
def test_files_of_a_report_are_of_one_report_wherever_the_disk_is_full(tmp_path, monkeypatch):
    WRITERS["report"](tmp_path, "old")
    before, written, sync = contents(tmp_path), itertools.count(1), os.fsync

    def full(file):
        if next(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="cannot be written: No space left") as refused:
        WRITERS["report"](tmp_path, "new")
    assert str(refused.value).startswith(str(tmp_path))  # a run that tabulates has no option of it
    assert contents(tmp_path) == before and {*map(os.path.basename, tmp_path.iterdir())} == before.keys()


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json"])
def test_a_copy_of_a_tokenizer_is_there_whole_or_as_it_was(name, corpus, tmp_path, monkeypatch):
    path = corpus.path / name
    if name == "tokenizer.json":
        path = tmp_path / name
        pieces = {piece: number for number, piece in enumerate(SPECIAL)}
        tokenizers.Tokenizer(tokenizers.models.WordPiece(pieces, unk_token="[UNK]")).save(str(path))
    (tmp_path / "copy").mkdir()
    tokenizer = open_tokenizer(path)
    tokenizer.copy_to(tmp_path / "copy")
    before = contents(tmp_path / "copy")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        tokenizer.copy_to(tmp_path / "copy")
    assert contents(tmp_path / "copy") == before and [*before] == [name]


def test_a_file_system_without_locks_has_nothing_in_use(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refused)
    Workdir(tmp_path / "run").close()
    assert not is_held(tmp_path / "run")  # or a study would wait for it
    monkeypatch.undo()
    held = Workdir(tmp_path / "run")
    assert is_held(tmp_path / "run")
    held.close()
    assert not is_held(tmp_path / "run")


@pytest.mark.any_backend
def test_a_folder_that_a_killed_process_left_goes_and_one_that_is_written_stays(tmp_path):
    left = tmp_path / ".1.writing"
    left.mkdir()
    (left / "report.md").write_text("half")
    with written_together(tmp_path) as live:
        assert not left.exists()
        (live / "report.md").write_text("whole")
        with written_together(tmp_path):
            assert live.exists()
    assert {file.name for file in tmp_path.iterdir()} == {"report.md"}
