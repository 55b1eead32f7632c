"""Chips that are not here: the compiler for them comes with a wheel, and needs none of them."""

import importlib.util

from rembed_keras.analysis.programs.chips import chip_of
from rembed_keras.errors import UserError, first_line

SETTINGS = {  # which the environment may overrule; to be set before JAX is imported
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",  # a process that compiles must not take the chips of one that trains
    "TPU_SKIP_MDS_QUERY": "1",  # ask no metadata server of the cloud what machine this is
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # two may compile at once: neither has a chip
    "TPU_MIN_LOG_LEVEL": "3",
}


def devices_of(topology: str) -> list:
    """The devices of a topology, for which JAX compiles and on which nothing can be put.

    Args:
        topology: the chip and the sides of the slice, for example "v5e:4x4".

    Raises:
        UserError: if the compiler is not installed, or knows no such topology.
    """
    chip_of(topology)
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("to compile for TPUs takes libtpu, which is not installed: pip install 'rembed-keras[tpu]'")
    from jax.experimental import topologies

    try:
        return [*topologies.get_topology_desc(platform="tpu", topology_name=topology).devices]
    except Exception as error:  # noqa: BLE001 # the compiler's own, of several kinds
        reason = first_line(error)
        raise UserError(f"there is no topology {topology}: {reason}") from None
