"""Draws `decoupling.svg`: from one table for both ends to an encoder that is kept, a row a decision, to scale.

    python docs/figures/decoupling.py

Sizes are the ledgers of the paper's multilingual recipes, scores those in their headers. Every row stands there from
the beginning; where the reader's system does not ask for less motion, each also grows out of the one before it: a part
starts where it stood there, and moves to where it stands here.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from allocation import DROPPED, INK, KEPT, QUIET, THEMES, box, figure, ledger_of, text

from rembed_keras import config

FIGURE = Path(__file__).with_suffix(".svg")
RECIPES = Path(__file__).parents[2] / "recipes/paper/multilingual"
DECISIONS = {  # title of a row, and its recipe
    "1. One table for both ends": "coupled_768",
    "2. Untie it: the output gets its own": "decoupled_768",
    "3. A narrow input": "in_128_out_768",
    "4. What it saves, spent on depth": "reinvested_in_depth",
    "5. After pre-training": "reinvested_in_depth",
}

WIDTH, LEFT, TOP = 480, 16, 34
BAR, PITCH = 36, 108  # height of a bar, and from one row to the next
SECONDS, HOLD, TIMES = 3, 6, 3  # of each change, of the end, and how often all is shown before it stands still
TITLE = "Five rows to scale: one table for both ends, two tables, a narrow input, more blocks, and the output dropped"


class Row(NamedTuple):
    """A model, in parameters."""

    kept: int
    total: int
    input: int
    blocks: int
    output: int  # of the output table; 0 where the input table is it too
    count: int  # how many blocks
    score: str


def row(name: str) -> Row:
    """What a recipe comes to."""
    path = RECIPES / f"{name}.gin"
    ledger = ledger_of(config.load(str(path)))
    sizes = {part: each["parameters"] for part, each in ledger["parts"].items()}
    (blocks,) = (part for part in sizes if part.endswith(" blocks"))
    (score,) = re.findall(r"average of six tasks ([\d.]+\d)", path.read_text(encoding="utf-8"))
    output, count = sizes.get("output embedding", 0), int(blocks.split()[0])
    return Row(ledger["kept"], ledger["total"], sizes["input embedding"], sizes[blocks], output, count, score)


def moved(name: str, number: int, before: str, after: str) -> str:
    """The rule of what changes when a row begins: it stays as in the row before until then."""
    whole = SECONDS * (len(DECISIONS) - 1) + HOLD
    begin, end = (100 * (SECONDS * (number - 1) + seconds) / whole for seconds in (0.5, 2))
    frames = f"0%, {begin:.1f}% {{ {before} }} {end:.1f}%, 100% {{ {after} }}"
    return (
        f"  @keyframes {name}{number} {{ {frames} }}\n"
        f"  .{name}{number} {{ animation: {name}{number} {whole}s ease-in-out {TIMES} both; "
        "transform-box: fill-box; transform-origin: left }"
    )


def motion(rows: list[Row], unit: float) -> Iterator[str]:
    """The rules of all rows."""
    yield "  rect { vector-effect: non-scaling-stroke }"
    for number in range(1, len(rows)):
        yield moved("row", number, "opacity: 0.15", "opacity: 1")
        then, now = rows[number - 1], rows[number]
        if now.input != then.input:
            yield moved("input", number, f"transform: scaleX({then.input / now.input:.3f})", "transform: none")
        if now.blocks > then.blocks:
            yield moved("more", number, "transform: scaleX(0)", "transform: none")
        shifts = {"blocks": then.input - now.input, "output": then.input + then.blocks - now.input - now.blocks}
        if now.output and not then.output:
            shifts["output"] = -now.input - now.blocks
        for part, shift in shifts.items():
            if shift:
                yield moved(part, number, f"transform: translateX({shift * unit:.1f}px)", "transform: none")
    yield moved("dropped", len(rows) - 1, "opacity: 1", "opacity: 0")


def bar(number: int, now: Row, then: Row, unit: float, y: float) -> Iterator[str]:
    """The parts of a row's model, each in a group that moves."""
    first, second, third = LEFT, LEFT + now.input * unit, LEFT + (now.input + now.blocks) * unit
    block, labels = now.blocks * unit / now.count, y + BAR + 15
    cells = [box(second + i * block, block, KEPT, y=y, height=BAR) for i in range(now.count)]
    added = now.count - then.count
    yield f'<g class="input{number}">{box(first, now.input * unit, KEPT, y=y, height=BAR)}</g>'
    if added:
        yield f'<g class="more{number}">{"".join(cells[now.count - added :])}</g>'
    yield f'<g class="blocks{number}">{"".join(cells[: now.count - added])}</g>'
    ends = "input" if now.output else "input and output"
    yield text(first, labels, f"{ends} {now.input / 1e6:,.0f}M", QUIET, "start")
    yield text(max(second, first + 72), labels, f"{now.count} blocks {now.blocks / 1e6:,.0f}M", QUIET, "start")
    if now.output:
        is_gone = number == len(DECISIONS) - 1
        drawn = box(third, now.output * unit, DROPPED, "5 4", y, BAR)
        if is_gone:  # its outline stays
            drawn = f'<g class="dropped{number}" opacity="0">{drawn}</g>' + drawn.replace("0.16", "0")
        yield f'<g class="output{number}">{drawn}</g>'
        said = "output dropped" if is_gone else f"output {now.output / 1e6:,.0f}M"
        yield text(third + now.output * unit / 2, labels, said, DROPPED)


def drawing() -> str:
    """The figure, as SVG."""
    read = {name: row(name) for name in DECISIONS.values()}
    rows = [read[name] for name in DECISIONS.values()]
    unit = (WIDTH - 2 * LEFT) / max(each.input + each.blocks + each.output for each in rows)
    body = []
    for number, (title, now) in enumerate(zip(DECISIONS, rows, strict=True)):
        y, is_last = TOP + PITCH * number, number == len(rows) - 1
        where = ": fine-tuned and deployed" if is_last else f" of {now.total:,} in pre-training"
        body += [
            f'<g class="row{number}">',
            text(LEFT, y - 10, title, INK, "start", font_weight="bold"),
            text(WIDTH - LEFT, y - 10, f"mean score {now.score}", QUIET, "end"),
            *bar(number, now, rows[max(number - 1, 0)], unit, y),
            text(LEFT, y + BAR + 33, f"{now.kept:,} kept{where}", KEPT, "start"),
            "</g>",
        ]
    rules = "\n".join(motion(rows, unit))
    style = f"{THEMES}\n@media (prefers-reduced-motion: no-preference) {{\n{rules}\n}}"
    return figure(WIDTH, TOP + PITCH * len(rows) - 12, TITLE, style, body)


if __name__ == "__main__":
    FIGURE.write_text(drawing(), encoding="utf-8")
