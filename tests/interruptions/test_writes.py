"""Writes are atomic: whatever is written is there whole or not at all, after real kills and on full disks.

Jobs are forks of one process on Keras's NumPy backend, which has no threads, so that a kill costs milliseconds.
"""

import gc
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from rembed_keras.data import sample
from rembed_keras.data.writing import write_atomically
from tests.interruptions.forks import SEED, finish, start, survive

pytestmark = pytest.mark.slow
STEPS, EVERY, KILLS = 30, 4, 14
VOCABULARY = 1200
FORMATS = ("preset", "huggingface")
JOBS = ("training", "corpus", *FORMATS)


def train(folder: Path):
    """Training whose step is one line of NumPy, with the reads and writes of real training."""
    from rembed_keras.training.loop import checkpoints
    from rembed_keras.training.loop.workdir import Workdir

    workdir = Workdir(folder)
    found = checkpoints.latest(workdir.checkpoints)
    first, arrays = 0, {"a/kernel": np.ones((512, 256), "float32")}
    if found:
        first, arrays = found.step, found.arrays("encoder")
        checkpoints.tidy(workdir.checkpoints, first, every=EVERY)
    workdir.metrics.rewind("pretrain", first)
    for step in range(first + 1, STEPS + 1):
        arrays = {path: np.float32(1.01) * array + np.float32(1 / step) for path, array in arrays.items()}
        row = {"stage": "pretrain", "run": "pretrain", "step": step, "loss": float(arrays["a/kernel"][0, 0])}
        workdir.metrics.append(row)
        if step % EVERY == 0 or step == STEPS:
            parts = {"encoder": arrays, "head": {}, "optimizer": arrays}
            checkpoints.save(workdir.checkpoints, step, parts, {"running": [[step]]}, every=EVERY)
    write_atomically(workdir.path / "finished.json", "{}")


def prepare(text: Path, tokenizer: Path, folder: Path):
    """Shards of a folder of text."""
    from rembed_keras.data.prepare.corpora import prepare

    prepare(text, folder, tokenizer=tokenizer)


def digests(folder: Path) -> dict[str, str]:
    """Checksums of all files of a folder, without dates of creation."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".lock":
            data = path.read_bytes()
            if path.name == "metadata.json":
                data = json.dumps({k: v for k, v in json.loads(data).items() if not k.startswith("date")}).encode()
            found[str(path.relative_to(folder))] = hashlib.sha256(data).hexdigest()
    return found


def make_jobs(folder: Path) -> dict:
    """Jobs by name: functions of the folder that they write."""
    import keras

    from rembed_keras import interop
    from rembed_keras.data.text import read_lines
    from rembed_keras.data.tokenizers.sentence_piece import train_tokenizer
    from rembed_keras.modeling import Encoder, MaskedLM

    text, tokenizer = folder / "text", folder / "tokenizer.model"
    text.mkdir()
    for language, count in (("de", 150), ("ja", 80)):
        lines = list(filter(None, read_lines(Path(sample.text_folder()) / f"{language}.txt.gz")))[:count]
        (text / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = [line for language in ("de", "ja") for line in filter(None, read_lines(text / f"{language}.txt"))]
    code, output = run_in_fork(lambda: train_tokenizer(lines, tokenizer, VOCABULARY), folder)
    assert code == 0, output
    keras.utils.set_random_seed(0)
    model = MaskedLM(Encoder(VOCABULARY, 2, 4, 64, 128, 48, max_sequence_length=64), 48)

    def export(kind):
        return lambda target: interop.write(model, str(target), kind, tokenizer)

    return {"training": train, "corpus": lambda target: prepare(text, tokenizer, target)} | {
        kind: export(kind) for kind in FORMATS
    }


def run_in_fork(job, folder, file_size=None):
    output = folder / "output.txt"
    code = finish(start(job, output, file_size))
    return code, output.read_text() if output.exists() else ""


def kill(name, job, folder):
    """Kills a job at least KILLS times, in as many folders as it takes; each ends in the same files."""
    begun = time.monotonic()
    code, output = run_in_fork(lambda: job(folder / "whole"), folder)
    assert code == 0, output
    longest = (time.monotonic() - begun) * 1.1
    whole, draw = digests(folder / "whole"), random.Random(f"{SEED}/{name}")
    kills = rounds = 0
    while kills < KILLS:
        target = folder / f"round{rounds}"

        def check(target=target):
            if name == "training":
                check_training(target)
            else:  # whole or absent
                assert not target.exists() or digests(target) == whole

        said = folder / "output.txt"
        kills += survive(
            lambda target=target: None if _is_made(name, target) else job(target), said, draw, longest, check
        )
        differing = digests(target).items() ^ whole.items()
        assert not differing, f"{name}, round {rounds}, KILL_SEED {SEED}: {differing}"
        assert not list(folder.glob(".*")), list(folder.glob(".*"))
        shutil.rmtree(target)
        rounds += 1
    return {"kills": kills, "rounds": rounds}


def _is_made(name, target):
    """An export that exists is not repeated, since that is refused."""
    return name in FORMATS and target.exists()


def check_training(target):
    """The newest checkpoint is whole, and its numbers are those of its step."""
    from rembed_keras.training.loop import checkpoints

    output = []
    found = checkpoints.latest(target / "checkpoints", output.append)
    assert not output, output
    if found:
        value = np.ones((), "float32")
        for step in range(1, found.step + 1):
            value = np.float32(1.01) * value + np.float32(1 / step)
        assert (found.arrays("encoder")["a/kernel"] == value).all()


def fill(name, job, folder, disk):
    """Runs a job with ever more disk space; each time it succeeds, or reports one line and leaves nothing."""
    run_in_fork(lambda: job(folder / "whole"), folder)
    whole = digests(folder / "whole")
    largest = sum(path.stat().st_size for path in (folder / "whole").rglob("*"))
    outcomes = []
    for share in (0.0, 0.05, 0.2, 0.45, 0.7, 0.9, 4.0):
        room = int(share * largest)
        with disk.with_room(room) as (place, limit):
            target = place / "target"
            code, output = run_in_fork(lambda target=target: reported(lambda: job(target)), folder, limit)
            outcomes.append(code)
            assert code in (0, 2), output
            if code == 2:
                line = output.strip().splitlines()[-1]
                assert str(target) in line and "Traceback" not in output, output
                assert not list(place.rglob(".*writing*")), list(place.rglob("*"))
                check_training(target) if name == "training" else None
                assert name == "training" or not target.exists()
            (folder / "output.txt").unlink()
            if name == "training" and code == 2:
                log = target / "metrics.jsonl"
                assert not log.exists() or log.read_bytes()[-1:] in (b"\n", b"")
                disk.free()
                code, output = run_in_fork(lambda target=target: job(target), folder)
                assert code == 0, output
            assert code or digests(target) == whole
    assert 0 in outcomes and outcomes.count(2) >= 3, outcomes
    return {"outcomes": outcomes, "by": disk.name}


def reported(job):
    """Reports errors as the command line does, and files that cannot be written as `training.run` does."""
    from rembed_keras.cli.exits import reported_in_one_line
    from rembed_keras.errors import UserError

    with reported_in_one_line():
        try:
            job()
        except OSError as error:
            raise UserError(f"{error.filename}: {error.strerror}") from error


class Tmpfs:
    """A file system of its own that can be full."""

    name, size = "tmpfs", 16 * 2**20

    def __init__(self, place):
        self.place = place
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", str(place)]
        subprocess.run(command, check=True, capture_output=True)

    def __enter__(self):
        return self.place / "room", None

    def __exit__(self, *_):
        shutil.rmtree(self.place / "room")
        self.free()

    def with_room(self, room):
        (self.place / "room").mkdir()
        with open(self.place / "ballast", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(4096, self.size - room - 2 * 4096))
        return self

    def free(self):
        (self.place / "ballast").unlink(missing_ok=True)

    def close(self):
        subprocess.run(["umount", "--lazy", str(self.place)], check=True)


class SmallFiles:
    """Without the right to mount: a limit on the size of files."""

    name = "RLIMIT_FSIZE"

    def __init__(self, place):
        self.place = place

    def __enter__(self):
        return self.place, self.room // 3

    def __exit__(self, *_):
        shutil.rmtree(self.place)

    def with_room(self, room):
        self.place.mkdir()
        self.room = room
        return self

    def free(self):
        pass

    close = free


def main(folder: Path):
    sys.modules |= dict.fromkeys(("tensorflow", "sklearn", "matplotlib"))  # Keras would have what is there in each fork
    try:
        disk = Tmpfs(folder / "disk")
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(folder / "disk", ignore_errors=True)
        disk = SmallFiles(folder / "disk")
    report, jobs = {}, make_jobs(folder)
    gc.freeze()
    try:
        for name, job in jobs.items():
            places = [folder / f"{name}-{what}" for what in ("killed", "filled")]
            for place in places:
                place.mkdir()
            report[name] = {"killed": kill(name, job, places[0]), "filled": fill(name, job, places[1], disk)}
    finally:
        disk.close()
    print(json.dumps(report))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    command = [sys.executable, "-m", __spec__.name, str(tmp_path_factory.mktemp("writes"))]
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") and not subprocess.run([*own, "true"], check=False, capture_output=True).returncode:
        command = own + command
    environment = os.environ | {"KERAS_BACKEND": "numpy", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"KILL_SEED {SEED}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
    print(done.stdout)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_is_killed_while_it_writes_ends_in_the_same_files(report, job):
    assert report[job]["killed"]["kills"] >= KILLS


@pytest.mark.parametrize("job", JOBS)
def test_a_full_disk_is_reported_in_one_line_and_leaves_nothing(report, job):
    assert report[job]["filled"]["outcomes"].count(2) >= 3


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as scratch:
        main(Path(scratch))
