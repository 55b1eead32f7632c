"""Where arrays lie on JAX: tables of words, or all matrices, and their optimizer slots, a part on each device."""

import json
import os

import keras
import numpy as np
import pytest

from rembed_keras.adaptation import fisher
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.analysis.cost.shards import held_by_each
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, MaskedLM
from rembed_keras.modeling.replicas import devices_of_batch
from rembed_keras.training.distributed import meshes
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.loop import checkpoints
from rembed_keras.training.optimizers.adamw import AdamW
from rembed_keras.training.optimizers.muon import Muon
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer
from tests.interruptions.forks import run_module
from tests.modeling.test_encoder import FIRST, make_encoder, make_inputs
from tests.modeling.test_micro_batches import make_batch
from tests.quickly import work_quickly

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
    """How many parts a variable is cut into."""
    (shard, *_) = variable.value.addressable_shards
    return variable.value.size // shard.data.size


def held_bytes(variables):
    """Bytes that the first device really holds of float variables, scalars left out."""
    first = [each.value.addressable_shards[0].data for each in variables if each.shape and "float" in each.dtype]
    return sum(each.nbytes for each in first)


def test_tables_of_words_and_their_slots_are_spread_and_all_else_is_on_every_device():
    placement, model = make_model("model_parallel")
    assert placement.replicas == 2
    spread = {variable.path for variable in model.variables if parts(variable) == 2}
    assert {path for path in spread if path.endswith(TABLES)} == spread and len(spread) == 2
    slots = [variable.path for variable in model.optimizer.variables if parts(variable) == 2]
    assert len(slots) == 2 * len(spread)


def test_all_matrices_and_their_slots_are_spread_and_vectors_are_on_every_device():
    _, model = make_model("fully_sharded")
    for variable in (*model.weights, *model.optimizer.variables):
        is_odd = all(size % 2 for size in variable.shape)
        assert parts(variable) == (2 if len(variable.shape) > 1 and not is_odd else 1), variable.path


@pytest.mark.parametrize("strategy", ["model_parallel", "fully_sharded"])
def test_what_is_spread_is_saved_and_loaded_whole(strategy):
    _, spread = make_model(strategy)
    before = {variable.path: parts(variable) for variable in spread.weights}
    _, whole = make_model("data_parallel")
    arrays = checkpoints.read_arrays(spread.weights)
    checkpoints.assign_arrays(whole.weights, arrays, None)
    for variable in whole.weights:
        assert (checkpoints.read(variable) == arrays[variable.path]).all() and parts(variable) == 1
    checkpoints.assign_arrays(spread.weights, {path: array + 1 for path, array in arrays.items()}, None)
    for variable in spread.weights:
        assert (checkpoints.read(variable) == arrays[variable.path] + 1).all()
        assert parts(variable) == before[variable.path]
    assert all(before[variable.path] == 2 for variable in spread.weights if variable.path.endswith(TABLES))


def test_fisher_information_of_what_is_spread_is_read_whole(monkeypatch):
    """As it must be where the devices are those of several processes."""
    placement, read = place("fully_sharded", batch_size=4), []
    with placement.scope():
        model = Classifier(make_encoder(), 2)
    spread = [variable for variable in model.trainable_variables if parts(variable) == 2]
    assert spread
    monkeypatch.setattr(fisher.ops, "convert_to_numpy", lambda square: read.append(square) or np.zeros(square.shape))
    fisher.diagonal_fisher(model, [(make_inputs([[FIRST]], 12), np.array([1]))], spread[:2])
    assert len(read) == 2 and all(square.is_fully_replicated for square in read)


def test_eight_devices_hold_what_the_ledger_counts():
    done = run_module(__spec__.name, XLA_FLAGS=os.environ["XLA_FLAGS"].replace("count=2", "count=8"))
    assert done.returncode == 0, done.stderr
    held, trained = json.loads(done.stdout)
    for name, found, counted in held:
        assert found == counted, name
    assert len(held) == 4
    by_sides, at_once = trained  # gradients summed along one side of a grid at a time, and along all
    assert by_sides == pytest.approx(at_once, rel=1e-5) and by_sides[0] != pytest.approx(by_sides[1], rel=1e-3)


def test_processes_that_cannot_be_connected_say_what_to_set(monkeypatch):
    monkeypatch.setenv("KERAS_DISTRIBUTION_JOB_ADDRESSES", "127.0.0.1:1")
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "two")
    with pytest.raises(UserError, match=r"cannot be connected .*: set KERAS_DISTRIBUTION_JOB_ADDRESSES") as caught:
        meshes.workers.__wrapped__()
    assert "\n" not in str(caught.value)


def main():
    """Prints what each of eight devices holds of a model, parameters and slots, and what the closed form counts.

    Of models with sizes that all of them, four, two, or no devices share evenly: with a table in bands, and one whose
    output adds columns to the input's.
    """
    banded, extended, narrow = {"input_cutoffs": [12]}, {"coupling": "extended"}, {"dtype": "bfloat16"}
    cases = [
        ("model_parallel", AdamW, (narrow, extended)),
        ("fully_sharded", AdamW, (narrow | banded, {})),
        ("model_parallel", Muon, (banded, {})),
        ("fully_sharded", Muon, (banded, {})),
    ]
    found = []
    for strategy, optimizer, (of_encoder, of_head) in cases:
        with place(strategy, batch_size=8).scope():
            assert devices_of_batch() == 8
            encoder = Encoder(44, 1, 3, 12, 24, 10, max_sequence_length=16, **of_encoder)
            model = MaskedLM(encoder, 20, **of_head)
            made = TrainingOptimizer(optimizer(1e-2))
            made.build(model.trainable_variables)
        counted = held_by_each(ledger(model), 8, optimizer.ledger_slots)[strategy]
        seen = [held_bytes(model.weights), held_bytes(made.variables)]
        name = f"{strategy}, {optimizer.__name__}, {of_encoder | of_head}"
        found.append((name, seen, [counted.parameters, counted.slots]))
    print(json.dumps([found, [trained_on([[0, 2], [1]]), trained_on([[0, 1, 2]])]]))


def trained_on(sides):
    """Losses of two steps of one model whose matrices are cut along the sides of a grid that is said to be there."""
    keras.utils.set_random_seed(0)
    meshes.sides_of = lambda devices: sides
    with place("fully_sharded", batch_size=8).scope():
        model = MaskedLM(Encoder(60, 1, 2, 16, 24, 8, max_sequence_length=16, dropout=0.0), 20)
        model.compile(optimizer=TrainingOptimizer(AdamW(1e-2)))
        batch = make_batch(8)
        return [float(model.train_on_batch(*batch, return_dict=True)["loss"]) for _ in range(2)]


if __name__ == "__main__":
    work_quickly()
    main()
