"""What becomes of finished work when Beam's runner fails: a stand-in for Beam does everything in this process."""

import errno
import shutil
import sys
import types

import pytest

from rembed_keras.data.prepare import shards
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.prepare.jobs import WorkerLostError
from rembed_keras.data.prepare.preparation import staging_folder
from rembed_keras.errors import UserError


class KilledWorkerError(Exception):
    """As of Dask, which is not installed here."""

    __module__ = "distributed.scheduler"


class Step:
    """A step of a pipeline, which is one after another."""

    def __init__(self, runner, elements=(), function=None):
        self.runner, self.elements, self.function = runner, elements, function

    def __rrshift__(self, label):
        self.runner.what = label
        return self

    def __ror__(self, before):
        self.runner.elements = [*self.elements]
        return self

    def __or__(self, after):
        self.runner.function = after.function
        return after


class Runner:
    """Beam, as far as `BeamWorkers` knows it."""

    def __init__(self):
        self.fails, self.done = {}, []
        self.Pipeline = lambda options: self
        self.Create = lambda elements: Step(self, elements)
        self.Reshuffle = lambda: Step(self)
        self.Map = lambda function: Step(self, function=function)
        self.result = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.done.append(self.what)
        self.fails.get(self.what, lambda: None)()
        if self.what not in self.fails:
            for element in self.elements:
                self.function(element)


@pytest.fixture
def runner(monkeypatch):
    made, options = Runner(), types.SimpleNamespace(PipelineOptions=list)
    monkeypatch.setitem(sys.modules, "apache_beam", made)
    monkeypatch.setitem(sys.modules, "apache_beam.options.pipeline_options", options)
    return made


@pytest.fixture
def preparing(runner, corpus, text_dir, tmp_path):
    """Prepares a little text by it."""
    (tmp_path / "text").mkdir()
    lines = (text_dir / "de.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "text/de.txt").write_text("".join(lines[:20]), encoding="utf-8")

    def start(*options, where="out"):
        return prepare(tmp_path / "text", tmp_path / where, tokenizer=corpus.tokenizer.path, beam=options)

    return start


def failing(error):
    def fail():
        raise error

    return fail


LOSSES = [
    OSError("Timed out trying to connect to tcp://10.0.0.1:8786 after 30 s"),
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    TimeoutError(),
    KilledWorkerError("all those workers died"),
]


@pytest.mark.parametrize("error", LOSSES, ids=repr)
def test_finished_work_outlives_a_lost_cluster(error, preparing, runner, tmp_path):
    said = str(error) or "TimeoutError"
    for stage in ("checksums", "tokens"):
        runner.fails = {stage: failing(error)}
        with pytest.raises(WorkerLostError) as raised:
            preparing()
        assert "the cluster" in str(raised.value) and said in str(raised.value)
        assert str(raised.value).endswith("the same command resumes")
    assert (staging_folder(tmp_path / "out") / "corpus/tokenizer.model").exists()
    kept = [path.stat().st_mtime_ns for path in (staging_folder(tmp_path / "out") / "notes").iterdir()]
    assert kept
    runner.fails = {}
    assert preparing().num_tokens == preparing(where="other").num_tokens


def test_a_cluster_that_is_lost_without_an_error_is_noticed(preparing, runner, tmp_path):
    """Dask's client gives up its futures when it finds no scheduler any more, and waits for them no longer."""
    closed = []

    def give_up():
        futures = [types.SimpleNamespace(status="finished"), types.SimpleNamespace(status="cancelled")]
        client = types.SimpleNamespace(close=lambda: closed.append(True))
        runner.result = types.SimpleNamespace(client=client, futures=futures)

    runner.fails = {"tokens": give_up}
    with pytest.raises(WorkerLostError, match="the cluster"):
        preparing()
    assert closed == [True]
    runner.result, runner.fails = None, {"tokens": lambda: None}  # of a runner that says nothing
    with pytest.raises(WorkerLostError, match="do not see the folder"):
        preparing()
    assert (staging_folder(tmp_path / "out") / "corpus/tokenizer.model").exists()


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [FULL, OSError("No space left on device")], ids=repr)
def test_errors_of_jobs_and_a_full_disk_are_none_of_the_cluster(error, preparing, tmp_path, monkeypatch):
    def write_part(*_):
        raise error

    monkeypatch.setattr(shards, "write_part", write_part)
    with pytest.raises(UserError, match="out cannot be written: No space left on device") as raised:
        preparing()
    assert not isinstance(raised.value, WorkerLostError)
    assert not staging_folder(tmp_path / "out").exists()


def test_a_full_disk_of_this_machine_is_none_of_the_cluster(preparing, runner):
    runner.fails = {"tokens": failing(FULL)}
    with pytest.raises(UserError, match="out cannot be written: No space left on device"):
        preparing()


def test_a_programs_own_mistake_stays_as_it_is(preparing, runner):
    runner.fails = {"tokens": failing(ZeroDivisionError("division by zero"))}
    with pytest.raises(ZeroDivisionError):
        preparing()


@pytest.mark.parametrize("form", ["{}={}", "{} {}"])
def test_a_scheduler_file_that_is_missing_is_not_waited_for(form, preparing, runner, tmp_path):
    options = form.format("--dask_scheduler_file", tmp_path / "scheduler.json").split()
    with pytest.raises(UserError, match=r"scheduler\.json .*does not exist"):
        preparing("--runner=DaskRunner", *options)
    assert not runner.done
    (tmp_path / "scheduler.json").touch()
    assert preparing("--runner=DaskRunner", *options).num_tokens
    shutil.rmtree(tmp_path / "out")
    assert preparing("--runner=DirectRunner").num_tokens
