"""A small corpus of real text that the tests of data, tasks and training share."""

import errno
import gc
import gzip
import os
import shutil
import warnings

import pytest

from rembed_keras import cli
from rembed_keras.config.backend import SETTINGS
from rembed_keras.data import sample
from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.corpora import prepare

ONEDNN = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
os.environ.setdefault(ONEDNN, SETTINGS[ONEDNN])  # as `rembed` does

LINES = {"de": 300, "en": 600, "ja": 150}


@pytest.fixture(scope="session")
def text_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for language, count in LINES.items():
        lines = gzip.decompress((sample.text_folder() / f"{language}.txt.gz").read_bytes()).decode().splitlines()
        (folder / f"{language}.txt").write_text("\n".join(lines[:count]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def corpus(text_dir, tmp_path_factory):
    return prepare(text_dir, tmp_path_factory.mktemp("prepared") / "corpus", vocabulary_size=900)


@pytest.fixture(scope="session")
def held_out_corpus(text_dir, tmp_path_factory):
    """The same text, 15 % of its paragraphs held out."""
    folder = tmp_path_factory.mktemp("held_out") / "corpus"
    return prepare(text_dir, folder, vocabulary_size=900, cleaning=Cleaning(held_out=0.15))


@pytest.fixture(scope="session")
def pretrained(corpus, tmp_path_factory):
    """The folder of a run with an untrained encoder."""
    import keras

    from rembed_keras.modeling import Encoder, MaskedLM
    from rembed_keras.training.loop import checkpoints, restoring

    folder = tmp_path_factory.mktemp("pretrained")
    shutil.copytree(corpus.path, folder / "corpus")
    model = MaskedLM(Encoder(900, 1, 2, 8, 16, 4, max_sequence_length=64), 12)
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    state = {"running": [], "model": keras.saving.serialize_keras_object(model)}
    checkpoints.save(folder / "checkpoints", 1, parts, state)
    return folder


def write_tiny_task(folder):
    """A labelled task of four examples that any encoder can learn."""
    folder.mkdir()
    rows = {"train.en": 8, "dev.en": 2, "test.en": 2, "test.de": 2}
    for name, count in rows.items():
        lines = [f"{('save the file', 'open the table')[i % 2]} {i}\t{('file', 'table')[i % 2]}" for i in range(count)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")


@pytest.fixture
def command(monkeypatch, capfd):
    """Runs a command in this process, where imports are done: its exit code, stdout and stderr."""

    def run(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr("sys.argv", ["rembed", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def without_graphs():
    """Eager TensorFlow: tracing a graph takes seconds, and a few small eager steps do not. Nothing on JAX."""
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        yield
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def without_old_garbage():
    """For each layer that Keras quantizes it looks through all there is for garbage, which takes a second."""
    gc.freeze()


@pytest.fixture
def full_disk(monkeypatch):
    """A disk on which no room can be reserved."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)


@pytest.fixture
def peers():
    """(torch, transformers), where they are installed; their own warnings are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch", reason="make test-peers runs it")
        transformers = pytest.importorskip("transformers", reason="make test-peers runs it")
        yield torch, transformers
