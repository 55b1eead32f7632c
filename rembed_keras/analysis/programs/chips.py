"""What chips can do, as their makers publish it: the rates that bound a step."""

from dataclasses import dataclass

from rembed_keras.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Chip:
    """A chip's published rates.

    Attributes:
        name: as a topology begins, for example "v5e".
        kind: as JAX calls its devices.
        flops: of products in bfloat16, a second.
        memory: bytes.
        memory_rate: bytes a second between the chip and its memory.
        link_rate: bytes a second that a chip sends to its neighbors, all links together.
    """

    name: str
    kind: str
    flops: float
    memory: float
    memory_rate: float
    link_rate: float


# Source: docs.cloud.google.com/tpu/docs/v4, v5e, v5p and v6e, "key chip specifications"; interconnects are published
# in bits a second: 2,400, 1,600, 4,800 and 3,584 Gbit/s.
CHIPS = (
    Chip("v4", "TPU v4", 275e12, 32 * 2**30, 1228e9, 300e9),
    Chip("v5e", "TPU v5 lite", 197e12, 16 * 2**30, 819e9, 200e9),
    Chip("v5p", "TPU v5", 459e12, 95 * 2**30, 2765e9, 600e9),
    Chip("v6e", "TPU v6 lite", 918e12, 32 * 2**30, 1640e9, 448e9),
)

# Source: NVIDIA's data sheets of these products, "bfloat16 Tensor Core", without sparsity.
GPU_FLOPS = {
    "A100-SXM4-40GB": 312e12,
    "A100-SXM4-80GB": 312e12,
    "A100-PCIE-40GB": 312e12,
    "A100 80GB PCIe": 312e12,
    "H100 PCIe": 756e12,
    "H100 80GB HBM3": 989e12,
    "H200": 989e12,
    "L4": 121e12,
}


def chip_of(topology: str) -> Chip:
    """The chip of a topology.

    Args:
        topology: the chip and the sides of the slice, for example "v5e:4x4".

    Raises:
        UserError: for a chip that is not known.

    >>> chip_of("v5e:4x4").memory_rate
    819000000000.0
    """
    name, _, sides = topology.partition(":")
    for chip in CHIPS:
        if chip.name == name and sides:
            return chip
    names = [chip.name for chip in CHIPS]
    meant = did_you_mean(name, names)
    raise UserError(f"the topology is {topology!r}{meant}; it must be one of {', '.join(names)}, and sides: v5e:4x4")
