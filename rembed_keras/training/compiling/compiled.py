"""What a compiled step needs on each chip, and how fast it can be at most."""

import re
from dataclasses import dataclass

from rich.table import Table

from rembed_keras.analysis.programs.chips import Chip
from rembed_keras.analysis.programs.counting import Traffic, traffic_of
from rembed_keras.analysis.programs.text import read
from rembed_keras.training.compiling.lowering import Step

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = r"([\d.]+)([KMGT]?)"
REFUSALS = (  # what the compiler says of a step that does not fit: bytes that it takes, arguments too, and that it has
    re.compile(rf"HLO temporaries \({SIZE}\) exceeds available HBM \({SIZE}\)"),
    re.compile(rf"Used {SIZE} of {SIZE} hbm"),
)


@dataclass(frozen=True)
class Compiled:
    """A step as compiled for a topology; numbers are of one chip unless they say otherwise.

    Attributes:
        topology: for which it was compiled.
        chip: of the topology.
        chips: how many there are.
        strategy: of the step.
        tokens: of a batch, on all chips.
        step: as it was traced.
        temporary_bytes: gradients, activations and the like that lie in memory at once, at most.
        code_bytes: of the program.
        compiler_flops: as the compiler counts them, the body of a loop once.
        traffic: bytes moved; None if the compiler found that the step does not fit.
        used_bytes: all memory that the step needs.
        room: the memory that the compiler gives it, of a chip's.
    """

    topology: str
    chip: Chip
    chips: int
    strategy: str
    tokens: int
    step: Step
    temporary_bytes: int
    code_bytes: int
    compiler_flops: float
    traffic: Traffic | None
    used_bytes: int
    room: int

    @property
    def fits(self) -> bool:
        """Whether the step fits a chip's memory."""
        return self.traffic is not None and self.used_bytes <= self.room

    @property
    def seconds(self) -> dict[str, float]:
        """The least time that a step's "compute", "memory" and "interconnect" take, each by itself."""
        if self.traffic is None:
            return {}
        return {
            "compute": max(self.compiler_flops, self.step.flops / self.chips) / self.chip.flops,
            "memory": self.traffic.memory / self.chip.memory_rate,
            "interconnect": sum(self.traffic.sent.values()) / self.chip.link_rate,
        }

    @property
    def bound(self) -> str | None:
        """What takes longest."""
        return max(self.seconds, key=lambda name: self.seconds[name]) if self.seconds else None

    @property
    def tokens_per_second(self) -> float | None:
        """How many tokens a second all chips can train on at most, if all that is bound runs at once."""
        return self.tokens / self.seconds[self.bound] if self.bound else None

    def to_json(self) -> dict:
        """All of it as what JSON can say."""
        traffic = self.traffic
        return {
            "topology": self.topology,
            "chips": self.chips,
            "strategy": self.strategy,
            "tokens_per_step": self.tokens,
            "micro_batches": self.step.micro_batches,
            "parameter_bytes": self.step.parameter_bytes,
            "slot_bytes": self.step.slot_bytes,
            "temporary_bytes": self.temporary_bytes,
            "code_bytes": self.code_bytes,
            "used_bytes": self.used_bytes,
            "room_bytes": self.room,
            "fits": self.fits,
            "product_flops": self.step.flops / self.chips,
            "compiler_flops": self.compiler_flops,
            "memory_traffic_bytes": traffic.memory if traffic else None,
            "collectives": {
                kind: {"count": count, "result_bytes": traffic.results[kind], "sent_bytes": traffic.sent[kind]}
                for kind, count in sorted(traffic.collectives.items())
            }
            if traffic
            else None,
            "seconds": self.seconds,
            "bound": self.bound,
            "tokens_per_second": self.tokens_per_second,
        }

    def table(self, predicted: float, forecast: float) -> Table:
        """The same as a table.

        Args:
            predicted: tokens a second of the ledger's FLOPs at the chips' published rate.
            forecast: bytes that the step takes by the ledger's closed form.
        """
        step, traffic = self.step, self.traffic
        shown = Table(
            title=f"A step on {self.topology}, {self.strategy}: of each of {self.chips} chips", show_header=False
        )
        shown.add_column()
        shown.add_column(justify="right")
        shown.add_row("parameters", _megabytes(step.parameter_bytes))
        shown.add_row("optimizer slots", _megabytes(step.slot_bytes))
        shown.add_row("gradients and activations", _megabytes(self.temporary_bytes))
        shown.add_row("code", _megabytes(self.code_bytes))
        shown.add_row("memory, all", _megabytes(self.used_bytes))
        shown.add_row("  by the ledger's closed form", _megabytes(forecast))
        shown.add_row(f"memory that {self.chip.name} has for it", _megabytes(self.room), end_section=True)
        shown.add_row("FLOPs of matrix products", f"{step.flops / self.chips:.3e}")
        if traffic is not None:
            shown.add_row("FLOPs that the compiler counts, loops once", f"{self.compiler_flops:.3e}")
            shown.add_row("bytes to and from memory", f"{traffic.memory:.3e}", end_section=not traffic.collectives)
            last = max(traffic.collectives, default=None)
            for kind, count in sorted(traffic.collectives.items()):
                bytes_ = f"{traffic.results[kind]:.3e}"
                shown.add_row(f"{kind}, bytes of {count:,}", bytes_, end_section=kind == last)
            for name, seconds in self.seconds.items():
                is_bound = " (the bound)" if name == self.bound else ""
                shown.add_row(f"{name}, least ms{is_bound}", f"{1e3 * seconds:,.2f}")
            shown.add_row("tokens/s of all chips, at most", f"{self.tokens_per_second:,.0f}")
        shown.add_row("  by the ledger's FLOPs alone", f"{predicted:,.0f}")
        return shown


def compiled(step: Step, topology: str, chip: Chip, chips: int, strategy: str, tokens: int) -> Compiled:
    """Compiles a step, and reads what the compiler says of it.

    Temporaries are those in a chip's main memory: of a small step all lie in the memory beside its units, and there are
    none. The compiler counts them at their peak, with the alignment and padding that they have.

    Args:
        step: traced on the devices of the topology.
        topology: its name.
        chip: of the topology.
        chips: how many there are.
        strategy: of the step.
        tokens: of a batch.
    """
    import jax

    about = (topology, chip, chips, strategy, tokens, step)
    try:
        program = step.lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        refused = refusal(str(error))
        if refused is None:
            raise
        used, room = refused
        return Compiled(*about, used - step.parameter_bytes - step.slot_bytes, 0, 0.0, None, used, room)
    memory = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    code = memory.generated_code_size_in_bytes
    return Compiled(
        *about,
        memory.temp_size_in_bytes,
        code,
        program.cost_analysis()["flops"],
        traffic_of(read(program.as_text()), chips),
        held + memory.temp_size_in_bytes + code,
        int(chip.memory),
    )


def refusal(message: str) -> tuple[int, int] | None:
    """Bytes that a step takes and bytes that there are, of an error of the compiler's; None if it is about no memory.

    >>> refusal("the total memory required for HLO temporaries (2.00K) exceeds available HBM (1.50K).")
    (2048, 1536)
    """
    for known in REFUSALS:
        if found := known.search(message):
            used, its_unit, room, unit = found.groups()
            return int(float(used) * UNITS[its_unit]), int(float(room) * UNITS[unit])
    return None


def _megabytes(size):
    return f"{size / 1e6:,.1f} MB"
