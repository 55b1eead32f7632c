import json
import re
import shutil

import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder
from rembed_keras.training.initial import places
from rembed_keras.training.loop import checkpoints, restoring

ARRAYS = {"a/kernel": np.arange(6, dtype="float32").reshape(2, 3), "a/count": np.array(3, "int32")}


def save(folder, step, **options):
    return checkpoints.save(
        folder, step, {"encoder": ARRAYS, "head": {}, "optimizer": {}}, {"running": [[1, 2]]}, **options
    )


def steps(folder):
    return sorted(int(path.name[5:]) for path in folder.glob("step-*"))


def test_what_was_saved_comes_back(tmp_path):
    save(tmp_path, 7)
    found = checkpoints.latest(tmp_path)
    assert (found.step, found.state) == (7, {"running": [[1, 2]]})
    for path, array in found.arrays("encoder").items():
        np.testing.assert_array_equal(array, ARRAYS[path])
        assert array.dtype == ARRAYS[path].dtype and array.shape == ARRAYS[path].shape


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int32"])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_what_a_variable_has_is_read_in_its_dtype(shape, dtype, tmp_path):
    variable = keras.Variable(np.full(shape, 3), dtype=dtype, name="mix")  # of no axes, as a scalar mix's scale
    folder = checkpoints.save(tmp_path, 1, {"encoder": checkpoints.read_arrays([variable])}, {})
    (found,) = checkpoints.latest(folder.parent).arrays("encoder").values()
    assert (found.dtype.name, found.shape) == (dtype, shape) and (np.float32(found) == 3).all()


def test_the_newest_stay_and_those_of_certain_steps(tmp_path):
    for step in range(1, 11):
        save(tmp_path, step, keep=2, keep_every=4)
    assert steps(tmp_path) == [4, 8, 9, 10]
    assert [found.step for found in checkpoints.newest_first(tmp_path)] == [10, 9, 8, 4]


def test_what_a_training_before_kept_stays(tmp_path):
    save(tmp_path, 2, best=2)
    (tmp_path / "step-00000002/held").touch()
    for step in (2, 3, 4):  # of one that evaluates nothing; the first is written again, as after damage
        save(tmp_path, step, keep=1)
    assert steps(tmp_path) == [2, 4] and checkpoints.best(tmp_path).step == 2
    assert (tmp_path / "step-00000002/held").exists()


@pytest.mark.parametrize("policy", [{"keep": -1}, {"keep": 0}, {"keep": True}, {"keep_every": 0}, {"keep_every": -2}])
def test_a_count_that_would_leave_no_checkpoint_removes_none(tmp_path, policy):
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3)
    with pytest.raises(UserError, match=r"keep_checkpoint\w+ is (-?\d|True); it must be a positive whole number"):
        checkpoints.tidy(tmp_path, 3, **policy)
    assert steps(tmp_path) == [1, 2, 3]


HARMS = ["flip a bit", "cut short", "lose a file", "lose the state", "garble the state", "change a digit of the state"]


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_checkpoint_is_named_and_passed_over(tmp_path, harm):
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    weights, state = newest / "encoder.safetensors", newest / "state.json"
    data = bytearray(weights.read_bytes())
    if harm == "flip a bit":
        data[-1] ^= 1
        weights.write_bytes(data)
    elif harm == "cut short":
        weights.write_bytes(data[:-4])
    elif harm == "lose a file":
        weights.unlink()
    elif harm == "lose the state":
        state.unlink()
    elif harm == "change a digit of the state":  # another seed, or another mean
        state.write_text(re.sub(r"\b2\n *\]", "3]", state.read_text()))
    else:
        state.write_text("{")
    said = []
    assert checkpoints.latest(tmp_path, said.append).step == 1
    assert len(said) == 1 and f"checkpoint {newest} is passed over" in said[0]


def test_where_all_are_damaged_training_does_not_start_from_scratch(tmp_path):
    assert checkpoints.latest(tmp_path) is None
    (save(tmp_path, 1) / "encoder.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="has no checkpoint that is whole: bring one back, or remove the folder"):
        checkpoints.latest(tmp_path, [].append)


def test_what_a_stop_left_and_what_is_newer_but_damaged_goes_with_the_next(tmp_path):
    for step in (5, 10, 15):
        save(tmp_path, step, keep=3, every=5)
    (tmp_path / "step-00000015/state.json").unlink()
    save(tmp_path, 12, keep=3, every=5)
    assert steps(tmp_path) == [5, 10, 12]
    save(tmp_path, 15, keep=3, every=5)
    assert steps(tmp_path) == [5, 10, 15]


def test_a_copy_that_a_user_set_aside_is_left_alone(tmp_path):
    for step in (2, 99_999_999):
        save(tmp_path, step, keep=3)
    aside = tmp_path / "step-99999999-good"
    shutil.copytree(tmp_path / "step-99999999", aside)
    save(tmp_path, 100_000_000, keep=2)
    assert [found.step for found in checkpoints.newest_first(tmp_path)] == [100_000_000, 99_999_999]
    assert places.find(aside).path == aside and not (tmp_path / "step-00000002").exists()


def test_what_an_interrupted_save_left_is_no_checkpoint_and_goes_away(tmp_path):
    left = tmp_path / ".writing-step-00000009"
    left.mkdir()
    (left / "state.json").write_text(json.dumps({"step": 9, "state": {}, "sha256": {}}))
    assert checkpoints.latest(tmp_path) is None
    save(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_checkpoint_that_its_run_has_removed_meanwhile_is_said_to_be_gone(tmp_path):
    """As where fine-tuning starts from a run that goes on; it was to be downloaded again."""
    found = checkpoints.latest(save(tmp_path, 1).parent)
    kernel = found.arrays("encoder")["a/kernel"]
    save(tmp_path, 2, keep=1)
    for read in (np.asarray, lambda array: array[:1]):
        with pytest.raises(UserError, match=r"encoder\.safetensors is gone since it was found; of a run that goes on"):
            read(kernel)


def test_arrays_of_another_model_change_nothing(tmp_path):
    layer = keras.layers.Dense(3, name="a")
    layer.build((None, 2))
    before = layer.kernel.numpy().copy() if hasattr(layer.kernel, "numpy") else np.asarray(layer.kernel.value)
    with pytest.raises(UserError, match=r"enc\.safetensors has no a/bias: it is of another model"):
        checkpoints.assign_arrays(layer.weights, ARRAYS, tmp_path / "enc.safetensors")
    wrong = {"a/kernel": np.zeros((2, 4)), "a/bias": np.zeros(3)}
    with pytest.raises(UserError, match=r"a/kernel has shape \(2, 4\), the recipe's \(2, 3\)"):
        checkpoints.assign_arrays(layer.weights, wrong, tmp_path / "enc.safetensors")
    np.testing.assert_array_equal(checkpoints.read(layer.kernel), before)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")  # of norms
def test_a_model_in_int4_which_has_two_weights_a_byte_comes_back(tmp_path):
    model = Classifier(Encoder(50, 1, 2, 64, 512, 16), 3)
    model.encoder.quantize("int4")
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    path = checkpoints.save(tmp_path, 1, parts, {"running": []} | restoring.state_of(model))
    assert (
        sum(file.stat().st_size for file in path.glob("*.safetensors")) < Encoder(50, 1, 2, 64, 512, 16).count_params()
    )
    for weight, kept in zip(model.weights, restoring.restore(checkpoints.opened(path)).weights, strict=True):
        np.testing.assert_array_equal(kept, weight)
