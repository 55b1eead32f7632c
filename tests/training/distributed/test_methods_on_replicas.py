"""Fine-tuning methods on two replicas: they choose, learn and store what they do on one device."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from rembed_keras.adaptation.methods import Adapters, FisherChosen, Lora
from rembed_keras.tasks import Classification
from rembed_keras.tasks.kinds.batches import cut_batches
from rembed_keras.training import finetune
from rembed_keras.training.loop.workdir import Workdir
from tests.training.stages.test_finetune import labelled, make_encoder, optimizer, splits


def methods():
    return [FisherChosen("blocks", count=1, batches=2), FisherChosen("norms", count=2, batches=3), Lora(2), Adapters(3)]


def texts(count):
    """Rows of up to 16 tokens and of more, so that batches have two lengths."""
    return [replace(each, text=each.text + " and" * (i % 9 == 4) * 20) for i, each in enumerate(labelled(count))]


@pytest.fixture(autouse=True)
def lengths(monkeypatch):
    """The lengths that batches of each training have, where a further one costs nothing."""
    seen = []

    def noted(*arguments):
        data, shapes = cut_batches(*arguments)
        seen.append([len(inputs["token_ids"][0]) for inputs, _ in shapes])
        return data, shapes

    monkeypatch.setattr("rembed_keras.tasks.kinds.batches.COMPILATION", 0)
    monkeypatch.setattr("rembed_keras.training.stages.finetune.cut_batches", noted)
    return seen


def learnt(folder, corpus, strategy):
    """The tensors of the last checkpoint."""
    workdir = Workdir(folder)
    (folder / "corpus").symlink_to(corpus.path)
    try:
        settings = {"encoder": make_encoder, "strategy": strategy, "methods": methods(), "starts": ("scratch",)}
        sizes = {"sequence_length": 32, "batch_size": 8, "epochs": 1, "dropout": 0.0, "log_every": 2}
        task = Classification("topics", splits(texts))
        finetune(workdir, optimizer, task, learning_rates=(1e-2,), jit_compile=False, **settings, **sizes)
    finally:
        workdir.close()
    last = max(folder.glob("finetuned/topics/*/step-*"))
    return {(file.name, name): value for file in last.glob("*.safetensors") for name, value in load_file(file).items()}


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_two_replicas_choose_and_store_what_one_device_does(corpus, tmp_path, capsys, lengths):
    stored, chosen = [], []
    for strategy in ("one_device", "mirrored"):
        stored.append(learnt(tmp_path / strategy, corpus, strategy))
        lines = capsys.readouterr().out.splitlines()
        chosen.append([line for line in lines if "chosen=[" in line or "are the task's own" in line])
    assert len(chosen[0]) == 3 and chosen[0] == chosen[1]
    assert lengths == [[16, 32], [16, 32]]
    one, two = stored
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=2e-5, err_msg=str(name))
