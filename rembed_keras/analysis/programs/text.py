"""The text of a compiled program (HLO), as far as counting needs it: computations, instructions, types."""

import math
import re
from dataclasses import dataclass

SIZES = {"pred": 1, "s4": 0.5, "u4": 0.5, "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16, "bf16": 2, "token": 0}
ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([0-9,]*)\](?:\{([^}]*)\})?")
HEADER = re.compile(r"(ENTRY )?%(?P<name>[^ ]+) \(.*\{$")
NAME = re.compile(r"%([^ ,(){}]+)")


@dataclass(frozen=True)
class Array:
    """An array of a program: its size, and whether it lies in the chip's main memory and not beside its units."""

    bytes: float
    is_in_memory: bool


@dataclass(frozen=True)
class Instruction:
    """A line of a computation.

    Attributes:
        name: its own.
        opcode: what it does.
        arrays: that it results in.
        operands: names of what it reads.
        attributes: the rest of the line.
        is_root: whether it is what its computation results in.
    """

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    is_root: bool

    def called(self, attribute: str) -> str | None:
        """The computation that an attribute names."""
        found = re.search(rf"\b{attribute}=%([^ ,]+)", self.attributes)
        return found[1] if found else None


@dataclass(frozen=True)
class Program:
    """A compiled program: its computations by name, and which one is run."""

    computations: dict[str, dict[str, Instruction]]
    entry: str


def arrays_of(text: str) -> tuple[Array, ...]:
    """The arrays in the text of a type.

    >>> arrays_of("(bf16[2,3]{1,0:T(8,128)S(1)}, f32[])")
    (Array(bytes=12, is_in_memory=False), Array(bytes=4, is_in_memory=True))
    """
    return tuple(
        Array(_size(kind) * math.prod(int(side) for side in sides.split(",") if side), "S(" not in layout)
        for kind, sides, layout in ARRAY.findall(text)
    )


def read(text: str) -> Program:
    """Reads the text of a compiled program.

    Args:
        text: as `jax.stages.Compiled.as_text` gives it.
    """
    computations: dict[str, dict[str, Instruction]] = {}
    entry, inside = "", None
    for line in text.splitlines():
        if (header := HEADER.match(line)) is not None:
            inside = computations[header["name"]] = {}
            entry = header["name"] if line.startswith("ENTRY") else entry
        elif inside is not None and " = " in line:
            instruction = _instruction(line)
            inside[instruction.name] = instruction
    return Program(computations, entry)


def _instruction(line):
    name, _, rest = line.strip().partition(" = ")
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    kind, rest = rest[:end], rest[end:].strip()
    begin = rest.index("(")
    opcode, rest = rest[:begin], rest[begin:]
    end = _closing(rest)
    names = tuple(NAME.findall(rest[:end])) if opcode != "constant" else ()
    arguments = rest[:end] if opcode in ("parameter", "constant") else ""
    own = name.removeprefix("ROOT ").removeprefix("%")
    return Instruction(own, opcode, arrays_of(kind), names, arguments + rest[end:], name.startswith("ROOT"))


def _closing(text):
    """Where the parenthesis that a text begins with is closed, and past it."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return place + 1
    return len(text)


def _size(kind):
    """Bytes of a number: f32 has 4, s8 has 1, f8e4m3fn has 1."""
    if kind in SIZES:
        return SIZES[kind]
    bits = re.search(r"\d+", kind)
    return int(bits[0]) // 8 if bits else 0
