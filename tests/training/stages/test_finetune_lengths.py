"""Fine-tuning on batches without padding: the numbers of padded batches, to the bit again after a stop."""

from dataclasses import replace
from functools import partial

import keras
import numpy as np
import pytest

from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM
from rembed_keras.errors import UserError
from rembed_keras.interruption import Interrupted
from rembed_keras.modeling import Encoder
from rembed_keras.tasks import Tagging
from rembed_keras.tasks.kinds import batches
from rembed_keras.tasks.kinds.examples import Splits
from rembed_keras.training import finetune
from rembed_keras.training.loop.workdir import Workdir
from tests.training.loop.test_fit import Terminator
from tests.training.pretraining import rows
from tests.training.stages.test_finetune import optimizer, tagged

make_encoder = partial(Encoder, 900, 1, 2, 24, 32, 12, max_sequence_length=48, dropout=0.0)


def sentences(count):
    """Some of a few words and some of many."""
    short = tagged(count)
    return [
        replace(each, words=each.words * n, tags=each.tags * n) for i, each in enumerate(short) for n in [1 + i % 3 * 5]
    ]


def learn(folder, corpus, **changes):
    """Fine-tunes a tagger by a teacher; gives the log, and the files of the last checkpoint."""
    folder.mkdir(exist_ok=True)
    workdir = Workdir(folder)
    if not (folder / "corpus").exists():
        (folder / "corpus").symlink_to(corpus.path)
    keras.utils.set_random_seed(0)
    settings = {"encoder": make_encoder, "learning_rates": (1e-2,), "starts": ("scratch",), "group_by_length": True}
    sizes = {"sequence_length": 48, "batch_size": 8, "epochs": 2, "dropout": 0.0, "log_every": 2}
    asked, rng = make_encoder(), np.random.default_rng(4)
    for weight in asked.weights:  # far from those of the student, which all relate tokens alike
        weight.assign(rng.normal(0, 0.3, weight.shape))
    terms = [MiniLM(Teacher(asked), weight=0.5)]
    task = Tagging("names", Splits(sentences(24), {"en": sentences(4)}, {"en": sentences(4)}))
    try:
        finetune(workdir, optimizer, task, terms=terms, callbacks=[Terminator], **settings | sizes | changes)
    finally:
        workdir.close()
    files = (folder / "finetuned").rglob("step-00000006/*.safetensors")
    log = [row for row in rows(folder) if row["run"].startswith("finetune")]
    return log, {file.name: file.read_bytes() for file in files}


@pytest.mark.usefixtures("without_graphs")
def test_batches_without_padding_teach_what_padded_ones_do_and_survive_a_stop(corpus, tmp_path, monkeypatch):
    padded, _ = learn(tmp_path / "padded", corpus)
    seen = []

    def noted(length, *batch, usual=batches.cut_to):
        seen.append(length)
        return usual(length, *batch)

    monkeypatch.setattr(batches, "COMPILATION", 0)
    monkeypatch.setattr(batches, "cut_to", noted)
    monkeypatch.setattr(Terminator, "at", (4,))
    with pytest.raises(Interrupted, match="is saved at step 4 of 6"):
        learn(tmp_path / "stopped", corpus)
    monkeypatch.setattr(Terminator, "at", ())
    stopped = learn(tmp_path / "stopped", corpus)
    assert {*seen} == {16, 32, 48}
    log, files = learn(tmp_path / "whole", corpus)
    assert stopped == (log, files) and len(files) == 3
    assert min(row["mini_lm"] for row in padded) > 1e-2
    for ours, theirs in zip(log, padded, strict=True):
        for key in ("loss", "mini_lm", "accuracy", "grad_norm"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-5), (ours["step"], key)
    with pytest.raises(UserError, match="names has models whose group_by_length is True, not False: give each task"):
        learn(tmp_path / "whole", corpus, group_by_length=False)
