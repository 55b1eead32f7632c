"""Training on JAX, or on the other backend, that goes on from a checkpoint; TensorFlow's kills and stops are in
`tests/interruptions`."""

import json
import shutil

import keras
import pytest
from safetensors.numpy import load_file

from rembed_keras.data.json_files import sealed
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.training import AdamW, pretrain
from rembed_keras.training.loop.workdir import Workdir
from tests.training.loop.test_fit import files_of, log


def learn(folder, corpus):
    workdir = Workdir(folder)
    try:
        pretrain(
            workdir,
            lambda: Encoder(900, 1, 2, 8, 16, 8, max_sequence_length=16, dropout=0.2),
            lambda encoder: MaskedLM(encoder, 8),
            lambda: AdamW(1e-2),
            lambda of: Mixture(of, batch_size=4, sequence_length=16, seed=3),
            corpus=str(corpus.path),
            steps=5,
            log_every=3,
            checkpoint_every=2,
        )
    finally:
        workdir.close()


@pytest.mark.skipif(keras.config.backend() != "jax", reason="JAX's `fit` keeps a model's state aside meanwhile")
def test_training_that_goes_on_ends_in_the_same_bits(corpus, tmp_path):
    """Weights, slots, random generators, and running means of an interval that a row of the log closes later."""
    learn(tmp_path / "whole", corpus)
    shutil.copytree(tmp_path / "whole", tmp_path / "hurt")
    shutil.rmtree(tmp_path / "hurt/checkpoints/step-00000005")
    before = load_file(tmp_path / "hurt/checkpoints/step-00000004/optimizer.safetensors")
    learn(tmp_path / "hurt", corpus)
    assert sum(name.endswith(("momentum", "velocity")) and bool(slot.any()) for name, slot in before.items()) > 20
    assert files_of(tmp_path / "hurt", 5) == files_of(tmp_path / "whole", 5)
    assert log(tmp_path / "hurt") == log(tmp_path / "whole")


@pytest.mark.usefixtures("without_graphs")
def test_a_run_that_goes_on_on_the_other_backend_says_so(corpus, tmp_path, capsys):
    """Where it draws other dropout, and ends in other bits."""
    learn(tmp_path, corpus)
    shutil.rmtree(tmp_path / "checkpoints/step-00000005")
    path = tmp_path / "checkpoints/step-00000004/state.json"
    record, here = json.loads(path.read_text()), keras.config.backend()
    assert record["state"]["backend"] == here and "trained on" not in capsys.readouterr().out
    record["state"]["backend"] = "another"
    path.write_text(json.dumps(sealed({key: record[key] for key in ("step", "state", "sha256")})))
    learn(tmp_path, corpus)
    assert f"step-00000004, which was trained on another, on {here}\n" in capsys.readouterr().out
