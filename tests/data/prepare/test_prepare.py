"""Preparation at scale: several processes and shards, kills, and resuming."""

import errno
import gzip
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.prepare import jobs
from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.prepare.preparation import staging_folder
from rembed_keras.data.text import read_exact_lines
from rembed_keras.data.tokenizers.sentence_piece import train_tokenizer
from rembed_keras.errors import UserError

ROOT = Path(__file__).parents[3]
SHARD = 0.008  # megabytes
PREPARE = (
    "import sys; from rembed_keras.data.prepare import jobs; jobs.LEAST = 10_000\n"
    "from rembed_keras.data.prepare.corpora import prepare\n"
    "from rembed_keras.data.prepare.cleaning import Cleaning\n"
    "if len(sys.argv) > 5:  # never ends by itself\n"
    "    import os, time; os.rename = lambda *_: time.sleep(900)\n"
    "settings = {'tokenizer': sys.argv[3], 'cleaning': Cleaning(held_out=float(sys.argv[4])), 'processes': 2}\n"
    f"prepare(*sys.argv[1:3], shard_megabytes={SHARD}, **settings)"
)


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def mixed_dir(text_dir, tmp_path_factory):
    """The shared text, one of its files compressed."""
    folder = tmp_path_factory.mktemp("mixed")
    for path in text_dir.iterdir():
        shutil.copy(path, folder)
    (folder / "de.txt.gz").write_bytes(gzip.compress((folder / "de.txt").read_bytes()))
    (folder / "de.txt").unlink()
    return folder


@pytest.fixture(scope="module")
def sharded(mixed_dir, corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded") / "corpus"
    return prepare(mixed_dir, folder, tokenizer=corpus.tokenizer.path, shard_megabytes=SHARD)


@pytest.mark.parametrize("language", ["de", "en", "ja"])
def test_shards_hold_the_same_stream_as_one_file(sharded, corpus, language):
    shards = sharded.manifest["languages"][language]["shards"]
    assert len({shard["file"] for shard in shards}) == len(shards) >= 2
    size = corpus.num_tokens[language]
    assert sharded.num_tokens[language] == size == sum(shard["tokens"] for shard in shards)
    np.testing.assert_array_equal(sharded.tokens(language, 0, size), corpus.tokens(language, 0, size))
    seam = shards[0]["tokens"]
    for start, count in ((seam - 3, 7), (seam, 5), (size - 4, 9), (5 * size + seam - 1, 2)):
        np.testing.assert_array_equal(sharded.tokens(language, start, count), corpus.tokens(language, start, count))
    np.testing.assert_array_equal(sharded.unigram_counts(language), corpus.unigram_counts(language))


@pytest.mark.parametrize("held_out", [0.0, 0.2])
def test_a_killed_preparation_resumes_and_ends_in_the_same_bytes(held_out, sharded, mixed_dir, corpus, tmp_path):
    tokenizer = corpus.tokenizer.path
    command = [sys.executable, "-c", PREPARE, mixed_dir, tmp_path / "corpus", tokenizer, str(held_out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    endless = [*command, "endless"]
    process = subprocess.Popen(endless, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    made = staging_folder(tmp_path / "corpus") / "corpus"
    while process.poll() is None and len(list(made.glob("*.array_record"))) < 3:
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "corpus").exists()
    before = {path: path.stat().st_mtime_ns for path in made.glob("*.array_record")}
    assert len(before) >= 3
    noted = {name for name in before if (made.parent / "notes" / f"{name.stem}.shard.json").exists()}
    subprocess.run(command, env=environment, check=True)
    after = {path: (tmp_path / "corpus" / path.name).stat().st_mtime_ns for path in noted}
    assert after == {path: before[path] for path in noted}
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    if held_out:
        cleaning = Cleaning(held_out=held_out)
        sharded = prepare(mixed_dir, tmp_path / "whole", tokenizer=tokenizer, cleaning=cleaning, shard_megabytes=SHARD)
    assert digests(tmp_path / "corpus") == digests(sharded.path)
    Corpus(tmp_path / "corpus").verify()


def test_work_of_other_settings_is_not_reused(sharded, mixed_dir, corpus, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rembed_keras.data.prepare.shards.add_counts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(mixed_dir, tmp_path / "corpus", vocabulary_size=700)
    assert (staging_folder(tmp_path / "corpus") / "corpus" / "tokenizer.model").exists()
    prepare(mixed_dir, tmp_path / "corpus", tokenizer=corpus.tokenizer.path, shard_megabytes=SHARD)
    assert digests(tmp_path / "corpus") == digests(sharded.path)


def test_work_stays_where_nobody_reads_its_progress_any_more(mixed_dir, corpus, tmp_path, monkeypatch):
    def unread(*_):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("rembed_keras.data.prepare.shards.add_counts", unread)
    with pytest.raises(BrokenPipeError):
        prepare(mixed_dir, tmp_path / "corpus", tokenizer=corpus.tokenizer.path)
    assert list((staging_folder(tmp_path / "corpus") / "corpus").glob("*.array_record"))


def test_two_processes_do_not_make_one_corpus(mixed_dir, corpus, tmp_path, monkeypatch):
    def again(*_):
        prepare(mixed_dir, tmp_path / "corpus", tokenizer=corpus.tokenizer.path)

    monkeypatch.setattr("rembed_keras.data.prepare.shards.add_counts", again)
    with pytest.raises(UserError, match="another process is writing"):
        again()


def test_a_lost_worker_is_reported_and_its_work_is_kept(mixed_dir, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "LEAST", 10_000)
    monkeypatch.setattr("rembed_keras.data.prepare.shards.write_part", die)
    with pytest.raises(jobs.WorkerLostError):
        prepare(mixed_dir, tmp_path / "corpus", tokenizer=corpus.tokenizer.path, processes=2)
    jobs.shut_down()
    assert (staging_folder(tmp_path / "corpus") / "corpus" / "tokenizer.model").exists()


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


ORPHANS = """
import os, sys, time
from pathlib import Path
from rembed_keras.data.prepare import jobs
def work(folder):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(900)
if sys.argv[1] == "run":
    jobs.Workers(2, 20_000_000).run("", work, [(1, (sys.argv[2],))] * 2)
else:
    jobs.Workers(2, 20_000_000).run_alone(work, sys.argv[2])
"""


@pytest.mark.parametrize(("how", "count"), [("run", 2), ("run_alone", 1)])
def test_workers_end_with_their_parent(how, count, tmp_path):
    """Else they would keep writing among the files of the next attempt."""
    command = [sys.executable, "-c", ORPHANS, how, tmp_path]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(tmp_path.iterdir())) < count:
        time.sleep(0.01)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == count and all(map(is_alive, workers))
    process.kill()
    process.wait()
    end = time.monotonic() + 120
    while any(map(is_alive, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    left = [worker for worker in workers if is_alive(worker)]
    for worker in left:
        os.kill(worker, signal.SIGKILL)
    assert not left


def is_alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_tokenizer_is_trained_in_a_process_of_its_own():
    """For large text; its errors arrive as raised there, and its end as that of any worker."""
    many, one = jobs.Workers(2, 20_000_000), jobs.Workers(1, 20_000_000)
    assert one.run_alone(os.getpid) == os.getpid() != many.run_alone(os.getpid)
    with pytest.raises(UserError, match="normalization is 'none'"):
        many.run_alone(train_tokenizer, [], "unwritten.model", 99, False, "none")
    with pytest.raises(jobs.WorkerLostError):
        many.run_alone(die)


def test_a_corpus_of_the_first_layout_is_read(corpus, text_dir, tmp_path):
    """The layout before shards: a file per language, and no list of shards."""
    shutil.copytree(corpus.path, tmp_path / "old")
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text(encoding="utf-8"))
    manifest["format"] = 1
    for entry in manifest["languages"].values():
        (shard,) = entry.pop("shards")
        entry["file"] = shard["file"]
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    old = prepare(text_dir, tmp_path / "old", vocabulary_size=900)
    assert old.manifest["format"] == 1
    np.testing.assert_array_equal(old.tokens("ja", 4000, 500), corpus.tokens("ja", 4000, 500))


@pytest.mark.parametrize("size", [0, -1, 1e-9, float("nan"), float("inf")])
def test_a_shard_has_a_size(size, mixed_dir, tmp_path):
    with pytest.raises(UserError, match=f"shard_megabytes is {size}; it must be a number from 0.000001"):
        prepare(mixed_dir, tmp_path / "corpus", shard_megabytes=size)
    assert not list(tmp_path.iterdir())


def test_byte_ranges_of_a_file_are_its_lines_each_once(tmp_path):
    data = "\ufeffeins\r\nzw\u00f6lf\n\n\nvier und\n".encode() + b"ende"
    (tmp_path / "x.txt").write_bytes(data)
    whole = list(read_exact_lines(tmp_path / "x.txt"))
    for cut in range(len(data) + 1):
        parts = [read_exact_lines(tmp_path / "x.txt", start=a, end=b) for a, b in ((0, cut), (cut, len(data)))]
        assert list(itertools.chain(*parts)) == whole, cut
    (tmp_path / "x.txt").write_bytes(b"a\nb\nc\n\xff\n")
    with pytest.raises(UserError, match="line 4 is not UTF-8"):
        list(read_exact_lines(tmp_path / "x.txt", start=3, end=9))


def test_the_working_directory_may_be_a_corpus_and_is_not_made_one(corpus, mixed_dir, tmp_path, monkeypatch):
    made = prepare(mixed_dir, tmp_path / "made", tokenizer=corpus.tokenizer.path)
    monkeypatch.chdir(tmp_path / "made")
    assert prepare(mixed_dir, ".", tokenizer=corpus.tokenizer.path).sha256 == made.sha256
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for name in (".", "", "../empty"):
        with pytest.raises(UserError, match="is the working directory: name another folder"):
            prepare(mixed_dir, name, tokenizer=corpus.tokenizer.path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "made"]


def test_what_is_in_the_place_of_a_corpus_stays(mixed_dir, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UserError, match="out is a file: name another folder"):
        prepare(mixed_dir, tmp_path / "out")
    with pytest.raises(UserError, match="has files, and no corpus among them: remove them or choose another folder"):
        prepare(mixed_dir, tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_leads_to_the_corpus(is_there, text_dir, corpus, tmp_path):
    disk, link = tmp_path / "disk" / "corpus", tmp_path / "corpus"
    if is_there:
        disk.mkdir(parents=True)
    link.symlink_to(disk)
    made = prepare(text_dir, link, tokenizer=corpus.tokenizer.path)
    assert link.is_symlink() and made.num_tokens == Corpus(disk).num_tokens == corpus.num_tokens
    assert [path.name for path in disk.parent.iterdir()] == ["corpus"]


def test_a_file_named_as_a_part_of_another_is_refused(corpus, tmp_path):
    (tmp_path / "text").mkdir()
    for name, size in (("en.txt", 900), ("en-00000.txt", 3)):
        (tmp_path / "text" / name).write_text("a b\n" * size)
    with pytest.raises(UserError, match=r"named en-00000: rename one of the text files"):
        prepare(tmp_path / "text", tmp_path / "out", tokenizer=corpus.tokenizer.path, shard_megabytes=0.002)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
