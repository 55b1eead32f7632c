"""A run that is killed or stopped at random moments and resumed ends in the same bits as an undisturbed one.

These are forks of one process that has imported what the command line imports, TensorFlow too, and started nothing of
it: each runs `rembed_keras.cli.main` as a user's command does, but for optimization of graphs that a few steps do not
repay. `make soak` does the same with whole processes for long.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from rembed_keras.training.loop.workdir import MEASURED
from tests.interruptions.forks import SEED, after, command, copy_as_killed, finish, import_once, run_module, start, stop

pytestmark = pytest.mark.slow
STEPS = 24
RECIPE = f"""\
from __gin__ import dynamic_registration
from rembed_keras import modeling
from rembed_keras import training
include "gin/models/tiny.gin"
include "gin/objectives/masked_lm.gin"
include "gin/optimizers/adamw.gin"
include "gin/runtime/pretrain.gin"
include "gin/data/mixture.gin"
STEPS = {STEPS}
NUM_LAYERS = 1
CHECKPOINT_EVERY = 5
LOG_EVERY = 3
WARMUP_STEPS = 4
modeling.Encoder.hidden_dim = 16
modeling.Encoder.intermediate_dim = 32
modeling.Encoder.dropout = 0.1
VOCABULARY_SIZE = 900
BATCH_SIZE = 8
SEQUENCE_LENGTH = 32
training.pretrain.corpus = "corpus"
training.pretrain.jit_compile = False
training.run.stages = [@training.pretrain]
"""
# several objectives, one with a weight that changes by step, in micro-batches
SUM = """\
from __gin__ import dynamic_registration
from rembed_keras.modeling import objectives
include "tiny.gin"
include "gin/objectives/masked_lm_and_replaced_tokens.gin"
GENERATOR_LAYERS = 1
GENERATOR_SCALE = 0.5
OBJECTIVE_WEIGHTS = [1.0, {0: 0.1, 7: 2.0, 15: 0.5}]
objectives.Sum.micro_batches = 2
"""


def rows_of(folder):
    """Rows of a log without timings."""
    if not (folder / "metrics.jsonl").exists():
        return []
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in MEASURED} for line in lines]


def logged(output, count):
    """A moment: when a process has printed `count` rows of its log."""
    return lambda: output.exists() and output.read_text(errors="replace").count(f"/{STEPS} \u00b7 loss") >= count


def then(first, draw, longest):
    """A moment that is a random time after another."""
    second = []

    def is_time():
        if not second and first():
            second.append(after(draw.uniform(0.0, longest)))
        return bool(second) and second[0]()

    return is_time


def last_line(output):
    return output.read_text().strip().splitlines()[-1]


def end_as(whole, folder):
    """Asserts that two runs ended in the same log and the same bits."""
    assert rows_of(folder) == rows_of(whole)
    for file in (whole / f"checkpoints/step-{STEPS:08d}").iterdir():
        ours = folder / file.relative_to(whole)
        assert ours.read_bytes() == file.read_bytes(), f"{ours}, KILL_SEED {SEED}"
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"step-00000020", f"step-{STEPS:08d}"}


def runs():
    """Kills, a full disk, a stop, a damaged checkpoint and two starts of one run; exit codes and a line."""
    draw, output = random.Random(SEED), Path("output.txt")
    whole, hurt = Path("whole"), Path("hurt")
    assert finish(start(command("run", "tiny.gin", "WORKDIR=whole"), output)) == 0, output.read_text()
    job = command("run", "tiny.gin", "WORKDIR=hurt")
    lives = [Path(f"life{number}.txt") for number in range(4)]
    codes = [stop(start(job, lives[0]), after(draw.uniform(0.0, 2.0)))]  # while it starts
    codes.append(finish(start(job, lives[1], file_size=100_000)))
    full = last_line(lives[1])
    assert not list(hurt.rglob("*writing*"))
    codes.append(stop(start(job, lives[2]), logged(lives[2], 1), signal.SIGTERM))
    stopped = last_line(lives[2])
    assert stopped.startswith("rembed: stopped by SIGTERM; pretrain is saved at step "), stopped
    assert stopped.endswith(f" of {STEPS}; the same command resumes"), stopped
    codes.append(
        stop(start(job, lives[3]), lambda: len(regular(hurt)) > (1 if any(hurt.glob("checkpoints/.writing-*")) else 3))
    )
    assert codes[-1] == -signal.SIGKILL, lives[3].read_text()
    *_, good, damaged = regular(hurt)
    flip(damaged / "head.safetensors")
    first = Path("first.txt")
    process = start(job, first)
    while not first.exists() or "tensorboard" not in first.read_text():  # it has locked the folder then
        time.sleep(0.001)
    os.kill(process, signal.SIGSTOP)  # so that it cannot end meanwhile
    second = Path("second.txt")
    assert finish(start(job, second)) == 2, second.read_text()
    os.kill(process, signal.SIGCONT)
    assert last_line(second) == "rembed: WORKDIR hurt is in use by another process: wait for it or choose another"
    assert finish(process) == 0, first.read_text()
    assert f"{damaged.name} is passed over: head.safetensors is damaged" in first.read_text()
    assert f"pretrain: resuming from {good}" in first.read_text()
    end_as(whole, hurt)
    return {"codes": codes, "full": full}


def regular(folder):
    """Checkpoints of steps after which one is due, which stay when there are newer ones; the newest is the last."""
    return sorted(folder.glob("checkpoints/step-*[05]"))


def objectives():
    """A run of several objectives at once, and what a kill between its checkpoints leaves of it, resumed."""
    whole, hurt, output = Path("whole_sum"), Path("hurt_sum"), Path("sum.txt")
    process = start(command("run", "sum.gin", f"WORKDIR={whole}"), output)
    moment = then(logged(output, 2), random.Random(SEED), 0.2)  # step 5 has a checkpoint then
    assert copy_as_killed(process, moment, whole, hurt), output.read_text()
    assert finish(process) == 0 and not (hurt / "finished.json").exists(), output.read_text()
    assert finish(start(command("run", "sum.gin", f"WORKDIR={hurt}"), output)) == 0, output.read_text()
    assert f"resuming from {hurt}/checkpoints" in output.read_text()
    end_as(whole, hurt)
    return {"rows": rows_of(hurt)}


def damage():
    """Runs with a damaged shard or tokenizer."""
    output, lines = Path("damaged.txt"), []
    for file in ("en.array_record", "tokenizer.model"):
        shutil.copytree("corpus", "good")
        flip(Path("corpus", file))
        assert finish(start(command("run", "tiny.gin", f"WORKDIR={file}"), output)) == 2, output.read_text()
        lines.append(last_line(output))
        shutil.rmtree("corpus")
        Path("good").rename("corpus")
    return {"lines": lines}


def flip(path):
    """Flips a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def exports():
    """Kills, stops and full disks of `rembed convert` to a SavedModel; returns the exit codes."""
    draw, output, target = random.Random(SEED), Path("converted.txt"), Path("served")
    job = command("convert", "whole", target, "--from", "run", "--to", "savedmodel", "--tokenizer", TOKENIZER)
    writing = Path(".served.writing")
    numbers = (signal.SIGTERM, signal.SIGKILL)  # the latter leaves files, which the next must replace
    codes = [stop(start(job, output), then(writing.exists, draw, 0.6), number) for number in numbers]
    assert not target.exists()
    codes.append(finish(start(job, output, file_size=100_000)))
    lines = [last_line(output)]
    assert not target.exists() and not writing.exists()
    codes.append(finish(start(job, output)))
    assert (target / "saved_model.pb").exists() and not writing.exists()
    return {"codes": codes, "lines": lines}


TOKENIZER = "corpus/tokenizer.model"


def main(folder):
    import_once()
    os.chdir(folder)
    Path("tiny.gin").write_text(RECIPE)
    Path("sum.gin").write_text(SUM)
    print(json.dumps({"runs": runs(), "objectives": objectives(), "damage": damage(), "exports": exports()}))


@pytest.fixture(scope="module")
def report(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(corpus.path, folder / "corpus")
    done = run_module(__spec__.name, folder, KERAS_BACKEND="tensorflow")
    output = "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in folder.glob("*.txt"))
    assert done.returncode == 0, f"KILL_SEED {SEED}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}\n{output}"
    return json.loads(done.stdout.splitlines()[-1])


def test_a_run_that_is_killed_stopped_and_started_twice_ends_in_the_same_bits(report):
    """Its disk is full meanwhile, and its newest checkpoint damaged: the last good one is used."""
    codes, full = report["runs"]["codes"], report["runs"]["full"]
    assert codes.count(-signal.SIGKILL) >= 2 and codes.count(75) == 1 and codes.count(2) == 1
    assert full.startswith("rembed: checkpoint hurt/checkpoints/step-00000005 cannot be written") and "large" in full


def test_a_run_of_several_objectives_that_is_killed_ends_in_the_same_bits(report):
    weights = [row["replaced_token_detection/weight"] for row in report["objectives"]["rows"]]
    assert weights[0] == pytest.approx(0.1) and weights[-1] == pytest.approx(0.5)


def test_damage_of_a_corpus_is_named(report):
    shard, tokenizer = report["damage"]["lines"]
    remedy = "is damaged or missing: remove the corpus and prepare it again"
    assert shard == f"rembed: corpus/en.array_record {remedy}"
    assert tokenizer == f"rembed: corpus/tokenizer.model {remedy}"


def test_an_export_that_is_killed_or_has_a_full_disk_leaves_nothing(report):
    stopped, killed, full, whole = report["exports"]["codes"]
    assert (stopped, killed, full, whole) == (75, -signal.SIGKILL, 2, 0)
    assert report["exports"]["lines"][0].startswith("rembed: served cannot be written")


if __name__ == "__main__":
    main(sys.argv[1])
