"""Allocations for a budget: how deep, how wide, how narrow an input table, and how wide an output table to drop.

For each width of the table and of the blocks the deepest stack within the budgets is taken, so that no proposal could
have more of one thing without less of another. They are ranked by what the paper found: spend the budget; prefer depth
to width, up to the proportions of RemBERT; and let the table be narrow. Source: Chung et al. 2021, tables 3, 4 and 6.
"""

import functools
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rembed_keras.analysis.cost.ledger import Ledger, ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks import PostNorm

INPUT_WIDTHS = (64, 128, 192, 256, 384, 512)
HEAD_DIM = 64
WIDEST_OUTPUT = 4096
STEP = 64  # of widths
MOST_LAYERS = 256
REMBERT_ASPECT = 1152 / 32  # width over depth
REMBERT_RATIO = 994_591_804 / 575_920_384  # of parameters in pre-training to those that are kept
FEED_FORWARD = 4  # width inside the feed-forward pair over that of the blocks


@dataclass(frozen=True)
class Allocation:
    """A proposal.

    Attributes:
        model: arguments of MaskedLM, with those of its encoder under "encoder".
        ledger: its parameters, FLOPs and bytes.
        penalty: what it is ranked by, the less the better: the sum of the reasons' numbers.
        reasons: what the penalty is made of, by name.
        latency: predicted milliseconds for one text; None if no rate is known.
    """

    model: dict
    ledger: Ledger
    penalty: float
    reasons: dict[str, float]
    latency: float | None

    @property
    def aspect(self) -> float:
        """Width over depth."""
        return self.model["encoder"]["hidden_dim"] / self.model["encoder"]["num_layers"]


def solve(
    kept: int,
    vocabulary_size: int,
    total: int | None = None,
    input_widths: Sequence[int] = INPUT_WIDTHS,
    aspect: tuple[float, float] = (25.0, 60.0),
    max_latency: float | None = None,
    flops_per_second: float | None = None,
    sequence_length: int = 512,
    block: type = PostNorm,
) -> list[Allocation]:
    """Proposes allocations, the best first.

    Args:
        kept: the most parameters of the encoder.
        vocabulary_size: V.
        total: the most parameters in pre-training; RemBERT's ratio to `kept` by default.
        input_widths: E_in to choose from.
        aspect: least and most width over depth.
        max_latency: the most milliseconds for a text of S tokens, at `flops_per_second`.
        flops_per_second: what the machine does; see `matmul_rate`.
        sequence_length: S, the longest text.
        block: the kind of block, of `modeling.blocks`.

    Returns:
        A Pareto front: none has at least the depth, width and E_in of another and more of one of them.

    Raises:
        UserError: for a rate or a time that is not positive; and if nothing fits, with what the nearest that does
            would need.

    >>> best = solve(576_000_000, 250_300, input_widths=[256])[0]
    >>> best.model["encoder"]["num_layers"], best.model["encoder"]["hidden_dim"]
    (32, 1152)
    """
    for name, number in {"max_latency": max_latency, "flops_per_second": flops_per_second}.items():
        if number is not None and not 0 < number < math.inf:
            raise UserError(f"{name} is {number}; it must be a positive number")
    if total is None:
        total = round(REMBERT_RATIO * kept)
    shapes = [*itertools.product(input_widths, range(STEP, 128 * STEP, STEP))]
    flops = max_latency * 1e-3 * flops_per_second if max_latency is not None and flops_per_second else math.inf
    found = []
    for width, hidden in shapes:
        costs = _costs(vocabulary_size, width, hidden, sequence_length, block)
        room = min(kept, total - _least_output(vocabulary_size, hidden))
        layers = min(costs.layers_of(room), costs.layers_in(flops), math.floor(hidden / aspect[0]), MOST_LAYERS)
        if layers < max(1, math.ceil(hidden / aspect[1])):
            continue
        encoder = _encoder(vocabulary_size, width, hidden, layers, sequence_length, block)
        output_width = _output_width(total - costs.kept(layers), vocabulary_size, hidden)
        model = {"encoder": encoder, "output_embedding_dim": output_width}
        found.append(_rated(model, kept, sequence_length, flops_per_second))
    if not found:
        least = [_costs(vocabulary_size, *shape, sequence_length, block).least(aspect) for shape in shapes]
        raise UserError(_explain([one for one in least if one], kept, total, flops, vocabulary_size, aspect))
    front = [one for one in found if not any(_dominates(other, one) for other in found)]
    return sorted(front, key=lambda allocation: allocation.penalty)


def _encoder(vocabulary, width, hidden, layers, length, block):
    config = {
        "vocabulary_size": vocabulary,
        "num_layers": layers,
        "num_heads": hidden // HEAD_DIM,
        "hidden_dim": hidden,
        "intermediate_dim": FEED_FORWARD * hidden,
        "input_embedding_dim": width,
        "max_sequence_length": length,
    }
    if block is not PostNorm:
        inner = round(FEED_FORWARD * hidden * PostNorm.feed_forward_kernels / block.feed_forward_kernels / STEP) * STEP
        config |= {"block": block, "intermediate_dim": inner} | block.usual_arguments
    return config


class _Costs:
    """What encoders of one shape cost by their depth, which is linear."""

    def __init__(self, vocabulary, width, hidden, length, block):
        self.width, self.hidden, self.length = width, hidden, length
        one, two = (ledger(_encoder(vocabulary, width, hidden, layers, length, block), length) for layers in (1, 2))
        self._first = one.kept, one.flops["kept"] * length
        self._more = two.kept - one.kept, (two.flops["kept"] - one.flops["kept"]) * length

    def kept(self, layers):
        """Parameters."""
        return self._first[0] + (layers - 1) * self._more[0]

    def flops(self, layers):
        """FLOPs of one text."""
        return self._first[1] + (layers - 1) * self._more[1]

    def layers_of(self, kept):
        """The deepest stack of so many parameters."""
        return 1 + (kept - self._first[0]) // self._more[0]

    def layers_in(self, flops):
        """The deepest stack of so many FLOPs a text."""
        return MOST_LAYERS if flops == math.inf else 1 + math.floor((flops - self._first[1]) / self._more[1])

    def least(self, aspect):
        """The shallowest stack within the aspects, as (parameters, FLOPs, layers, D, E_in); None if there is none."""
        layers = max(1, math.ceil(self.hidden / aspect[1]))
        if layers > min(self.hidden / aspect[0], MOST_LAYERS):
            return None
        return self.kept(layers), self.flops(layers), layers, self.hidden, self.width


_costs = functools.cache(_Costs)  # what does not fit is looked at twice, and budgets are tried one after another


def _output_width(budget, vocabulary, hidden):
    """The widest output table within a budget, which has room for one."""
    widest = (budget - vocabulary) // (vocabulary + hidden + 3)
    return min(widest // STEP * STEP, WIDEST_OUTPUT)


def _least_output(vocabulary, hidden):
    """Parameters of the narrowest output table and what belongs to it."""
    return vocabulary + STEP * (vocabulary + hidden + 3)


def _rated(model, kept, length, rate):
    counted = ledger(model, length)
    encoder = model["encoder"]
    reasons = {
        "unspent": 4 * (kept - counted.kept) / kept,
        "proportions": abs(math.log(encoder["hidden_dim"] / encoder["num_layers"] / REMBERT_ASPECT)),
        "table": max(_table_share(encoder, counted) - 0.2, 0.0),
    }
    latency = counted.flops["kept"] * length / rate * 1e3 if rate else None
    return Allocation(model, counted, sum(reasons.values()), reasons, latency)


def _table_share(encoder, counted):
    return encoder["vocabulary_size"] * encoder["input_embedding_dim"] / counted.kept


def _dominates(one, other):
    """Whether one has no less of anything than the other, and more of something."""
    pairs = [
        (one.model["encoder"][key], other.model["encoder"][key])
        for key in ("num_layers", "hidden_dim", "input_embedding_dim")
    ]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _explain(least, kept, total, flops, vocabulary, aspect):
    """Why nothing fits, and what the nearest thing that does would need."""
    if not least:
        return f"no depth and width have an aspect of {aspect[0]:g}..{aspect[1]:g}: widen --aspect"
    size, _, *smallest = min(least)
    if size > kept:
        shape = _shape(*smallest)
        return f"nothing fits in {kept:,} parameters with {vocabulary:,} words: the least is {size:,}, {shape}"
    within = [(one[0] + _least_output(vocabulary, one[3]), *one[1:]) for one in least if one[0] <= kept]
    needed, _, *smallest = min(within)
    if needed > total:
        shape = _shape(*smallest)
        return f"no output table fits: raise --total from {total:,} to {needed:,}, for {shape} and E_out {STEP}"
    fastest, *shape = min(one[1:] for one in within if one[0] <= total)
    times = math.ceil(10 * fastest / flops) / 10  # rounded up: less would not do
    return f"nothing is as fast: raise --max-latency {times:.1f} times, for {_shape(*shape)}"


def _shape(layers, hidden, width):
    return f"{layers} layers of width {hidden} and a table of width {width}"


def table(allocations: Sequence[Allocation]):
    """Proposals as a `rich.table.Table`, with what each is ranked by."""
    from rich import box
    from rich.table import Table

    has_latency = allocations[0].latency is not None
    caption = "Ranked by budget spent, D/L near RemBERT's 36, and a table under 20%"
    shown = Table(title="Allocations, the best first", caption=caption, box=box.SIMPLE)
    columns = ("L", "D", "E_in", "E_out", "kept", "in all", "FLOPs", *(["ms"] if has_latency else []))
    for column in (*columns, "spent", "D/L", "table"):
        shown.add_column(column, justify="right", no_wrap=True)
    for one in allocations:
        encoder = one.model["encoder"]
        cells = [str(encoder[key]) for key in ("num_layers", "hidden_dim", "input_embedding_dim")]
        cells += [str(one.model["output_embedding_dim"])]
        cells += [f"{number / 1e6:,.1f}M" for number in (one.ledger.kept, one.ledger.total)]
        cells += [f"{one.ledger.flops['kept'] / 1e6:,.0f}M"]
        cells += [f"{one.latency:,.0f}"] if has_latency else []
        cells += [f"{1 - one.reasons['unspent'] / 4:.0%}", f"{one.aspect:.0f}"]
        shown.add_row(*cells, f"{_table_share(encoder, one.ledger):.0%}")
    return shown


def matmul_rate(size: int = 1024, repeats: int = 5) -> float:
    """FLOPs per second of float32 matrix products on this machine's processor: the best of a few."""
    import numpy as np

    a = np.ones((size, size), np.float32)
    best = math.inf
    for _ in range(repeats):
        started = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def recipe_text(allocation: Allocation, command: str) -> str:
    """A gin recipe of an allocation, to be inspected, run and included.

    Args:
        allocation: the proposal.
        command: what was typed, for the header.
    """
    encoder = allocation.model["encoder"]
    knobs = {
        "VOCABULARY_SIZE": (encoder["vocabulary_size"], "word pieces"),
        "INPUT_EMBEDDING_DIM": (encoder["input_embedding_dim"], "width of the input table, kept"),
        "OUTPUT_EMBEDDING_DIM": (allocation.model["output_embedding_dim"], "width of the output table, dropped"),
        "NUM_LAYERS": (encoder["num_layers"], "transformer blocks"),
        "COUPLING": ('"decoupled"', "two tables"),
        "SEQUENCE_LENGTH": (encoder["max_sequence_length"], "tokens a row"),
    }
    parameters = {knob.lower(): knob for knob in knobs if knob.lower() in encoder}
    encoder = {key: repr(value) for key, value in encoder.items()}
    if "block" in encoder:
        encoder["block"] = f"@blocks.{allocation.model['encoder']['block'].__name__}"
    bindings = {f"modeling.Encoder.{key}": value for key, value in encoder.items()}
    bindings |= {f"modeling.Encoder.{parameter}": f"%{knob}" for parameter, knob in parameters.items()}
    lines = [
        f"# {allocation.ledger.kept:,} parameters kept of {allocation.ledger.total:,} in pre-training. Made by",
        f"#   {command}",
        "from __gin__ import dynamic_registration",
        "from rembed_keras import modeling",
        *["from rembed_keras.modeling import blocks"] * ("block" in encoder),
        'include "gin/runtime/paper.gin"',
        "",
        *(f"{knob} = {value}  # {about}" for knob, (value, about) in knobs.items()),
        "",
        *(f"{key} = {value}" for key, value in bindings.items()),
    ]
    return "\n".join(lines) + "\n"
