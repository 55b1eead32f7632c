"""Pre-training of the smallest encoder, and what it leaves in a folder."""

import contextlib
import json

import keras

from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.training import pretrain
from rembed_keras.training.loop.workdir import MEASURED, Workdir

RATE = 1e-2
USUAL = {"jit_compile": False}


def make_encoder(layers=1, **changes):
    """One of few variables, each of which costs an eager step much."""
    usual = {"max_sequence_length": 16, "num_segments": 0, "always_project": False}
    return Encoder(900, layers, 2, 8, 16, 8, **usual | changes)


def make_frozen(**changes):
    """An encoder whose head alone learns, for steps of which only their number matters: they take half as long."""
    return make_encoder(trainable=False, **changes)


def make_head(encoder):
    return MaskedLM(encoder, 8)


def make_optimizer():
    """One slot and few operations a variable, which are the half of an eager step with AdamW."""
    return keras.optimizers.SGD(RATE, momentum=0.9)


def make_mixture(of, kind=Mixture):
    return kind(of, batch_size=4, sequence_length=16, seed=3)


@contextlib.contextmanager
def eagerly():
    """Eager TensorFlow meanwhile, as the fixture `without_graphs`, for a part of a test or for what tests share."""
    if keras.config.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def learn(
    folder,
    corpus,
    encoder=make_encoder,
    head=make_head,
    optimizer=make_optimizer,
    mixture=make_mixture,
    sinks=None,
    **settings,
):
    """Pre-trains from the newest checkpoint in a folder; `settings` are those of the stage."""
    workdir = Workdir(folder, sinks=sinks)
    try:
        pretrain(workdir, encoder, head, optimizer, mixture, corpus=str(corpus.path), **USUAL | settings)
    finally:
        workdir.close()


def rows(folder, run=None):
    """Rows of the log, or those of one run, without timings."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = [{key: value for key, value in row.items() if key not in MEASURED} for row in found]
    return found if run is None else [row for row in found if row["run"] == run]


def files_of(folder, step):
    """The files of a checkpoint: bytes by name."""
    return {file.name: file.read_bytes() for file in (folder / f"checkpoints/step-{step:08d}").iterdir()}
