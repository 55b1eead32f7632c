"""Every sink, of a run that was killed and went on: each row of the log once, with the log's numbers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from rembed_keras import training
from rembed_keras.errors import DivergedError, UserError
from rembed_keras.interruption import Interrupted, PeerLost
from rembed_keras.training.loop.workdir import MEASURED
from rembed_keras.training.sinks import MLflow, TensorBoard, WeightsAndBiases
from rembed_keras.training.sinks.sink import Watch, Watched
from rembed_keras.training.stages.run import RunRecord

MODULES = {"TensorBoard": "tensorboard", "WeightsAndBiases": "wandb", "MLflow": "mlflow"}
LIVES = """
import os, signal, sys
from pathlib import Path
from rembed_keras.config.backend import import_framework
import_framework()
import conftest
conftest.work_quickly()
import keras
from rembed_keras.data import Corpus
from rembed_keras.tasks.scores import Score
from rembed_keras.training import sinks
from rembed_keras.training.evaluators import FilledMasks, HeldOutLoss
from rembed_keras.training.loop.workdir import Workdir
from tests.training.pretraining import eagerly, learn, make_frozen

folder, corpus, sink = Path(sys.argv[1]), Corpus(sys.argv[2]), sys.argv[3]

class Killer(keras.callbacks.Callback):
    at = None

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

for Killer.at, code in ((6, -signal.SIGKILL), (None, 0)):
    process = os.fork()  # of what has imported all and computed nothing
    if not process:
        with eagerly():
            learn(folder, corpus, make_frozen, callbacks=[Killer], steps=8, log_every=2, checkpoint_every=3,
                  eval_every=4, evaluators=[HeldOutLoss(rows=4), FilledMasks()], sinks=[getattr(sinks, sink)()])
        sys.exit()
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert ended == code, ended
"""


def test_a_sink_needs_no_more_methods_than_it_has(tmp_path):
    drawn = []

    class Own:
        def draw(self, row):
            drawn.append(row)

    watch = Watch([Own()], Watched(tmp_path, "", None, list))
    watch.begin("pretrain", [])
    watch.draw({"step": 1})
    watch.show_pieces(None)
    watch.score([])
    watch.close()
    assert drawn == [{"step": 1}]


def test_a_run_has_one_identity_even_if_its_file_was_not_written_whole(tmp_path):
    (tmp_path / "run_id").write_text("")
    watched = Watched(tmp_path, "", None, list)
    assert len(watched.identity()) == 16 and watched.identity() == watched.identity()


@pytest.fixture(scope="module", params=MODULES)
def resumed(request, held_out_corpus, tmp_path_factory):
    """The folder of a run with one sink, killed at its step 6, after rows of steps 2 and 4 and a checkpoint of 3."""
    pytest.importorskip(MODULES[request.param], reason="make test-sinks installs and tests it")
    folder = tmp_path_factory.mktemp(request.param) / "one"
    words = [sys.executable, "-c", LIVES, str(folder), str(held_out_corpus.path), request.param]
    environment = os.environ | {"PYTHONPATH": "."}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return request.param, folder


def points(sink, folder):
    """(step, value) by name, as a sink's own reader gives them, in the order in which they are there."""
    return READERS[sink](folder)


def _tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for run in ("pretrain", "evaluation"):
        events = EventAccumulator(str(folder / "tensorboard" / run)).Reload()
        for tag in events.Tags()["scalars"]:
            if tag.startswith("pretrain/"):
                name = tag.removeprefix("pretrain/")
                found[f"{run}/{name}"] = [(event.step, event.value) for event in events.Scalars(tag)]
    return found


def _records(data):
    """Yields the records of a log in LevelDB's format, after the seven bytes that W&B begins it with."""
    place, record, block = 7, b"", 32768
    while place + 7 <= len(data):
        if (left := block - place % block) < 7:  # too few for the head of a record
            place += left
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def _logged(folder):
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    return [Record.FromString(data) for data in _records(path.read_bytes())]


def _weights_and_biases(folder):
    found = {}
    for record in _logged(folder):
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for name, value in row.items():
            run, _, rest = name.partition("/")
            if rest and rest != "step" and isinstance(value, int | float):
                found.setdefault(name, []).append((row[f"{run}/step"], value))
    return found


def _mlflow(folder):
    import mlflow

    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # which the run set in a process of its own
    client = mlflow.MlflowClient(tracking_uri=(folder / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("rembed-keras").experiment_id])
    return {
        name.replace(".", "/"): [
            (point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)
        ]
        for name in run.data.metrics
    }


READERS = {"TensorBoard": _tensorboard, "WeightsAndBiases": _weights_and_biases, "MLflow": _mlflow}


def test_a_killed_run_has_each_row_of_the_log_once(resumed):
    sink, folder = resumed
    found = points(sink, folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = {run: [row["step"] for row in rows if row["run"] == run] for run in ("pretrain", "evaluation")}
    assert steps == {"pretrain": [2, 4, 6, 8], "evaluation": [0, 4, 8]}
    for run, name in (("pretrain", "loss"), ("pretrain", "loss/de"), ("pretrain", "tokens"), ("evaluation", "loss")):
        expected = [(row["step"], row[name]) for row in rows if row["run"] == run]
        assert found[f"{run}/{name}"] == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]
    assert "pretrain/peak_memory_bytes" in found and "peak_memory_bytes" in MEASURED


def test_a_knob_that_changes_on_the_way_is_a_tag(tmp_path):
    """MLflow takes no second value of a parameter, and a resumed run may have another DTYPE."""
    mlflow = pytest.importorskip("mlflow", reason="make test-sinks installs and tests it")
    for dtype in ("float32", "bfloat16", "float32"):
        sink = MLflow()
        sink.open(Watched(tmp_path, f'SEED = 3\nDTYPE = "{dtype}"\n', None, list))
        sink.close()
        client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
        (run,) = client.search_runs([client.get_experiment_by_name("rembed-keras").experiment_id])
        assert run.data.params == {"SEED": "3", "DTYPE": "float32"}
        tags = {name: value for name, value in run.data.tags.items() if name.isupper()}
        assert tags.get("DTYPE", "float32") == dtype and "SEED" not in tags


ENDINGS = {  # by what ends the process: what MLflow has as the status, and Weights & Biases as the exit code
    "nothing": (None, "FINISHED", 0),
    "divergence": (DivergedError("the loss is nan"), "FAILED", 1),
    "a lost peer": (PeerLost("a peer process is lost"), "FAILED", 75),
    "SIGTERM": (Interrupted(signal.SIGTERM), "KILLED", 75),
    "SIGINT in a notebook": (KeyboardInterrupt(), "KILLED", 1),
}


def ends(folder, sinks, error):
    """A run of one stage, which ends by an error or, where that is None, well."""

    def stage(_):
        if error is not None:
            raise error

    with contextlib.suppress(BaseException if error else ()):
        training.run([stage], str(folder), RunRecord("STEPS = 3\n", str, None), sinks=sinks, chosen=[0])


@pytest.mark.parametrize("what", ENDINGS)
def test_a_sink_that_asks_for_it_gets_what_ended_the_run(what, tmp_path):
    seen, (error, _, _) = [], ENDINGS[what]

    class Asks:
        def break_off(self, error):
            seen.append(error)

        def close(self):
            seen.append("closed")

    class AsksNothing:
        def close(self):
            seen.append("closed too")

    try:
        raise LookupError  # which the caller handles, and is no matter of the run
    except LookupError:
        ends(tmp_path, [Asks(), AsksNothing()], error)
    assert seen == [*([error] if error else []), "closed", "closed too"]


def test_mlflow_has_how_a_run_ended_and_it_goes_on(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="make test-sinks installs and tests it")
    sinks = [MLflow()]
    for error, status, _ in [*ENDINGS.values(), ENDINGS["nothing"]]:
        ends(tmp_path, sinks, error)
        client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
        (found,) = client.search_runs([client.get_experiment_by_name("rembed-keras").experiment_id])
        assert found.info.status == status and found.info.end_time >= found.info.start_time


def test_weights_and_biases_has_how_a_run_ended(tmp_path):
    pytest.importorskip("wandb", reason="make test-sinks installs and tests it")
    sinks = [WeightsAndBiases()]
    for error, _, code in [ENDINGS["SIGTERM"], ENDINGS["divergence"], ENDINGS["nothing"]]:
        ends(tmp_path, sinks, error)
        until, found = time.monotonic() + 60, []
        while not found and time.monotonic() < until:  # a process of theirs writes the file, perhaps a moment later
            found = [each.exit.exit_code for each in _logged(tmp_path) if each.HasField("exit")]
        assert found == [code]


def test_what_is_not_installed_is_named(monkeypatch):
    for make, module in ((WeightsAndBiases, "wandb"), (MLflow, "mlflow")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UserError, match=rf"{module} is not installed: pip install 'rembed-keras\[{module}\]'"):
            make()
    assert TensorBoard()
