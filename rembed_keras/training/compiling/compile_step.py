"""A recipe's train step compiled for chips that are not here."""

from collections.abc import Callable, Sequence
from typing import Any

from rembed_keras.adaptation.terms import Term
from rembed_keras.analysis.programs.chips import chip_of
from rembed_keras.errors import CountOrZero, Rate
from rembed_keras.training.compiling.compiled import Compiled, compiled
from rembed_keras.training.compiling.lowering import lowered_step
from rembed_keras.training.distributed.strategies import Strategy


def compile_step(
    topology: str,
    devices: Sequence[Any],
    batch: Any,
    encoder: Callable,
    model: Callable,
    optimizer: Callable,
    clip_norm: Rate | None = 1.0,
    skip_nonfinite: CountOrZero = 0,
    terms: Sequence[Term] = (),
    strategy: Strategy = "one_device",
) -> Compiled:
    """Compiles the step that `pretrain` would take on a topology's chips.

    Args:
        topology: the chip and the sides of the slice, for example "v5e:4x4".
        devices: of it; see `compiling.topologies`.
        batch: a batch, of which shapes and dtypes are taken; see `data.Mixture.blank`.
        encoder: as of `pretrain`, like those that follow.
        model: makes the pre-training model of an encoder.
        optimizer: makes the optimizer.
        clip_norm: the largest global norm of a gradient.
        skip_nonfinite: how many steps with a non-finite gradient are skipped.
        terms: loss terms, without teachers.
        strategy: `one_device` on several chips leaves all but one idle, and is `data_parallel` here.

    Raises:
        UserError: for a strategy of TensorFlow's, rows that chips cannot share evenly, or a teacher.
    """
    chips = len(devices)
    if strategy == "one_device" and chips > 1:
        strategy = "data_parallel"
    step = lowered_step(lambda: model(encoder()), optimizer, batch, devices, strategy, terms, clip_norm, skip_nonfinite)
    return compiled(step, topology, chip_of(topology), chips, strategy, batch[0]["token_ids"].size)
