"""End to end as a user runs it: real processes on real text, with real kills."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from rembed_keras.errors import UserError
from rembed_keras.training.loop.workdir import MEASURED
from tests.conftest import write_tiny_task
from tests.interruptions.forks import copy_as_killed
from tests.test_without_tensorflow import WITHOUT, without_tensorflow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guides/runs.md"
pytestmark = pytest.mark.slow

RECIPE = """\
from __gin__ import dynamic_registration
from rembed_keras import modeling
from rembed_keras import tasks
from rembed_keras import training
include "recipes/quickstart.gin"
NUM_LAYERS = 1
STEPS = 24
BATCH_SIZE = 8
SEQUENCE_LENGTH = 32
VOCABULARY_SIZE = 900
CHECKPOINT_EVERY = 5
LOG_EVERY = 3
WARMUP_STEPS = 4
LEARNING_RATE = 0.001
FINETUNE_EPOCHS = 1
FINETUNE_SEEDS = (0,)
FINETUNE_EXAMPLES = 8
modeling.Encoder.hidden_dim = 16
modeling.Encoder.intermediate_dim = 32
modeling.Encoder.dropout = 0.1
training.finetune.jit_compile = False
training.evaluate.jit_compile = False
training.prepare.text_dir = "{folder}/text"
tasks.labelled_folder.folder = "{folder}/task"
help/tasks.ParallelText.folder = "{folder}/help"
declarations/tasks.ParallelText.folder = "{folder}/udhr"
"""

COMMAND_AND_ENCODER = f"""
{WITHOUT}
from rembed_keras.cli import main
from rembed_keras.config.backend import import_framework
import_framework()
from tests.quickly import work_quickly
work_quickly()
main()
import keras
import numpy as np
from rembed_keras import Encoder
encoder, ids = Encoder(9, 1, 1, 4, 4, 2), np.ones((1, 3), "int32")
outputs = encoder({{"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids}})
print(keras.config.backend(), outputs["pooled_output"].shape)
"""


def rembed(*arguments, cwd, **environment):
    command = [sys.executable, "-m", "rembed_keras", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | {"KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory, text_dir):
    """A user's folder: a recipe, text, a task and parallel text."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "text").symlink_to(text_dir)
    write_tiny_task(folder / "task")
    for name, first in (("help", 0), ("udhr", 20)):
        (folder / name).mkdir()
        for language in ("de", "en"):
            lines = (text_dir / f"{language}.txt").read_text(encoding="utf-8").splitlines()[first : first + 20]
            (folder / name / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tiny.gin").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture(scope="module")
def finished(project):
    """A run; and beside it `killed`, what there was of it when one of two models was fine-tuned."""
    whole = project / "runs/whole"
    process = rembed("run", "tiny.gin", "WORKDIR=runs/whole", cwd=project)

    def one_is_trained():
        return any(whole.glob("finetuned/*/*/step-*"))

    assert copy_as_killed(process.pid, one_is_trained, whole, project / "runs/killed"), process.communicate()
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    return whole, out


def log(workdir):
    """Rows of the log without timings."""
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


def test_a_run_leaves_what_the_design_promises(finished):
    workdir, out = finished
    (tree,) = re.findall(r"^```\nruns/quickstart/\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    promised = set(re.findall(r"^  ([\w.]+)", tree, re.MULTILINE))
    assert len(promised) == 12 and {path.name for path in workdir.iterdir()} >= promised
    assert out.index("tensorboard --logdir runs/whole/tensorboard") < out.index("corpus:") < out.index("pretrain")
    assert "What is kept and what is dropped" in out
    assert "tokens/s" in out and "left" in out
    assert {path.name for path in (workdir / "checkpoints/step-00000024").iterdir()} == {
        "encoder.safetensors",
        "head.safetensors",
        "optimizer.safetensors",
        "state.json",
    }
    assert len(list((workdir / "checkpoints").iterdir())) == 2
    ledger = json.loads((workdir / "ledger.json").read_text())
    arrays = load_file(workdir / "checkpoints/step-00000024/encoder.safetensors")
    assert sum(array.size for array in arrays.values()) == ledger["kept"]


def test_the_log_and_the_scores_have_the_promised_fields(finished):
    workdir, _ = finished
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    pretraining = [row for row in rows if row["stage"] == "pretrain"]
    assert [row["step"] for row in pretraining] == list(range(3, 25, 3))
    fields = {"stage", "step", "tokens", "loss", "accuracy", "learning_rate", "grad_norm", "tokens_per_second"}
    assert fields | {"loss/de", "loss/en", "loss/ja"} <= set(pretraining[-1])
    assert pretraining[-1]["tokens"] == 24 * 8 * 32
    scores = json.loads((workdir / "scores.json").read_text())
    retrieved = ("pretrained", "untrained", "tfidf", "chance")
    assert all({"task", "language", "metric", "value", "seed", "n"} <= set(score) for score in scores)
    assert {(score["task"], score["system"]) for score in scores} == {
        *(("topics", system) for system in ("pretrained", "scratch", "tfidf", "majority")),
        *((f"retrieval/{name}", system) for name in ("help", "udhr") for system in retrieved),
    }


def test_tensorboard_has_curves_and_texts_on_one_axis(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(run):
        return EventAccumulator(str(finished[0] / "tensorboard" / run)).Reload()

    board = read("pretrain")
    curves = {"loss", "accuracy", "loss/de", "learning_rate", "grad_norm", "tokens_per_second", "seconds_per_step"}
    curves |= {"tokens", "examples", "peak_memory_bytes", "training_flops_per_second"}
    assert {f"pretrain/{name}" for name in curves} <= set(board.Tags()["scalars"])
    assert [event.step for event in board.Scalars("pretrain/loss")] == list(range(3, 25, 3))
    assert [event.step for event in board.Scalars("by_tokens/pretrain/loss")] == [
        step * 8 * 32 for step in range(3, 25, 3)
    ]
    assert {"recipe", "ledger", "custom_scalars__config__"} <= set(read("recipe").Tags()["tensors"])
    (tuned, *_) = sorted((finished[0] / "tensorboard/finetune/topics").iterdir())
    assert "finetune/topics/loss" in read(tuned).Tags()["scalars"]
    assert {"final/pretrain/loss", "final/topics/accuracy/pretrained"} <= set(read("scores").Tags()["scalars"])


def test_the_same_command_on_a_finished_run_does_nothing(finished, project, command):
    before = {
        path: path.stat().st_mtime_ns for path in finished[0].rglob("*") if path.is_file() and path.name != ".lock"
    }
    code, out, _ = command("run", "tiny.gin", "WORKDIR=runs/whole", cwd=project)
    assert code == 0 and "runs/whole is finished; nothing to do" in out
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_another_recipe_is_kept_out_of_the_folder(finished, project, command):
    code, _, err = command("run", "tiny.gin", "WORKDIR=runs/whole", "LEARNING_RATE=0.5", cwd=project)
    assert code == 2 and err.strip().splitlines()[-1] == (
        "rembed: WORKDIR runs/whole is of another recipe: LEARNING_RATE is 0.001 there and 0.5 here; "
        "choose another WORKDIR"
    )


@pytest.mark.usefixtures("as_in_a_process")
def test_a_run_that_is_killed_while_it_fine_tunes_ends_in_the_same_bits(finished, project, command):
    """Kills during preparation are in data/prepare, those during pre-training in interruptions."""
    whole, _ = finished
    killed = project / "runs/killed"
    assert not (killed / "finished.json").exists()
    code, _, err = command("run", "tiny.gin", "WORKDIR=runs/killed", cwd=project)
    assert code == 0, err
    assert log(killed) == log(whole)
    assert json.loads((killed / "scores.json").read_text()) == json.loads((whole / "scores.json").read_text())
    ours, theirs = (sorted(path for path in run.glob("finetuned/**/*.*") if path.is_file()) for run in (killed, whole))
    for one, two in zip(ours, theirs, strict=True):
        assert one.read_bytes() == two.read_bytes(), one


@pytest.mark.usefixtures("as_in_a_process")
def test_the_operative_configuration_repeats_the_run(finished, project, command):
    whole, _ = finished
    shutil.copytree(whole / "corpus", project / "runs/again/corpus")  # taken if text and settings are the same
    code, _, err = command("run", "runs/whole/operative_config.gin", "WORKDIR=runs/again", cwd=project)
    assert code == 0, err
    assert log(project / "runs/again") == log(whole)


def test_jax_runs_the_same_recipe_where_there_is_no_tensorflow_and_an_encoder_beside_it(project):
    compiled = [f"training.{stage}.jit_compile=True" for stage in ("finetune", "evaluate")]  # eager otherwise
    done = without_tensorflow(COMMAND_AND_ENCODER, "run", "tiny.gin", "WORKDIR=runs/jax", *compiled, cwd=project)
    assert done.returncode == 0, done.stderr
    assert "retrieval/udhr: P@1" in done.stdout
    assert done.stdout.splitlines()[-1] == "jax (1, 4)"
    rows = log(project / "runs/jax")
    assert rows[7]["step"] == 24 and rows[7]["loss"] < rows[0]["loss"]
    assert json.loads((project / "runs/jax/environment.json").read_text())["backend"] == "jax"


def test_a_recipe_is_timed_and_leaves_nothing(project, command, tmp_path):
    code, out, err = command(
        "benchmark",
        project / "tiny.gin",
        "training.pretrain.jit_compile=False",
        "--steps",
        "4",
        "--out",
        "figures.json",
        cwd=tmp_path,
    )
    assert code == 0, err
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    assert figures["slowest_step_tokens_per_second"] <= figures["training_tokens_per_second"]
    assert figures["reading_tokens_per_second"] > 0
    assert 0 < figures["share_of_products"] < 1
    assert "tensorboard" not in out  # whose folder is gone
    assert f"{figures['training_tokens_per_second']:,.0f}" in out


def test_one_step_is_no_measurement():
    from rembed_keras.training import benchmark

    with pytest.raises(UserError, match="--steps is 1; at least 2 are needed"):
        benchmark(workdir=None, pretrain=None, mixture=None, steps=1)
