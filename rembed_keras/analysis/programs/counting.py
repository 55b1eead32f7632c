"""What a compiled program moves, on each chip: bytes to and from its memory, and bytes that chips exchange.

The compiler's own analysis counts the body of a loop once; here it counts as often as it runs.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rembed_keras.analysis.programs.text import Instruction, Program

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
UNMOVED = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "iota"),
    *("after-all", "partition-id", "replica-id", "optimization-barrier"),
}
PICKING = ("dynamic-slice", "slice", "gather")  # read of an operand what they result in
SCATTERED = "all-reduce-scatter"  # a computation of an all-reduce and of the slice of it that a chip keeps


@dataclass
class Traffic:
    """Bytes that one chip moves in a run of a program.

    Attributes:
        memory: to and from its memory.
        results: of collectives by kind, the bytes that they result in on a chip.
        sent: of collectives by kind, the bytes that a chip must send at least.
        collectives: how many of each kind are run.
    """

    memory: float = 0.0
    results: Counter = field(default_factory=Counter)
    sent: Counter = field(default_factory=Counter)
    collectives: Counter = field(default_factory=Counter)


def traffic_of(program: Program, chips: int) -> Traffic:
    """Counts what a program moves.

    Args:
        program: as compiled for one of several chips.
        chips: how many there are, which a collective joins that does not name its group.
    """
    traffic = Traffic()
    seen: set[str] = set()
    for computation, times in _runs(program, program.entry, 1):
        for instruction in program.computations[computation].values():
            traffic.memory += times * _moved(program, computation, instruction)
            for name, inner in _collectives(program, computation, instruction):
                _add(traffic, name, inner, times, chips, seen)
    return traffic


def _runs(program, computation, times) -> Iterator[tuple[str, int]]:
    """Computations that are run, not fused ones, and how often."""
    yield computation, times
    for instruction in program.computations[computation].values():
        if instruction.opcode == "while":
            trips = trips_of(program, instruction)
            yield from _runs(program, instruction.called("body"), times * trips)
        elif instruction.opcode == "call":
            yield from _runs(program, instruction.called("to_apply"), times)
        elif instruction.opcode == "conditional":  # of its branches each as if it were taken
            for branch in re.findall(r"%([^ ,}]+)", instruction.attributes.partition("branch_computations=")[2]):
                if branch in program.computations:
                    yield from _runs(program, branch, times)


def trips_of(program: Program, loop: Instruction) -> int:
    """How often the body of a loop is run: what its condition compares a counter from 0 with; 1 if it is not known."""
    stated = re.search(r'known_trip_count":?\{"n":"(\d+)"', loop.attributes)
    if stated:
        return int(stated[1])
    condition = program.computations.get(loop.called("condition") or "", {})
    compared = [each for each in condition.values() if each.opcode == "compare" and "direction=LT" in each.attributes]
    for each in compared:
        for name in each.operands:
            bound = condition.get(name)
            if bound is not None and bound.opcode == "constant":
                number = re.match(r"\((\d+)\)", bound.attributes)
                return int(number[1]) if number else 1
    return 1


def _collectives(program, computation, instruction):
    """Collectives of a line: itself, or those fused in it; with the kind that it amounts to."""
    kind = instruction.opcode.removesuffix("-start")
    if kind in COLLECTIVES:
        yield kind, instruction
    called = (instruction.called("calls") or "") if instruction.opcode in ("fusion", "async-start") else ""
    for each in program.computations.get(called, {}).values():
        inner = each.opcode.removesuffix("-start")
        if inner in COLLECTIVES:
            yield ("reduce-scatter" if called.startswith(SCATTERED) else inner), each


def _add(traffic, kind, instruction, times, chips, seen):
    channel = re.search(r"channel_id=(\d+)", instruction.attributes)
    if channel:
        if channel[1] in seen:  # another piece of one that is spread over several steps
            return
        seen.add(channel[1])
    group = group_of(instruction.attributes, chips)
    size = sum(each.bytes for each in _results(instruction))
    if kind == "reduce-scatter" and instruction.opcode.startswith("all-reduce"):  # of which a chip keeps its own part
        size /= group
    share = (group - 1) / group
    sent = {"all-reduce": 2 * share, "collective-permute": 1, "reduce-scatter": group - 1}.get(kind, share)
    traffic.collectives[kind] += times
    traffic.results[kind] += times * size
    traffic.sent[kind] += times * size * sent


def _results(instruction):
    """The arrays that a collective results in: where a line only starts one, its type has what is read before them.

    That of an all-reduce has its results alone, and that of a permutation two numbers of its own behind them.
    """
    arrays, opcode = instruction.arrays, instruction.opcode
    if opcode == "collective-permute-start" and len(arrays) == 4:
        return arrays[1:2]
    return arrays[len(arrays) // 2 :] if opcode.endswith("-start") and opcode != "all-reduce-start" else arrays


def group_of(attributes: str, chips: int) -> int:
    """How many chips a collective joins.

    >>> group_of("replica_groups={{0,1},{2,3}}", 4), group_of("replica_groups=[2,8]<=[16]", 16)
    (2, 8)
    >>> group_of("replica_groups=mesh['a'=4,'b'=2] {'a'}, dimensions={0}", 8)
    4
    >>> group_of("replica_groups=mesh['a'=4,'b'=4], device_ids=([2,2,2,2]T(0,2,1,3)) {'b'}", 16)
    4
    """
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", attributes)
    if listed:
        return len(listed[1].split(","))
    tiled = re.search(r"replica_groups=\[(\d+),(\d+)\]<=", attributes)
    if tiled:
        return int(tiled[2])
    meshed = re.search(r"replica_groups=mesh\[(.*?)\][^{]*\{(.*?)\}", attributes)  # between: an order of devices
    if meshed:
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", meshed[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", meshed[2]))
    return chips


def _moved(program, computation, instruction):
    """Bytes between the chip and its memory for one line of a computation that is run."""
    opcode = instruction.opcode
    if opcode in UNMOVED or opcode.endswith("-done") or "AllocateBuffer" in instruction.attributes:
        return 0.0
    own = program.computations[computation]
    if opcode in ("copy-start", "slice-start"):
        target, source = (instruction.arrays + instruction.arrays)[:2]
        if opcode == "slice-start":  # the result comes after what it is cut from
            target, source = min(target, source, key=_bytes), max(target, source, key=_bytes)
        return sum(target.bytes for each in (target, source) if each.is_in_memory)
    if opcode in PICKING:
        return 2 * _in_memory(instruction.arrays)
    if opcode == "dynamic-update-slice":
        return 2 * _in_memory(own[instruction.operands[1]].arrays)
    fused = program.computations.get(instruction.called("calls") or "", {}) if opcode == "fusion" else {}
    written = _in_memory(instruction.arrays)
    root = next((each for each in fused.values() if each.is_root), None)
    changed = None
    if root is not None and root.opcode == "dynamic-update-slice":
        changed, written = root.operands[0], _in_memory(fused[root.operands[1]].arrays)
    read = 0.0
    for index, name in enumerate(instruction.operands):
        if name in own and own[name].opcode != "constant":
            read += _read(fused, index, own[name].arrays, changed)
    return written + read


def _read(fused, index, arrays, changed):
    """Bytes of an operand that a line reads: of a fusion that only picks from it, what is picked."""
    whole = _in_memory(arrays)
    parameter = next((each for each in fused.values() if each.attributes.startswith(f"({index})")), None)
    if parameter is None or parameter.opcode != "parameter" or not whole:
        return whole
    if parameter.name == changed:
        return 0.0
    users = [each for each in fused.values() if parameter.name in each.operands]
    if users and all(each.opcode in PICKING for each in users):
        return min(whole, sum(array.bytes for each in users for array in each.arrays))
    return whole


def _in_memory(arrays):
    return sum(each.bytes for each in arrays if each.is_in_memory)


def _bytes(array):
    return array.bytes
