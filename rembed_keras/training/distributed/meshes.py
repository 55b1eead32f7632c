"""Distributions of JAX: one program over all devices, with arrays that are spread over them.

`data_parallel` spreads the rows of batches. `model_parallel` spreads the rows of the tables of words too, input and
output, with their optimizer slots, over the same devices: this is where a multilingual encoder has its parameters, and
only a lookup and a product touch them. The blocks between them see their own rows of the batch alone, so no device
computes what another one does. `fully_sharded` spreads all other matrices too, which blocks gather to be computed: see
`modeling.gathering`.
"""

import os
import re
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import keras
import numpy as np

from rembed_keras import compat
from rembed_keras.analysis.cost.shards import cut_of
from rembed_keras.errors import UserError, first_line
from rembed_keras.training.distributed.processes import Processes, part_of

TABLE = re.compile(r"(^|/)(token|table|difference|columns|band_\d+)/embeddings$")
PATIENCE = 60_000  # milliseconds of one try
COORDINATORS = ("KERAS_DISTRIBUTION_JOB_ADDRESSES", "JAX_COORDINATOR_ADDRESS")


@lru_cache
def workers() -> Processes:
    """The processes that work together: connected when this returns, if the environment names their coordinator.

    KERAS_DISTRIBUTION_JOB_ADDRESSES is `host:port` of the first process; KERAS_DISTRIBUTION_NUM_PROCESSES and
    KERAS_DISTRIBUTION_PROCESS_ID say how many there are and which this is. Where JAX finds such things out by itself,
    as under SLURM, JAX_COORDINATOR_ADDRESS is enough.

    Raises:
        UserError: if they cannot be connected.
    """
    if not any(os.environ.get(name) for name in COORDINATORS):
        return Processes()
    try:
        keras.distribution.initialize()
    except (ValueError, TypeError, RuntimeError) as error:
        reason = first_line(error)
        raise UserError(
            f"processes cannot be connected ({reason}): set KERAS_DISTRIBUTION_JOB_ADDRESSES to host:port of the "
            "first, KERAS_DISTRIBUTION_NUM_PROCESSES and KERAS_DISTRIBUTION_PROCESS_ID, from 0"
        ) from None
    state = compat.jax_processes()
    store: Any = state.client

    def get(key):
        import jax

        while True:
            try:
                return store.blocking_key_value_get(key, PATIENCE)
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise

    return Processes(state.process_id, state.num_processes, store.key_value_set, get)


def data_parallel(devices=None):
    """Every device has all variables and its rows of each batch; all devices that there are, or those of a list."""
    return keras.distribution.DataParallel(
        devices=devices or keras.distribution.list_devices(), auto_shard_dataset=False
    )


def model_parallel(devices=None):
    """Every device has its rows of each batch and of each table of words, and all other variables."""
    return TableParallel(devices or keras.distribution.list_devices())


def fully_sharded(devices=None):
    """Every device has its rows of each batch, and its part of each table and of each other matrix."""
    return FullyParallel(devices or keras.distribution.list_devices())


class TableParallel(keras.distribution.ModelParallel):
    """Batches and tables of words are spread over all devices by their rows.

    Where the devices are more than can share the rows of a table evenly, it is spread over as many as can, several
    times: over 4 of 8 if V is a multiple of 4 and not of 8.

    Args:
        devices: names of devices, as `keras.distribution.list_devices` gives them, or devices of JAX.
    """

    def __init__(self, devices):
        sizes = _prime_factors(len(devices))
        names = [f"part_{i}" for i in range(len(sizes))]
        mesh = keras.distribution.DeviceMesh(sizes, names, devices)
        layouts = keras.distribution.LayoutMap(mesh)
        super().__init__(layout_map=layouts, batch_dim_name=names[0], auto_shard_dataset=False)
        self.sides = sides_of(mesh.backend_mesh.devices)

    @property
    def num_model_replicas(self):
        """How many parts a batch has."""
        return self.device_mesh.devices.size

    def get_data_layout(self, data_shape):
        """Rows over all devices."""
        return CutLayout(self.device_mesh, [self.device_mesh.axis_names], len(data_shape))

    def get_variable_layout(self, variable):
        """Rows of tables over as many devices as can share them evenly; everything else whole on each."""
        if (given := compat.layout_of(variable)) is not None:
            return given
        return self.layout_over(variable.shape, 0 if is_table(variable) else None)

    def layout_over(self, shape, cut):
        """A dimension over as many devices as can share it evenly; with None the whole array on each."""
        axes: list[list[str]] = [[] for _ in self.sides]
        parts = 1
        for side, along in zip(axes, self.sides, strict=True):
            for axis in along:
                size = self.device_mesh.shape[axis]
                if cut is not None and shape[cut] % (parts * size) == 0:
                    side.append(self.device_mesh.axis_names[axis])
                    parts *= size
        return CutLayout(self.device_mesh, [side for side in axes if side], len(shape), cut or 0)


class FullyParallel(TableParallel):
    """As `TableParallel`, and all other matrices are in parts too, which their layers gather when they are computed.

    Of a variable that dimension is cut which most devices can share evenly, the first of several. Vectors, biases and
    norms, stay whole: they are a thousandth of an encoder, and each would be gathered by itself.
    """

    def get_variable_layout(self, variable):
        """Parts of matrices over as many devices as can share them evenly; everything else whole on each."""
        if (given := compat.layout_of(variable)) is not None:
            return given
        return self.layout_over(variable.shape, cut_of(variable.shape, self.num_model_replicas, is_table(variable)))

    def is_gathered(self, variable):
        """Whether a variable is in parts that its layer gathers; tables are used in parts."""
        layout = compat.layout_of(variable)
        return not is_table(variable) and bool(getattr(layout, "parts_over", ()))


def is_table(variable) -> bool:
    """Whether a variable is a table of tokens, or a band of one."""
    return bool(TABLE.search(variable.path))


class CutLayout(keras.distribution.TensorLayout):
    """One dimension of an array over several axes of a mesh at once, which Keras's own layouts cannot say.

    Args:
        mesh: the `keras.distribution.DeviceMesh`.
        along: names of axes of the mesh, those of each side of a grid of chips by themselves; with none every device
            has the whole array.
        rank: how many dimensions the array has.
        cut: which of them is cut; the first by default.
    """

    def __init__(self, mesh, along, rank, cut=0):
        super().__init__([None] * rank, mesh)
        self.along = [tuple(side) for side in along]
        self.cut = cut

    @property
    def parts_over(self):
        """Names of all axes that the array is cut along."""
        return sum(self.along, ())

    @property
    def backend_layout(self):
        """The same as JAX says it."""
        return self._over(self.parts_over)

    @property
    def backend_steps(self):
        """Layouts of JAX from the whole array to this one: cut along one side of the grid, along two, and so on."""
        return [self._over(sum(self.along[: i + 1], ())) for i in range(len(self.along))]

    def _over(self, axes):
        from jax.sharding import NamedSharding, PartitionSpec

        spec = PartitionSpec(*[None] * self.cut, axes) if axes else PartitionSpec()
        return NamedSharding(self.device_mesh.backend_mesh, spec)


def feed(processes: Processes, batches, shapes=()):
    """The rows of each global batch that the devices of this process take: all, if it is the only one.

    Args:
        processes: who works together.
        batches: a `grain.IterDataset` of batches, nested arrays [B, ...].
        shapes: a batch of each shape, as strategies of TensorFlow ask for; JAX sees them as they come.
    """
    if processes.count > 1:
        own = partial(part_of, part=processes.index, parts=processes.count)
        batches = batches.map(partial(keras.tree.map_structure, own))
    return feed_one(batches)


def feed_one(batches, shapes=()) -> Iterator:
    """Batches as they are, as `model.fit` takes them on one device; Keras 3.10 takes no data sets of Grain."""
    yield from batches


def whole(value) -> np.ndarray:
    """The value of an array that may be spread over devices of several processes, which must all ask for it."""
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        # TensorFlow has no array of a tensor that is one number of bfloat16, but the number
        return np.asarray(value.numpy()) if hasattr(value, "numpy") else keras.ops.convert_to_numpy(value)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


def sides_of(devices: np.ndarray) -> list[list[int]]:
    """Axes of a mesh by the side of the grid of chips that they run along.

    Chips send to their neighbours along a side, and XLA's compiler for TPUs has sums in parts along one side at a time.

    Args:
        devices: of JAX, in the shape of the mesh.

    Returns:
        All axes as one side where devices have no place in a grid, as CPUs and GPUs, or an axis runs across sides.

    >>> from types import SimpleNamespace as Chip
    >>> sides_of(np.array([Chip(coords=[x, y], core_on_chip=0) for x in (0, 1) for y in (0, 1)]).reshape(2, 2))
    [[0], [1]]
    >>> sides_of(np.array([Chip(), Chip()]))
    [[0]]
    """
    if not all(hasattr(each, "coords") for each in devices.flat):
        return [[*range(devices.ndim)]]
    places = np.array([[*each.coords, each.core_on_chip] for each in devices.flat]).reshape(*devices.shape, -1)
    sides: dict[int, list[int]] = {}
    for axis in range(devices.ndim):
        moves = np.diff(places, axis=axis).reshape(-1, places.shape[-1]).any(0)
        if moves.sum() > 1:
            return [[*range(devices.ndim)]]
        sides.setdefault(int(moves.argmax()), []).append(axis)
    return [*sides.values()]


def _prime_factors(number):
    """The prime factors of a number, rising; a one for one."""
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors or [1]
