"""Preparation on Beam, in an environment of its own, by its direct runner and on a cluster of Dask."""

import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from rembed_keras.data.prepare import survey
from rembed_keras.data.prepare.beam import BeamWorkers, all_but_first, keys_of, mark_part
from rembed_keras.data.prepare.cleaning import VERDICTS, Cleaning
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.prepare.jobs import Workers
from rembed_keras.data.prepare.sources import find_source
from rembed_keras.errors import UserError

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("BEAM_PYTHON", ROOT / ".venv-beam" / "bin" / "python"))
CLEANING = {"unicode_form": "NFC", "deduplicate": True, "near_duplicates": 0.7, "language_threshold": 0.9}
HELD_OUT = 0.2
ONE_BY_ONE = """\
import json
import sys
from rembed_keras.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["rembed", "prepare", *words]
    try:
        main()
        print("code 0")
    except SystemExit as end:
        print("code", end.code)
"""


def has_beam():
    packages = "apache_beam", "rensa", "py3langid"
    command = [PYTHON, "-c", f"from importlib.util import find_spec; exit(not all(map(find_spec, {packages})))"]
    return PYTHON.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def text(text_dir, tmp_path_factory):
    """A folder of text in which every verdict has its case."""
    if not has_beam():
        pytest.skip(f"{PYTHON} has no Apache Beam: `make beam` makes such an environment, or name one in BEAM_PYTHON")
    for library in ("rensa", "py3langid"):
        pytest.importorskip(library, reason="needs the extra: pip install 'rembed-keras[clean]'")
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(text_dir.iterdir())}
    texts = [
        {"text": line, "lang": language} for language in lines for line in [*lines[language][:90], *lines["de"][80:99]]
    ]
    texts += [text | {"text": f"{text['text']} etc."} for text in texts[:40]] + texts[5:25]
    folder = tmp_path_factory.mktemp("text")
    (folder / "all.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def local(text, corpus, tmp_path_factory):
    """What is prepared of it without Beam."""
    cleaning = Cleaning(**CLEANING, held_out=HELD_OUT)
    tokenizer = corpus.tokenizer.path
    folder = tmp_path_factory.mktemp("prepared") / "local"
    found = prepare(text, folder, tokenizer=tokenizer, cleaning=cleaning, shard_megabytes=0.01)
    counts = [sum(each[verdict] for each in found.verdicts.values()) for verdict in VERDICTS]
    assert all(counts), counts
    return found


@pytest.fixture
def beam(corpus):
    """Starts the same preparation by Beam, of (source, target, option), one after the other, with exit codes."""

    def start(*preparations):
        flags = ["--unicode-form=NFC", "--deduplicate", "--near-duplicates=0.7", "--language-threshold=0.9"]
        flags += ["--tokenizer", str(corpus.tokenizer.path), "--shard-megabytes", "0.01", f"--held-out={HELD_OUT}"]
        words = [[str(source), str(target), *flags, f"--beam={option}"] for source, target, option in preparations]
        command = [PYTHON, "-c", ONE_BY_ONE, json.dumps(words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=environment(), start_new_session=True, **pipes)

    return start


def environment():
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONPATH": str(ROOT)}


def codes(done, out, said):
    """The exit codes that a process of `beam` printed, which ends well itself."""
    assert done.returncode == 0, said
    return [int(line.split()[1]) for line in out.splitlines() if line.startswith("code ")]


@pytest.mark.slow
def test_beam_makes_the_same_corpus_without_tensorflow(beam, local, text, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text/all.jsonl").write_text(
        (text / "all.jsonl").read_text(encoding="utf-8") + "{}\n", encoding="utf-8"
    )
    refused = tmp_path / "text", tmp_path / "other"
    done = beam(
        (text, tmp_path / "beam", "--runner=DirectRunner"),
        (*refused, "--runner=DirectRunner"),
        (*refused, "--runner=NoRunner"),
    )
    out, said = done.communicate()
    assert codes(done, out, said) == [0, 2, 2], said
    assert digests(tmp_path / "beam") == digests(local.path)
    first, second = (line for line in said.splitlines() if line.startswith("rembed: "))
    assert "is not a JSON document" in first and "Unexpected pipeline runner" in second
    assert said.splitlines()[-1] == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beam", "text"]


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_makes_the_same_corpus(beam, local, text, tmp_path):
    scheduler = tmp_path / "cluster" / "scheduler.json"
    scheduler.parent.mkdir()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment(), "cwd": scheduler.parent}
    of_all = ["--scheduler-file", scheduler, "--no-dashboard"]
    words = [["scheduler", "--host=127.0.0.1", "--port=0"], *[["worker", "--nthreads=1", "--memory-limit=1GB"]] * 2]
    cluster = [
        subprocess.Popen([PYTHON.parent / "dask", *each, *of_all], start_new_session=True, **quiet) for each in words
    ]
    until = time.monotonic() + 120
    while not scheduler.exists() and time.monotonic() < until:
        time.sleep(0.01)
    options = f"--dask_scheduler_file={scheduler} --dask_partition_size=1"
    runner = "apache_beam.runners.dask.dask_runner.DaskRunner"
    done = beam((text, tmp_path / "beam", f"--runner={runner} {options}"))
    try:
        while done.poll() is None and not list(tmp_path.glob(".beam.writing/**/*.notes")):
            time.sleep(0.01)
        assert done.poll() is None
        os.killpg(cluster[1].pid, signal.SIGKILL)  # it and the process that would start it again
        out, said = done.communicate(timeout=900)
        assert codes(done, out, said) == [0], said
    finally:
        for process in (*cluster, done):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert digests(tmp_path / "beam") == digests(local.path)


@pytest.mark.slow
def test_a_cluster_that_cannot_be_reached_is_one_line(beam, text, tmp_path):
    options = "--dask_client_address=tcp://127.0.0.1:9 --dask_connection_timeout=1"  # where nothing listens
    done = beam((text, tmp_path / "beam", f"--runner=apache_beam.runners.dask.dask_runner.DaskRunner {options}"))
    out, said = done.communicate()
    assert codes(done, out, said) == [2], said
    reason = "Timed out trying to connect to tcp://127.0.0.1:9 after 1 s"
    assert said.splitlines()[-1] == f"rembed: the cluster cannot be reached: {reason}; the same command resumes"


def test_the_first_of_the_duplicates_is_kept_in_any_order_of_work():
    pieces = [
        (2, np.array([0, 3]), np.array([7, 7])),
        (0, np.array([9]), np.array([7])),
        (1, np.array([1]), np.array([5])),
    ]
    for order in (pieces, pieces[::-1], [*pieces, pieces[0]]):  # the last as of a worker whose work was done again
        assert [(part, places.tolist()) for part, places in all_but_first((None, order))] == [(2, [0, 3])]
    assert list(all_but_first((None, pieces[1:]))) == []


class Cluster(BeamWorkers):
    """Beam's stages without Beam, whose workers do everything twice, and the first stage's marks again in the end."""

    def __init__(self):
        self.marks = []

    def _mark(self, parts, notes, cleaning, passes, field, verdict):
        groups, by_part = defaultdict(list), {number: [np.zeros(0, int)] for number in range(len(parts))}
        for numbered in [*enumerate(parts)] * 2:
            for group, keys in keys_of(numbered, notes, cleaning, verdict, passes, field):
                groups[group].append(keys)
        for number, places in (found for group in groups.items() for found in all_but_first(group)):
            by_part[number].append(places)
        self.marks.append([(group, parts, notes, cleaning, verdict) for group in by_part.items()])
        for stage in self.marks[::-1]:
            for arguments in stage:
                mark_part(*arguments)


@pytest.mark.parametrize("deduplicate", [True, False])
def test_marks_are_the_same_however_often_and_late_they_are_made(text_dir, tmp_path, monkeypatch, deduplicate):
    pytest.importorskip("rensa", reason="needs the extra: pip install 'rembed-keras[clean]'")
    lines = (text_dir / "de.txt").read_text(encoding="utf-8").splitlines()[:150]
    (tmp_path / "text").mkdir()
    text = "\n".join([*lines, *lines, *(f"{line} etc." for line in lines[30:90]), ""])
    for language in ("de", "fr"):  # each with the other's text: duplicates are those of a language
        (tmp_path / f"text/{language}.txt").write_text(text, encoding="utf-8")
    parts = find_source(tmp_path / "text", 5000).parts
    cleaning = Cleaning(deduplicate=deduplicate, near_duplicates=0.7)
    for part in parts:
        survey.survey(part, tmp_path, cleaning, 10**6)
    Workers(1, 0, quiet=True).compare(parts, ["de", "fr"], tmp_path, cleaning)
    expected = [survey.read_notes(part, tmp_path, cleaning)["verdict"].copy() for part in parts]
    counts = np.bincount(np.concatenate(expected), minlength=len(VERDICTS))
    whole = any(set(verdicts) == {2} for verdicts in expected)  # a part of which nothing is left to compare
    assert len(parts) > 4 and whole == deduplicate and (counts[2] > 0) == deduplicate and counts[3] > 20
    monkeypatch.setattr("rembed_keras.data.prepare.beam.COMPARED", 50)  # several groups of each language
    random = np.random.default_rng(0)
    for part in parts:  # as an attempt with other settings left them
        notes = survey.read_notes(part, tmp_path, cleaning, "r+")
        notes["verdict"] = random.choice([0, 2, 3] if deduplicate else [0, 3], len(notes))
    Cluster().compare(parts, ["de", "fr"], tmp_path, cleaning)
    for part, verdicts in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(survey.read_notes(part, tmp_path, cleaning)["verdict"], verdicts)


def test_a_missing_beam_is_reported(text_dir, tmp_path):
    if importlib.util.find_spec("apache_beam") is not None:
        pytest.skip("Beam is installed here")
    with pytest.raises(UserError, match="Apache Beam is not installed, and needs an environment of its own"):
        prepare(text_dir, tmp_path / "out", beam=[])
