"""A recipe's own train step, traced from arrays that have shapes and no values.

The model, the optimizer and the strategy are those of `pretrain`; only the numbers are missing, so that a model of any
size is traced in the memory that its layers take.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from rembed_keras import compat
from rembed_keras.adaptation.terms import Term
from rembed_keras.data.pipeline.schedules import check_shares
from rembed_keras.errors import UserError
from rembed_keras.modeling.attention.platforms import tracing_for
from rembed_keras.training.compiling import NO_TEACHER
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.stages.pretrain import made_learner


@dataclass(frozen=True)
class Step:
    """A train step that is traced.

    Attributes:
        lowered: of JAX, to be compiled.
        parameter_bytes: bytes of the model's variables on one device.
        slot_bytes: those of the optimizer's.
        flops: of all matrix products of a step on all devices, loops counted as often as they run.
        micro_batches: parts of a batch that are trained on one after the other.
    """

    lowered: Any
    parameter_bytes: int
    slot_bytes: int
    flops: int
    micro_batches: int


def lowered_step(
    make: Callable,
    optimizer: Callable,
    batch: tuple[dict[str, np.ndarray], np.ndarray, np.ndarray],
    devices: Sequence[Any] | None = None,
    strategy: str = "one_device",
    terms: Sequence[Term] = (),
    clip_norm: float | None = 1.0,
    skip_nonfinite: int = 0,
    platform: str | None = None,
) -> Step:
    """Traces a train step; nothing is computed, and no variable takes memory.

    Args:
        make: makes the pre-training model.
        optimizer: makes the optimizer.
        batch: a batch, of which shapes and dtypes are taken; see `data.Mixture.blank`.
        devices: of a topology; those of this machine by default.
        strategy: "one_device", "data_parallel", "model_parallel" or "fully_sharded".
        terms: loss terms, without teachers.
        clip_norm: as of `pretrain`.
        skip_nonfinite: as of `pretrain`.
        platform: what to lower for instead of the devices' own, for example "cuda".

    Raises:
        UserError: for a backend other than JAX, a strategy of TensorFlow's, rows that devices cannot share evenly, or
            a teacher.
    """
    if keras.config.backend() != "jax":
        raise UserError(
            f"steps are compiled for other chips by JAX: set KERAS_BACKEND=jax, it is {keras.config.backend()}"
        )
    if any(getattr(term, "teachers", ()) for term in terms):
        raise UserError(NO_TEACHER)
    import jax

    devices = [*(jax.devices() if devices is None else devices)]
    rows = len(batch[1])
    placement = place(strategy, rows, devices=None if strategy == "one_device" else devices)
    alone = jax.sharding.SingleDeviceSharding(devices[0])
    traced_for = tracing_for(platform or devices[0].platform)
    with compat.abstract_variables(alone), placement.scope(), traced_for:
        learner = made_learner(make, optimizer, terms, ["all"], placement, clip_norm, skip_nonfinite)
        if learner.teachers:
            raise UserError(NO_TEACHER)
        check_shares({0: rows}, placement.replicas * getattr(learner, "micro_batches", 1))
        step, state = compat.compiled_train_step(learner)
        spread = keras.distribution.distribution()

        def described(array):
            own = alone if spread is None else spread.get_data_layout(array.shape).backend_layout
            return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=own)

        data = keras.tree.map_structure(described, batch)
        traced = step.trace(state, data)
        lowered = traced.lower(lowering_platforms=(platform,)) if platform else traced.lower()
    trainable, rest, slots, _ = state
    return Step(
        lowered,
        sum(map(bytes_on_one, itertools.chain(trainable, rest))),
        sum(map(bytes_on_one, slots)),
        product_flops(traced.jaxpr.jaxpr),
        getattr(learner, "micro_batches", 1),
    )


def bytes_on_one(array: Any) -> int:
    """Bytes of an array on one of the devices that it is spread over."""
    return math.prod(array.sharding.shard_shape(array.shape)) * np.dtype(array.dtype).itemsize


def product_flops(jaxpr: Any) -> int:
    """FLOPs of the matrix products of a traced program, a multiplication and an addition counting as two.

    Loops and kernels count as often as they run, where the program says it, and what each device does with its own rows
    as often as there are devices; other loops, and branches, count once.

    Args:
        jaxpr: of JAX.
    """
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            left, _ = (variable.aval for variable in equation.invars)
            ((contracted, _), _) = equation.params["dimension_numbers"]
            inner = math.prod(left.shape[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
            continue
        times = _times(equation)
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else [value]:
                inside = getattr(part, "jaxpr", part)
                if hasattr(inside, "eqns"):
                    total += times * product_flops(inside)
    return total


def _times(equation):
    """How often what is inside of an operation runs on all devices."""
    match equation.primitive.name:
        case "scan":
            return equation.params["length"]
        case "shard_map":
            return equation.params["mesh"].size
        case "pallas_call":  # one program for each cell of its grid
            return math.prod(side for side in equation.params["grid_mapping"].grid if isinstance(side, int))
    return 1
