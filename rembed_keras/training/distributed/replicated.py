"""Strategies of TensorFlow: the same program on several devices or machines, each with its part of every batch.

A strategy is made once a process, because a second one of other shapes fails in its collectives, and `multi_worker` and
`tpu` before TensorFlow runs anything else. Batches are cut here, not by TensorFlow, which would have to guess: every
process makes the whole batch of a step, which is cheap, and takes the rows of its own replicas.
"""

import json
import os
from functools import lru_cache
from itertools import islice

import keras

from rembed_keras import compat
from rembed_keras.errors import UserError, first_line
from rembed_keras.training.distributed.processes import Processes, part_of

EXAMPLE = '{"cluster": {"worker": ["host1:port", "host2:port"]}, "task": {"type": "worker", "index": 0}}'


@lru_cache
def mirrored():
    """The MirroredStrategy over this machine's GPUs, or where there are none over its logical CPUs."""
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


@lru_cache
def multi_worker():
    """The MultiWorkerMirroredStrategy over the processes that TF_CONFIG names, connected when this returns.

    Raises:
        UserError: if TF_CONFIG is missing, or not of this form: it lists the workers and says which this process is.
    """
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        hosts, task = config["cluster"], config["task"]
        is_there = 0 <= int(task["index"]) < len(hosts[task["type"]]) and hosts.keys() <= {"chief", "worker"}
    except (ValueError, KeyError, TypeError):
        is_there = False
    if not is_there:
        raise UserError(f"STRATEGY multi_worker needs TF_CONFIG, on every worker, such as {EXAMPLE}; it is {text!r}")
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()


@lru_cache
def tpu():
    """The TPUStrategy over the TPU that TPU_NAME names; "local" is the one of this machine.

    Raises:
        UserError: if there is none.
    """
    import tensorflow as tf

    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME"))
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        reason = first_line(error)
        raise UserError(
            f"STRATEGY tpu finds no TPU ({reason}): set TPU_NAME to its name, or to local on its own machine"
        ) from None


@lru_cache
def workers() -> Processes:
    """The processes that `multi_worker` connects."""
    import tensorflow as tf

    resolver = multi_worker().cluster_resolver
    hosts = resolver.cluster_spec().as_dict()
    chiefs = len(hosts.get("chief", ()))
    index = resolver.task_id + (chiefs if resolver.task_type == "worker" else 0)
    here = compat.tensorflow_processes()
    tasks = [(job, number) for job, addresses in hosts.items() for number in range(len(addresses))]
    others = [task for task in tasks if task != (resolver.task_type, resolver.task_id)]

    def is_one_lost():
        for job, number in others:
            try:
                here.check_collective_ops_peer_health(f"/job:{job}/replica:0/task:{number}", timeout_in_ms=10_000)
            except (tf.errors.UnavailableError, tf.errors.FailedPreconditionError):  # lost; lost and back
                return True
            except tf.errors.DeadlineExceededError:  # there, and busy
                continue
        return False

    return Processes(index, len(tasks), here.set_config_key_value, here.get_config_key_value, is_one_lost)


def compiles_gradients() -> bool:
    """Whether XLA compiles what replicas compute by themselves: on GPUs. On CPUs it saves nothing, and takes its time.

    >>> isinstance(compiles_gradients(), bool)
    True
    """
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU"))


def feed_one(batches, shapes=()):
    """A dataset of batches as they are, as `model.fit` takes it on one device; see `feed`."""
    return _dataset(lambda: batches, shapes or [*islice(iter(batches), 1)])


def feed(strategy, batches, shapes=()):
    """A dataset that hands each replica its rows of every batch.

    Args:
        strategy: of `tf.distribute`.
        batches: an iterable of batches, nested arrays [B, ...].
        shapes: a batch of each shape that they have; by default all have that of the first.

    Returns:
        A `tf.distribute.DistributedDataset`, as `model.fit` takes it: replica r of R has the r-th of R parts of rows.
    """

    def rows_of(batch, replica, replicas):
        return keras.tree.map_structure(lambda column: part_of(column, replica, replicas), batch)

    replicas = strategy.num_replicas_in_sync
    parts_of_shapes = [rows_of(batch, 0, replicas) for batch in shapes or islice(iter(batches), 1)]

    def of_process(context):
        replicas = context.num_replicas_in_sync
        count = replicas // context.num_input_pipelines
        own = range(context.input_pipeline_id * count, (context.input_pipeline_id + 1) * count)

        def parts():
            for batch in batches:
                for replica in own:
                    yield rows_of(batch, replica, replicas)

        return _dataset(parts, parts_of_shapes).prefetch(2 * count)

    return strategy.distribute_datasets_from_function(of_process)


def _dataset(make, examples):
    """A `tf.data.Dataset` of what `make()` iterates over, nested arrays like those of some examples.

    It has nothing to tune. TensorFlow's thread that tunes would, about once in ten runs, sleep through its call to end
    for up to a minute, and the run with it.
    """
    import tensorflow as tf

    def spec(*columns):
        sizes = [
            sizes[0] if len({*sizes}) == 1 else None for sizes in zip(*(each.shape for each in columns), strict=True)
        ]
        return tf.TensorSpec(sizes, columns[0].dtype)

    signature = keras.tree.map_structure(spec, *examples)
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_generator(make, output_signature=signature).with_options(options)
