"""What a compiled program moves, of a text that is small enough to be counted by hand."""

import pytest

from rembed_keras.analysis.programs.chips import CHIPS, chip_of
from rembed_keras.analysis.programs.counting import traffic_of
from rembed_keras.analysis.programs.text import read
from rembed_keras.errors import UserError

pytestmark = pytest.mark.any_backend

# On 4 chips: a loop that runs 3 times gathers [4, 2] of bfloat16 from groups of 2, and adds to what it carries, [8] in
# memory, from [8] beside the units; the all-reduce of [8] in float32 is one in two pieces of the same channel; the last
# fusion picks 2 rows of 100 from a table.
TEXT = """\
HloModule jit_step, is_scheduled=true

%condition (p: (s32[], f32[8])) -> pred[] {
  %p.0 = (s32[]{:T(128)}, f32[8]{0:T(128)}) parameter(0)
  %bound = s32[]{:T(128)} constant(3)
  %counter = s32[]{:T(128)} get-tuple-element(%p.0), index=0
  ROOT %less = pred[]{:T(512)} compare(%counter, %bound), direction=LT
}

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p.1 = (s32[]{:T(128)}, f32[8]{0:T(128)}) parameter(0)
  %next = s32[]{:T(128)S(1)} get-tuple-element(%p.1), index=0
  %carried = f32[8]{0:T(128)} get-tuple-element(%p.1), index=1
  %near = f32[8]{0:T(128)S(1)} get-tuple-element(%p.1), index=1
  %gathered = bf16[4,2]{1,0:T(8,128)(2,1)S(1)} all-gather(%near), channel_id=1, replica_groups=[2,2]<=[4]
  %sum = f32[8]{0:T(128)} add(%carried, %near)
  ROOT %both = (s32[]{:T(128)}, f32[8]{0:T(128)}) tuple(%next, %sum)
}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[]{:T(128)} parameter(0)
  %y = f32[]{:T(128)} parameter(1)
  ROOT %z = f32[]{:T(128)} add(%x, %y)
}

%first_piece (q: f32[8]) -> f32[8] {
  %q.0 = f32[8]{0:T(128)S(1)} parameter(0)
  ROOT %all-reduce.1 = f32[8]{0:T(128)S(1)} all-reduce(%q.0), channel_id=2, replica_groups={{0,1,2,3}}, to_apply=%add
}

%second_piece (q: f32[8]) -> f32[8] {
  %q.1 = f32[8]{0:T(128)S(1)} parameter(0)
  ROOT %all-reduce.2 = f32[8]{0:T(128)S(1)} all-reduce(%q.1), channel_id=2, replica_groups={{0,1,2,3}}, to_apply=%add
}

%picked (t: f32[100,4], i: s32[]) -> f32[2,4] {
  %t.0 = f32[100,4]{1,0:T(8,128)} parameter(0)
  %i.0 = s32[]{:T(128)S(1)} parameter(1)
  ROOT %rows = f32[2,4]{1,0:T(8,128)} dynamic-slice(%t.0, %i.0, %i.0), dynamic_slice_sizes={2,4}
}

ENTRY %main (table: f32[100,4], start: f32[8]) -> f32[2,4] {
  %table.0 = f32[100,4]{1,0:T(8,128)} parameter(0)
  %start.0 = f32[8]{0:T(128)} parameter(1)
  %zero = s32[]{:T(128)S(1)} constant(0)
  %state = (s32[]{:T(128)}, f32[8]{0:T(128)}) tuple(%zero, %start.0)
  %loop = (s32[]{:T(128)}, f32[8]{0:T(128)}) while(%state), condition=%condition, body=%body
  %near.1 = f32[8]{0:T(128)S(1)} custom-call(), custom_call_target="AllocateBuffer"
  %piece.1 = f32[8]{0:T(128)S(1)} fusion(%near.1), kind=kOutput, calls=%first_piece
  %piece.2 = f32[8]{0:T(128)S(1)} fusion(%piece.1), kind=kOutput, calls=%second_piece
  %index = s32[]{:T(128)S(1)} constant(7)
  ROOT %out = f32[2,4]{1,0:T(8,128)} fusion(%table.0, %index), kind=kLoop, calls=%picked
}
"""


def test_memory_counts_what_lies_in_it_and_loops_as_often_as_they_run():
    loop = 3 * (32 + 32)  # the carried array is read and written; what lies beside the units is not counted
    picked = 2 * 4 * 4 + 2 * 4 * 4  # two rows are read of the table, and written
    assert traffic_of(read(TEXT), 4).memory == loop + picked


def test_collectives_count_by_kind_in_loops_and_once_if_they_come_in_pieces():
    traffic = traffic_of(read(TEXT), 4)
    assert traffic.collectives == {"all-gather": 3, "all-reduce": 1}
    assert traffic.results == {"all-gather": 3 * 16, "all-reduce": 32}
    assert traffic.sent == {"all-gather": 3 * 16 * 1 / 2, "all-reduce": 2 * 32 * 3 / 4}


# collectives of 256 bytes in all on 4 chips: their kind, the bytes that they result in on a chip, and those that it has
# to send. Of the lines that only start one, all but all-reduce's have the arrays that are read in their type too.
LINES = {
    "f32[16]{0} reduce-scatter(%x), to_apply=%add": ("reduce-scatter", 64, 192),
    "((f32[64]{0}), f32[16]{0}) reduce-scatter-start(%x), to_apply=%add": ("reduce-scatter", 64, 192),
    "f32[64]{0} all-reduce(%x), to_apply=%add": ("all-reduce", 256, 384),
    "f32[64]{0} all-reduce-start(%x), to_apply=%add": ("all-reduce", 256, 384),
    "(f32[32]{0}, f32[32]{0}) all-reduce-start(%x, %x), to_apply=%add": ("all-reduce", 256, 384),
    "(f32[16]{0}, f32[16]{0}, f32[16]{0}, f32[16]{0}) all-reduce-start(%x), to_apply=%add": ("all-reduce", 256, 384),
    "(f32[16]{0}, f32[64]{0}) all-gather-start(%x), dimensions={0}": ("all-gather", 256, 192),
    "((f32[4]{0}, f32[12]{0}), (f32[16]{0}, f32[48]{0})) all-gather-start(%x, %x), dimensions={0}": (
        "all-gather",
        256,
        192,
    ),
    "(f32[64]{0}, f32[64]{0}) collective-permute-start(%x)": ("collective-permute", 256, 256),
    "(f32[64]{0}, f32[64]{0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%x)": (
        "collective-permute",
        256,
        256,
    ),
    "f32[16]{0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.3": ("reduce-scatter", 64, 192),
}
FUSED = """\
%all-reduce-scatter.3 (q: f32[64]) -> f32[16] {
  %q.2 = f32[64]{0} parameter(0)
  %all-reduce.3 = f32[64]{0} all-reduce(%q.2), channel_id=3, to_apply=%add
  ROOT %own = f32[16]{0} dynamic-slice(%all-reduce.3, %q.2), dynamic_slice_sizes={16}
}

ENTRY %main (x: f32[64]) -> f32[16] {
  %x = f32[64]{0} parameter(0)
"""


@pytest.mark.parametrize("line", LINES)
def test_bytes_of_a_collective_are_those_that_a_chip_gets_and_sends(line):
    kind, size, sent = LINES[line]
    traffic = traffic_of(read(f"{FUSED}  ROOT %out = {line}\n}}\n"), 4)
    assert (traffic.collectives, traffic.results, traffic.sent) == ({kind: 1}, {kind: size}, {kind: sent})


def test_a_chip_is_known_by_the_name_of_its_topology():
    assert chip_of("v5p:8x8x8").flops == 459e12
    assert len({chip.kind for chip in CHIPS}) == len(CHIPS)
    for wrong in ("v5x:2x2", "v5e", ""):
        with pytest.raises(UserError, match=r"it must be one of v4, v5e, v5p, v6e, and sides: v5e:4x4$"):
            chip_of(wrong)
