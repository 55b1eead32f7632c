"""Where a model's variables live and who computes a step: one recipe knob, `STRATEGY`.

A strategy says where a run is computed, not what: the batch, its masks, the loss's denominator, the clipping and the
log are those of the whole batch, whoever works on it, so a run may be continued under another strategy. Dropout alone
differs on TensorFlow, where each replica draws the masks of its own rows.

A strategy is opened before anything that owns variables is built. XLA is on wherever it works: under one device, and on
JAX. It cannot compile an all-reduce of TensorFlow's: on GPUs it compiles what a replica computes before that.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import keras

from rembed_keras.errors import UserError
from rembed_keras.training.distributed import meshes, replicated
from rembed_keras.training.distributed.processes import Processes

Strategy: TypeAlias = Literal[
    "one_device", "mirrored", "multi_worker", "tpu", "data_parallel", "model_parallel", "fully_sharded"
]
STRATEGIES: dict[str, tuple[str | None, Callable]] = {  # whose each is, and what opens it
    "one_device": (None, contextlib.nullcontext),
    "mirrored": ("tensorflow", replicated.mirrored),
    "multi_worker": ("tensorflow", replicated.multi_worker),
    "tpu": ("tensorflow", replicated.tpu),
    "data_parallel": ("jax", meshes.data_parallel),
    "model_parallel": ("jax", meshes.model_parallel),
    "fully_sharded": ("jax", meshes.fully_sharded),
}


@dataclass(frozen=True)
class Placement:
    """How steps are run.

    Attributes:
        name: the strategy's name, as in a recipe.
        replicas: how many replicas or devices share a batch.
        scope: opens the context in which models and optimizers are built, and trained.
        jit_compile: what to hand to `model.compile`.
        feed: makes of global batches what `model.fit` takes in this process; of batches of several shapes it is given
            one of each besides.
        processes: who works together.
    """

    name: str
    replicas: int
    scope: Callable[[], contextlib.AbstractContextManager]
    jit_compile: bool | str
    feed: Callable[..., Any]
    processes: Processes = field(default_factory=Processes)

    @property
    def takes_shapes(self) -> bool:
        """Whether batches may have several shapes; TPUs of TensorFlow, on which it is untested, get one."""
        return self.name != "tpu"


def join(strategy: str) -> Processes:
    """Connects this process to those it works with, if the strategy is one of several processes.

    TensorFlow must not have run anything before. All processes come back from this when all are there.

    Args:
        strategy: as in `place`.

    Raises:
        UserError: as `place`.

    >>> join("one_device").count
    1
    """
    backend = keras.config.backend()
    if strategy not in STRATEGIES:
        raise UserError(f"STRATEGY is {strategy!r}; it can be one of {', '.join(STRATEGIES)}")
    needed, _ = STRATEGIES[strategy]
    if needed not in (None, backend):
        raise UserError(f"STRATEGY {strategy} needs KERAS_BACKEND={needed}; the backend is {backend}")
    if strategy == "multi_worker":
        return replicated.workers()
    return meshes.workers() if needed == "jax" else Processes()


def place(
    strategy: str,
    batch_size: int,
    jit_compile: bool = True,
    knob: str = "BATCH_SIZE",
    devices: Sequence[Any] | None = None,
) -> Placement:
    """Opens the strategy of that name.

    Args:
        strategy: "one_device". On TensorFlow "mirrored": one replica on each device of this machine; "multi_worker":
            the same on each machine that TF_CONFIG lists; "tpu": one on each core of the TPU that TPU_NAME names,
            which was never tried on a real one. On JAX "data_parallel": all devices of this machine, or of the
            processes that KERAS_DISTRIBUTION_JOB_ADDRESSES connects, share a batch; "model_parallel": they share the
            rows of the tables of words, and their optimizer slots, too; "fully_sharded": all other matrices too.
        batch_size: rows of the global batch, which the replicas share evenly.
        jit_compile: whether to use XLA where it works; without it a run starts sooner and its steps take longer, but
            for bfloat16 on a CPU that multiplies it.
        knob: the recipe's name of the batch size.
        devices: of JAX, for its own strategies; those of this machine by default.

    Raises:
        UserError: for a strategy that is unknown, that the backend does not have or the environment does not allow, or
            rows that cannot be shared.

    >>> place("one_device", batch_size=8).replicas
    1
    """
    processes, backend = join(strategy), keras.config.backend()
    _, opens = STRATEGIES[strategy]
    if strategy == "one_device":
        if backend == "tensorflow":
            return Placement(strategy, 1, opens, jit_compile, replicated.feed_one)
        return Placement(strategy, 1, opens, jit_compile and "auto", meshes.feed_one)
    opened = opens() if devices is None else opens([*devices])
    is_compiled: bool | str
    if backend == "jax":
        replicas, is_compiled, feed = opened.device_mesh.devices.size, "auto", partial(meshes.feed, processes)
    else:
        replicas, feed = opened.num_replicas_in_sync, partial(replicated.feed, opened)
        is_compiled = jit_compile and replicated.compiles_gradients()
    if batch_size % replicas:
        raise UserError(f"{knob} is {batch_size}, which {replicas} replicas cannot share evenly")
    return Placement(strategy, replicas, opened.scope, is_compiled, feed, processes)
