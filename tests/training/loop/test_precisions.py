"""A run that was stopped goes on in another precision, with the weights and slots that it has."""

import shutil
from functools import partial

import keras
import numpy as np
import pytest

from rembed_keras.modeling import MaskedLM
from rembed_keras.training import AdamW, InitialWeights
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.optimizers.masters import MASTER
from rembed_keras.training.optimizers.training_optimizer import wrapped
from tests.training.pretraining import eagerly, files_of, learn, make_encoder, rows

OPTIMIZER = partial(AdamW, 1e-2)  # of two slots
NO_DROPOUT = 1e-9  # with any, Keras has no attention of JAX's, which is not to be had in float16 on a CPU
ON_JAX = keras.config.backend() == "jax"
DTYPES = ["float32", "mixed_bfloat16", "bfloat16", *([] if ON_JAX else ["mixed_float16"])]


def run(folder, corpus, dtype):
    encoder = partial(make_encoder, dtype=dtype, dropout=NO_DROPOUT)
    with eagerly():
        learn(folder, corpus, encoder, optimizer=OPTIMIZER, steps=3, log_every=1, checkpoint_every=2)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """Folders of runs of three steps, by dtype."""
    folder = tmp_path_factory.mktemp("precisions")
    for dtype in DTYPES:
        run(folder / dtype, corpus, dtype)
    return folder


@pytest.fixture(scope="module")
def stopped(whole, tmp_path_factory):
    """The same as they were after two steps."""
    folder = tmp_path_factory.mktemp("stopped")
    for dtype in DTYPES:
        shutil.copytree(whole / dtype, folder / dtype)
        shutil.rmtree(folder / dtype / "checkpoints/step-00000003")
    return folder


def loaded(found, dtype):
    model = MaskedLM(make_encoder(dtype=dtype), 8)
    model.compile(wrapped(model, OPTIMIZER()))
    model.optimizer.build(model.trainable_variables)
    restoring.load_parts(model, found)
    restoring.load_optimizer(model, found)
    return model


def exact(model):
    """The weights that are trained in the precision that they are trained in, by path."""
    named = model.optimizer.named_variables()
    return {each.path: value_of(named.get(f"{MASTER}{each.path}", each)) for each in model.trainable_variables}


def value_of(variable):
    return keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))


@pytest.fixture(scope="module", params=DTYPES)
def before(stopped, request):
    """The checkpoint of a run that was stopped, and its model."""
    found = checkpoints.latest(stopped / request.param / "checkpoints")
    return found, loaded(found, request.param)


@pytest.mark.any_backend
@pytest.mark.parametrize("here", DTYPES)
def test_weights_and_slots_are_those_of_the_checkpoint(before, here):
    found, before = before
    after = loaded(found, here)
    theirs = exact(before)
    for path, value in exact(after).items():
        np.testing.assert_array_equal(value, theirs[path], err_msg=path)
    for variable in after.trainable_variables:
        rounded = keras.ops.cast(keras.ops.cast(theirs[variable.path], variable.dtype), "float32")
        np.testing.assert_array_equal(value_of(variable), keras.ops.convert_to_numpy(rounded), err_msg=variable.path)
    slots = before.optimizer.named_variables()
    compared = 0
    for name, variable in after.optimizer.named_variables().items():
        if name in slots and not name.startswith(MASTER) and "dynamic" not in name and "counter" not in name:
            np.testing.assert_array_equal(value_of(variable), value_of(slots[name]), err_msg=name)
            compared += 1
    assert compared > 2 * len(theirs) and value_of(after.optimizer.iterations) == 2


@pytest.mark.skipif(ON_JAX, reason="JAX has no attention in float16 on a CPU")
def test_copies_of_weights_in_one_16_bit_type_are_those_of_weights_in_the_other(stopped):
    """Rounded to the other type before it is rounded to its own, a weight would be far from its copy, and taken."""
    found = checkpoints.latest(stopped / "bfloat16/checkpoints")
    before, after = loaded(found, "bfloat16"), loaded(found, "float16")
    after.optimizer.learning_rate = after.optimizer.inner_optimizer.weight_decay = 0.0
    after.optimizer.apply([keras.ops.zeros(each.shape, each.dtype) for each in after.trainable_variables])
    theirs = exact(before)
    for path, value in exact(after).items():
        np.testing.assert_array_equal(value, theirs[path], err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_a_run_that_stopped_ends_in_the_same_bits(whole, stopped, corpus, tmp_path, dtype):
    shutil.copytree(stopped / dtype, tmp_path / "stopped")
    run(tmp_path / "stopped", corpus, dtype)
    assert files_of(whole / dtype, 3) == files_of(tmp_path / "stopped", 3)
    assert rows(whole / dtype) == rows(tmp_path / "stopped")


@pytest.mark.slow
@pytest.mark.parametrize(("there", "here"), [("float32", "mixed_bfloat16"), ("bfloat16", "float32")])
def test_a_run_goes_on_and_says_so(whole, stopped, corpus, tmp_path, capsys, there, here):
    shutil.copytree(stopped / there, tmp_path / "changed")
    capsys.readouterr()
    run(tmp_path / "changed", corpus, here)
    assert f"step-00000002, which was trained in {there}, in {here}" in capsys.readouterr().out
    changed, expected = (rows(folder, "pretrain") for folder in (tmp_path / "changed", whole / there))
    assert [row["step"] for row in changed] == [row["step"] for row in expected] == [1, 2, 3]
    assert changed[2:] != expected[2:]
    for ours, theirs in zip(changed, expected, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=2e-3)


@pytest.mark.usefixtures("without_graphs")
def test_a_run_that_took_its_encoder_from_initial_weights_goes_on_in_another_precision(pretrained, corpus, tmp_path):
    """Its encoder is made again as that of its checkpoint, which is of the dtype of before."""
    for steps, dtype in enumerate(("float32", "mixed_bfloat16", None), start=1):
        initial = InitialWeights(str(pretrained), dtype=dtype)
        learn(tmp_path, corpus, None, optimizer=OPTIMIZER, initial=initial, steps=steps, checkpoint_every=1)
        kept = restoring.kept_encoder(checkpoints.latest(tmp_path / "checkpoints"))
        assert kept.dtype_policy.name == (dtype or "mixed_bfloat16")
