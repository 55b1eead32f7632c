"""Parameter-efficient fine-tuning goes on in another precision: it started from the same weights."""

import keras
import pytest

from rembed_keras.adaptation import Lora
from rembed_keras.errors import UserError
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir
from tests.training.stages.test_starting import pretrain, tune_on, weights

pytestmark = [pytest.mark.usefixtures("without_graphs"), pytest.mark.any_backend]


@pytest.mark.parametrize(("there", "here"), [(None, "bfloat16"), ("bfloat16", "float32")])
def test_models_of_two_dtypes_are_of_one_run(there, here, corpus, tmp_path, capsys):
    workdir = Workdir(tmp_path / "run")
    pretrain(workdir.path, corpus)
    first = tune_on(workdir, [Lora(2)], dtype=there)
    capsys.readouterr()
    tune_on(workdir, [Lora(2)], dtype=here, seeds=(0, 1))
    assert f"{first.parent.name}: done" in capsys.readouterr().out
    second = checkpoints.latest(first.parents[1] / "pretrained-lr0.01-seed1")
    dtypes = [restoring.restore(checkpoints.opened(path)).encoder.variable_dtype for path in (first, second.path)]
    assert dtypes == [there or "float32", here]
    ours, theirs = weights(first), weights(second.path)
    (name,) = [path for path in ours if path.startswith("embeddings/") and "token" in path]
    for value in (ours[name], theirs[name]):
        assert keras.ops.max(keras.ops.abs(keras.ops.cast(value, "float32") - ours[name].astype("float32"))) < 1e-3
    workdir.close()


def test_other_weights_are_refused_in_any_dtype(corpus, tmp_path):
    workdir = Workdir(tmp_path / "run")
    pretrain(workdir.path, corpus)
    tune_on(workdir, [Lora(2)])
    (workdir.finetuned / "topics/settings.json").unlink()  # which say so already, but not in older runs
    pretrain(tmp_path / "other", corpus, seed=4)
    with pytest.raises(UserError, match="was fine-tuned from other starting weights than those that this model has"):
        tune_on(workdir, [Lora(2)], dtype="bfloat16", encoder=None, pretrained=str(tmp_path / "other"))
    workdir.close()
