"""A batch is one batch, whoever works on it: replicas and backends take the step that one device takes."""

import json
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grain
import keras
import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.interruption import Interrupted
from rembed_keras.modeling import MaskedLM
from rembed_keras.training import pretrain
from rembed_keras.training.distributed.processes import Processes
from rembed_keras.training.distributed.strategies import join, place
from rembed_keras.training.loop.callbacks import settle
from rembed_keras.training.loop.fit import check_folder
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.optimizers.adamw import AdamW
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer
from tests.interruptions.forks import run_module
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs
from tests.quickly import work_quickly
from tests.training.pretraining import make_encoder as small_encoder
from tests.training.pretraining import make_head, make_mixture, make_optimizer


def make_batch():
    """Four rows; a replica of two holds six predictions or one."""
    x = make_inputs([[FIRST], [FIRST, SECOND], [SECOND], [SECOND]], 12)
    x["mask_positions"] = np.array([[1, 2, 5], [1, 8, 9], [2, 0, 0], [0, 0, 0]], "int32")
    x["language_ids"] = np.array([0, 0, 1, 1], "int32")
    y = np.array([[11, 7, 21], [12, 31, 32], [32, 0, 0], [0, 0, 0]], "int32")
    weights = np.array([[1, 1, 1], [1, 1, 1], [1, 0, 0], [0, 0, 0]], "float32")
    return x, y, weights


def train(placement, steps=3, micro_batches=1, run_eagerly=False):
    with placement.scope():
        model = MaskedLM(make_encoder(num_layers=1), 20, micro_batches=micro_batches)
        model.track_groups(["de", "en"])
        how = {"jit_compile": placement.jit_compile and not run_eagerly, "run_eagerly": run_eagerly}
        model.compile(optimizer=TrainingOptimizer(keras.optimizers.SGD(1.0, momentum=0.9), clip_norm=0.5), **how)
        rng = np.random.default_rng(3)  # each backend draws its own initial weights
        for weight in model.weights:
            weight.assign(rng.normal(0, 0.3, weight.shape))
    losses = []

    def record(batch, logs):
        settle(model)
        means = model.get_metrics_result()
        model.reset_metrics()
        losses.append([float(means[key]) for key in ("loss", "accuracy", "loss/de", "loss/en")])

    with placement.scope():
        batches = grain.MapDataset.source([make_batch()]).repeat(steps).to_iter_dataset()
        seen = keras.callbacks.LambdaCallback(on_train_batch_end=record)
        model.fit(placement.feed(batches), steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[seen])
    losses = np.array(losses)
    values = {weight.path: np.asarray(keras.ops.convert_to_numpy(weight.value)) for weight in model.weights}
    return losses, values, float(keras.ops.convert_to_numpy(model.optimizer.gradient_norm.value))


def assert_same(ours, theirs):
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    for path, value in ours[1].items():
        np.testing.assert_allclose(value, theirs[1][path], atol=2e-5, err_msg=path)
    assert np.isclose(ours[2], theirs[2], rtol=1e-5)


@pytest.fixture(scope="module")
def one_device():
    return train(place("one_device", batch_size=4), run_eagerly=keras.config.backend() == "tensorflow")


def test_two_replicas_with_unequal_counts_take_the_step_of_one_device(one_device):
    placement = place({"tensorflow": "mirrored", "jax": "fully_sharded"}[keras.config.backend()], batch_size=4)
    assert placement.replicas == 2
    for micro_batches, jit_compile in ((1, True), (2, True)):  # a whole run without compiling: see test_strategies.py
        assert_same(train(replace(placement, jit_compile=jit_compile), micro_batches=micro_batches), one_device)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_replicas_compile_what_comes_before_the_sum_over_them(mirrored):
    import tensorflow as tf

    with mirrored.scope():
        model = MaskedLM(make_encoder(num_layers=1), 20)
        model.compile("adam", jit_compile=True, run_eagerly=True)
        assert not model.compiles_gradients
        model.compile(optimizer=TrainingOptimizer(AdamW(1e-2)), jit_compile=True)
        assert not model.jit_compile  # the step as a whole
        model.optimizer.build(model.trainable_variables)
    traced = tf.function(lambda: mirrored.run(lambda: model.train_step(make_batch()))).get_concrete_function()
    called = [each for each in traced.graph.get_operations() if each.type == "StatefulPartitionedCall"]
    assert len({each.device for each in called}) == len(called) == 2
    assert all(each.get_attr("_XlaMustCompile") for each in called)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="JAX takes batches as they are")
def test_no_thread_tunes_a_dataset():
    """TensorFlow's waits for up to a minute when it is asked to end, about once in ten runs."""
    dataset = place("one_device", batch_size=4).feed([make_batch()])
    assert dataset.options().autotune.enabled is False
    keras.tree.map_structure(np.testing.assert_array_equal, next(dataset.as_numpy_iterator()), make_batch())


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_replicas_skip_a_step_together():
    placement = place("mirrored", batch_size=4)
    with placement.scope():
        model = MaskedLM(make_encoder(num_layers=1), 20)
        model.compile(optimizer=TrainingOptimizer(AdamW(1e-2), skip_nonfinite=3), jit_compile=placement.jit_compile)
    x, y, weights = make_batch()
    broken = weights.copy()
    broken[0, 0] = np.inf  # in the rows of one replica
    model.train_on_batch(x, y, weights)
    optimizer = model.optimizer

    def state():
        counts = {id(optimizer.iterations), id(optimizer.gradient_norm), id(optimizer.skipped_steps)}
        held = [variable for variable in (*model.weights, *optimizer.variables) if id(variable) not in counts]
        return [part.numpy().tobytes() for variable in held for part in variable.value.values]

    before = state()
    model.train_on_batch(x, y, broken)
    assert state() == before
    assert [int(part) for part in optimizer.skipped_steps.value.values] == [1, 1]
    model.train_on_batch(x, y, weights)
    assert state() != before and np.isfinite(float(optimizer.gradient_norm.numpy()))


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="once is enough")
def test_tensorflow_and_jax_take_the_same_step(one_device, tmp_path):
    """Words repeat in the batch, so this fails where gradients of a word are not merged before Adam sees them."""
    file = tmp_path / "jax.npz"
    done = run_module(__spec__.name, file, KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    saved = dict(np.load(file))
    assert_same((saved.pop("losses"), saved, float(saved.pop("norm"))), one_device)


def test_strategies_that_cannot_be_are_refused():
    with pytest.raises(
        UserError, match="STRATEGY is 'two_devices'; it can be one of one_device, mirrored, multi_worker, tpu, "
    ):
        place("two_devices", batch_size=4)
    foreign = {"tensorflow": "model_parallel", "jax": "mirrored"}[keras.config.backend()]
    with pytest.raises(UserError, match=f"STRATEGY {foreign} needs KERAS_BACKEND="):
        place(foreign, batch_size=4)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_rows_that_replicas_cannot_share_are_refused():
    with pytest.raises(UserError, match="BATCH_SIZE is 3, which 2 replicas cannot share evenly"):
        place("mirrored", batch_size=3)
    with pytest.raises(UserError, match="FINETUNE_BATCH_SIZE is 5"):
        place("mirrored", batch_size=5, knob="FINETUNE_BATCH_SIZE")


WORKERS = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
@pytest.mark.parametrize(
    "said",
    [
        None,
        "not JSON",
        "[]",
        json.dumps({"cluster": WORKERS}),
        json.dumps({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}),
        json.dumps({"cluster": WORKERS | {"ps": ["127.0.0.1:3"]}, "task": {"type": "worker", "index": 0}}),
    ],
)
def test_workers_without_each_others_addresses_ask_for_tf_config(said, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if said is not None:
        monkeypatch.setenv("TF_CONFIG", said)
    with pytest.raises(UserError, match="STRATEGY multi_worker needs TF_CONFIG, on every worker, such as") as caught:
        join("multi_worker")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
@pytest.mark.parametrize("name", [None, "local"])
def test_where_there_is_no_tpu_one_line_says_so(name, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    if name:
        monkeypatch.setenv("TPU_NAME", name)
    with pytest.raises(UserError, match=r"STRATEGY tpu finds no TPU .*: set TPU_NAME") as caught:
        place("tpu", batch_size=8)
    assert "\n" not in str(caught.value)


class Store:
    """The keys and values of processes that are threads here; it ends with the first of them."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()
        self.has_ended = False

    def put(self, key, value):
        with self.changed:
            assert key not in self.values
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, timeout=300)
        time.sleep(0.1)  # an answer is on its way for a while
        assert not self.has_ended
        return self.values[key]


def test_what_the_chief_does_is_done_once_and_its_mistakes_reach_every_process():
    store, done = Store(), []

    def fail():
        raise UserError("the folder is full")

    def work(index):
        processes = Processes(index, 3, store.put, store.get)
        assert processes.exchange(index * index) == [0, 1, 4]
        assert processes.by_chief(lambda: done.append(index)) in (None, False)
        with pytest.raises(UserError, match="the folder is full"):
            processes.by_chief(fail)
        store.has_ended |= processes.is_chief
        return processes.is_chief

    with ThreadPoolExecutor() as pool:
        assert [*pool.map(work, range(3))] == [True, False, False]
    assert done == [0]


def test_a_stage_of_the_chief_alone_that_is_stopped_stops_every_process_to_be_started_again():
    store = Store()

    def stop():
        raise Interrupted(signal.SIGTERM)

    def work(index):
        processes = Processes(index, 2, store.put, store.get)
        with pytest.raises((Interrupted, UserError)) as caught:
            processes.by_chief(stop)
        store.has_ended |= processes.is_chief
        return str(caught.value), getattr(caught.value, "code", 2)

    with ThreadPoolExecutor() as pool:
        said = "stopped by SIGTERM; the same command resumes"
        assert [*pool.map(work, range(2))] == [(said, 75), (said, 75)]


def test_processes_that_see_different_folders_are_asked_to_share_one(tmp_path):
    store = Store()

    def work(index):
        placement = replace(place("one_device", 8), processes=Processes(index, 2, store.put, store.get))
        with pytest.raises(UserError, match=r"see checkpoints of steps \[0, 100\] .*WORKDIR must be a folder that all"):
            check_folder(placement, tmp_path, 100 * index)
        store.has_ended |= placement.processes.is_chief

    with ThreadPoolExecutor() as pool:
        [*pool.map(work, range(2))]


def test_every_process_waits_for_a_checkpoint_and_stops_where_the_first_cannot_write_it(corpus, tmp_path, monkeypatch):
    """The second of two, whose first one says what it says, and once that it failed."""
    said, answers = {}, iter([{"result": True}, {"error": "the disk is full"}])  # of the corpus, and of the checkpoint

    def get(key):
        asked, _, _ = key.rpartition("/")
        return said[f"{asked}/1"] if f"{asked}/1" in said else json.dumps(next(answers))

    placement = replace(place("one_device", 4, jit_compile=False), processes=Processes(1, 2, said.__setitem__, get))
    monkeypatch.setattr(sys.modules[pretrain.__module__], "place", lambda *_: placement)
    workdir, made = Workdir(tmp_path, is_chief=False), (small_encoder, make_head, make_optimizer, make_mixture)
    with pytest.raises(UserError, match="process 1 stops because the first one did: the disk is full"):
        pretrain(workdir, *made, steps=1, corpus=str(corpus.path), jit_compile=False)
    assert not [*answers]


if __name__ == "__main__":
    work_quickly()
    losses, values, norm = train(place("one_device", batch_size=4))
    np.savez(sys.argv[1], losses=losses, norm=norm, **values)
