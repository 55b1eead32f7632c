"""Where arrays lie on JAX: tables of words, and their optimizer slots, a part on each of two devices."""

import keras
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import MaskedLM
from rembed_keras.training.distributed import meshes
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.loop import checkpoints
from rembed_keras.training.optimizers.adamw import AdamW
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer
from tests.modeling.test_encoder import make_encoder

pytestmark = pytest.mark.skipif(keras.config.backend() != "jax", reason="meshes are JAX's")
TABLES = ("embeddings/token/embeddings", "output_embedding/decoupled/table/embeddings")


def make_model(strategy):
    placement = place(strategy, batch_size=4)
    with placement.scope():
        model = MaskedLM(make_encoder(), 20)
        model.compile(optimizer=TrainingOptimizer(AdamW(1e-2)))
        model.optimizer.build(model.trainable_variables)
    return placement, model


def parts(variable):
    """How many parts a variable is cut into, by rows."""
    (shard, *_) = variable.value.addressable_shards
    assert shard.data.shape[1:] == variable.shape[1:]
    return variable.shape[0] // shard.data.shape[0] if variable.shape else 1


def test_tables_of_words_and_their_slots_are_spread_and_all_else_is_on_every_device():
    placement, model = make_model("model_parallel")
    assert placement.replicas == 2
    spread = {variable.path for variable in model.variables if parts(variable) == 2}
    assert {path for path in spread if path.endswith(TABLES)} == spread and len(spread) == 2
    slots = [variable.path for variable in model.optimizer.variables if parts(variable) == 2]
    assert len(slots) == 2 * len(spread)


def test_what_is_spread_is_saved_and_loaded_whole():
    _, spread = make_model("model_parallel")
    _, whole = make_model("data_parallel")
    arrays = checkpoints.read_arrays(spread.weights)
    checkpoints.assign_arrays(whole.weights, arrays, None)
    for variable in whole.weights:
        assert (checkpoints.read(variable) == arrays[variable.path]).all() and parts(variable) == 1
    checkpoints.assign_arrays(spread.weights, {path: array + 1 for path, array in arrays.items()}, None)
    for variable in spread.weights:
        assert (checkpoints.read(variable) == arrays[variable.path] + 1).all()
        assert parts(variable) == 1 + variable.path.endswith(TABLES)


def test_processes_that_cannot_be_connected_say_what_to_set(monkeypatch):
    monkeypatch.setenv("KERAS_DISTRIBUTION_JOB_ADDRESSES", "127.0.0.1:1")
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "two")
    with pytest.raises(UserError, match=r"cannot be connected .*: set KERAS_DISTRIBUTION_JOB_ADDRESSES") as caught:
        meshes.workers.__wrapped__()
    assert "\n" not in str(caught.value)
