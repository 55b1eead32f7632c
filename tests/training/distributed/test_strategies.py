"""One recipe, the same curve, wherever it is computed, and however often it moves while it is under way.

The published recipe with a small model is run by real processes on devices of this machine: rows of the log must agree
with those of one device within 1e-5 of each number, in float32. No dropout: replicas of TensorFlow draw masks of their
own. Rows of the log and checkpoints lie apart, so a run that moves takes running means along.
"""

import json
import re
import shutil
import socket

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from rembed_keras import config
from tests.interruptions.forks import run_module

# threads of Gloo write a line piece by piece, so that pieces of two lines mix, and line ends follow each other
GLOO_SAYS = re.compile(
    r"(\[Gloo\] Rank |\d| is connected to | peer ranks\. Expected number of connected peer ranks is : )*"
)
STEPS, LOG_EVERY, CHECKPOINT_EVERY, EVAL_EVERY = 8, 2, 3, 5  # each is due where others are not
SMALL = [
    "VOCABULARY_SIZE=900",  # a multiple of 4, not of 8: tables of 8 devices are spread over 4, twice
    "INPUT_EMBEDDING_DIM=8",
    "OUTPUT_EMBEDDING_DIM=12",
    "NUM_LAYERS=1",
    "modeling.Encoder.num_heads=2",
    "modeling.Encoder.hidden_dim=16",
    "modeling.Encoder.intermediate_dim=32",
    "SEQUENCE_LENGTH=16",
    "BATCH_SIZE=8",
    "LEARNING_RATE=1e-2",
    "WARMUP_STEPS=2",
    f"STEPS={STEPS}",
    f"LOG_EVERY={LOG_EVERY}",
    f"CHECKPOINT_EVERY={CHECKPOINT_EVERY}",
    f"EVAL_EVERY={EVAL_EVERY}",
    "HELD_OUT=0.15",
    "evaluators.HeldOutLoss.rows=36",  # no whole number of batches
    "training.pretrain.keep_checkpoints=9",
]


class Runs:
    """Folders of runs of one recipe."""

    def __init__(self, folder, corpus, text_dir):
        self.folder, self.corpus, self.text_dir = folder, corpus, text_dir

    def command(self, name, strategy, more=()):
        """The command of a run, by which it is begun or goes on."""
        workdir = self.folder / name
        if not workdir.exists():
            workdir.mkdir()
            shutil.copytree(self.corpus, workdir / "corpus")
        return [
            "recipes/rembert.gin",
            *SMALL,
            f"STRATEGY={strategy}",
            f"WORKDIR={workdir}",
            f"TEXT_DIR={self.text_dir}",
            *more,
        ]

    def killed(self, name, step):
        """A copy of a run as it was when it had its checkpoint of a step, and had logged more since."""
        copy = f"{name}_from_{step}"
        shutil.copytree(self.folder / name, self.folder / copy)
        for path in (self.folder / copy / "checkpoints").iterdir():
            if int(path.name.removeprefix("step-")) > step:
                shutil.rmtree(path)
        (self.folder / copy / "finished.json").unlink()
        return copy

    def said(self, name):
        """What a forked process printed."""
        return (self.folder / f"{name}.txt").read_text()

    def rows(self, name, of):
        rows = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return [row for row in rows if row["run"] == of]

    def weights(self, name):
        """All arrays of the last checkpoint."""
        folder = self.folder / name / "checkpoints" / f"step-{STEPS:08d}"
        return {file.name + path: each for file in folder.glob("*.safe*") for path, each in load_file(file).items()}

    def assert_same(self, name, reference, evaluated=(0, 5, 8)):
        for of, steps in (("pretrain", (2, 4, 6, 8)), ("evaluation", evaluated)):
            ours, theirs = self.rows(name, of), self.rows(reference, of)
            assert [row["step"] for row in ours] == [row["step"] for row in theirs] == [*steps]
            for one, two in zip(ours, theirs, strict=True):
                assert one.keys() == two.keys() >= {"loss", "accuracy", "loss/de"}
                values = [
                    {k: v for k, v in row.items() if isinstance(v, float) and "second" not in k} for row in (one, two)
                ]
                assert values[0] == pytest.approx(values[1], rel=1e-5)
        for path, value in self.weights(name).items():
            np.testing.assert_allclose(value, self.weights(reference)[path], rtol=1e-3, atol=1e-5, err_msg=path)


def live(runs, name, backend):
    """Runs the lives of a module beside this one, in forks of a process of its own; gives the last line it printed."""
    words = [f"tests.training.distributed.{name}", runs.folder, runs.corpus, runs.text_dir]
    done = run_module(*words, KERAS_BACKEND=backend)
    said = {file.name: file.read_text(errors="replace")[-3000:] for file in runs.folder.glob("*.txt")}
    assert done.returncode == 0, f"{done.stderr[-2000:]}\n{said}"
    return json.loads(done.stdout.splitlines()[-1])


def free_ports(count):
    """Ports of this machine that nobody uses."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def assert_one_wrote(runs, name, said):
    others = [line for line in said[1].splitlines() if not GLOO_SAYS.fullmatch(line)]
    assert "pretrain 8/8" in said[0] and not others
    for of in ("pretrain", "evaluation"):
        (drawn,) = (runs.folder / name / "tensorboard" / of).iterdir()  # a file a writer
        assert drawn.is_file()


def assert_survived(runs):
    """The run `workers`, by two processes: one of them is killed, then one is asked to stop, then both go on.

    Of two others the first is killed while the second waits for nothing, and looks for itself.
    """
    codes = live(runs, "worker_lives", "tensorflow")
    said = [[runs.said(f"life{i}_worker{j}") for j in range(2)] for i in range(3)]
    assert codes == [[75, -9], [75, 75], [0, 0], [-9, 75]], said
    last = [[words.strip().splitlines()[-1] for words in life if words.strip()] for life in said[:2]]
    gone = "rembed: stopped because a peer process is lost: start all processes again; the same command resumes"
    assert last[0] == [gone]
    assert runs.said("waiting_worker1").strip().splitlines()[-1] == gone
    assert len({*last[1]}) == 1, last
    assert last[1][0].startswith("rembed: stopped by SIGTERM; pretrain is saved at step "), last
    assert_one_wrote(runs, "workers", said[2])


@pytest.fixture
def runs(tmp_path, held_out_corpus, text_dir):
    return Runs(tmp_path, held_out_corpus.path, text_dir)


@pytest.mark.slow
@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="once is enough")
@pytest.mark.usefixtures("without_graphs")
def test_tensorflow_takes_the_same_steps_on_one_two_and_four_devices_and_in_two_processes(runs):
    """Two processes' run goes on on four devices, and that on one; one device, where all is eager, is the measure."""
    assert_survived(runs)
    to_four = "workers_from_3"
    assert runs.said(to_four).count("pretrain: resuming from") == 1
    from_four = runs.killed(to_four, 6)
    for name in ("one", from_four):
        recipe, *bindings = runs.command(name, "one_device")
        config.run(config.load(recipe, bindings))
    for name in ("workers", to_four, from_four):
        runs.assert_same(name, "one")


@pytest.mark.slow
@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="once is enough")
def test_jax_takes_the_same_steps_on_one_and_eight_devices_and_in_two_processes_and_goes_on(runs):
    assert live(runs, "mesh_lives", "jax") == [0, 0, 0]
    assert_one_wrote(runs, "processes", [runs.said(f"process{index}") for index in range(2)])
    assert runs.said("eight").count("pretrain: resuming from") == 3
    for name in ("processes", "processes_from_3", "processes_from_6"):
        runs.assert_same(name, "one")
    runs.assert_same("galore", "galore_on_one", evaluated=())  # `processes` are on fully sharded matrices
    whole, ended = runs.weights("galore"), runs.weights("galore_from_3")
    assert whole.keys() == ended.keys() and all((value == ended[path]).all() for path, value in whole.items())
