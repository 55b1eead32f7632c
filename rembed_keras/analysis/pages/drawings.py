"""Drawings of runs and studies as inline SVG, at the width of a phone, which a larger screen enlarges.

They are text, so that the page needs no other file, no script and no font of its own.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

from rembed_keras.analysis.layers.figure import Panel
from rembed_keras.analysis.pages.intervals import Interval
from rembed_keras.analysis.reports.score_plots import COLOURS
from rembed_keras.analysis.reports.significance import ROUNDING, Comparison
from rembed_keras.analysis.reports.tables import number

WIDTH = 360
LEFT, RIGHT = 44, 10  # margins of a drawing with axes
ROW = 15
LETTER = 6.2  # width of one, about
DROPPED = "#c9c9c9"


def colours(arms: Sequence[str]) -> dict[str, str]:
    """A colour for each arm."""
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(arms)}


def breakdown(arms: Sequence[Mapping]) -> str:
    """Kept and dropped parameters of each arm, to scale.

    Args:
        arms: with `name`, `kept` and `dropped`; those without a model are left out.

    Returns:
        Nothing, if all are.
    """
    counted = [arm for arm in arms if arm["kept"] is not None]
    if not counted:
        return ""
    most = max(arm["kept"] + arm["dropped"] for arm in counted)
    parts = []
    for index, arm in enumerate(counted):
        top, kept, dropped = 38 * index, WIDTH * arm["kept"] / most, WIDTH * arm["dropped"] / most
        label = f"{arm['name']}: {arm['kept']:,} kept, {arm['dropped']:,} dropped"
        parts.append(_text(0, top + 13, label))
        parts.append(f'<rect x="0" y="{top + 18}" width="{kept:.1f}" height="12" fill="{COLOURS[0]}"/>')
        parts.append(f'<rect x="{kept:.1f}" y="{top + 18}" width="{dropped:.1f}" height="12" fill="{DROPPED}"/>')
    return _svg("Parameters that are kept, and in grey those that are dropped", 38 * len(counted), parts)


def parts(ledger: Mapping) -> str:
    """Each part's parameters beside all of them, to scale: kept in color, dropped in grey.

    Args:
        ledger: as `ledger.json` has it.
    """
    lines = []
    for index, (name, part) in enumerate(ledger["parts"].items()):
        top, width = 30 * index, WIDTH * part["parameters"] / ledger["total"]
        share = part["parameters"] / ledger["total"]
        lines.append(_text(0, top + 12, f"{name}: {part['parameters']:,}, {share:.1%}"))
        fill = COLOURS[0] if part["kept"] else DROPPED
        lines.append(f'<rect x="0" y="{top + 16}" width="{width:.1f}" height="8" fill="{fill}"/>')
    return _svg("Parameters of each part", 30 * len(ledger["parts"]), lines)


def scores(rows: Sequence[Interval]) -> str:
    """A score a row with its confidence interval, and in grey what baselines have.

    Args:
        rows: scores between -1 and 1; those that failed are left out.
    """
    shown = [row for row in rows if math.isfinite(row.mean)]
    if not shown:
        return ""
    ends = [100 * each for row in shown for each in (row.mean, row.low, row.high, *row.baselines.values())]
    bottom = ROW * len(shown) + 6
    x = _scale([end for end in ends if math.isfinite(end)], LEFT, WIDTH - RIGHT)
    drawn = [*_axis_below(x, 2, bottom)]
    for index, row in enumerate(shown):
        y = 3 + ROW * (index + 0.5)
        drawn.append(_text(LEFT - 6, y + 4, row.language, "end"))
        places = [x.at(100 * value) for value in row.baselines.values()]
        drawn += [_line(place, y - 5, place, y + 5, "#777", ' stroke-width="2"') for place in places]
        if math.isfinite(row.low):
            drawn.append(_line(x.at(100 * row.low), y, x.at(100 * row.high), y, COLOURS[0], ' stroke-width="2"'))
        drawn.append(f'<circle cx="{x.at(100 * row.mean):.1f}" cy="{y:.1f}" r="3.5" fill="{COLOURS[0]}"/>')
    return _svg("Scores in % with their intervals", bottom + 24, drawn)


def curves(found: Sequence[Mapping], arms: Sequence[str]) -> str:
    """A curve for each run, in its arm's colour.

    Args:
        found: with `arm`, `seed` and `points`, pairs of a step and a loss.
        arms: names, in the order of their colours.
    """
    points = [point for each in found for point in each["points"]]
    if not points:
        return ""
    height, colour = 200, colours(arms)
    x = _scale([step for step, _ in points], LEFT, WIDTH - RIGHT)
    y = _scale([loss for _, loss in points], height - 24, 8)
    parts = [*_axis_below(x, 8, height - 24), *_axis_left(y)]
    for each in found:
        path = " ".join(f"{x.at(step):.1f},{y.at(loss):.1f}" for step, loss in each["points"])
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour[each["arm"]]}" stroke-width="1.5"/>')
    parts.append(_text(WIDTH - RIGHT, height - 28, "step", "end"))
    return _svg("Logged losses of each run by step", height + 4, parts)


def layers(panel: Panel, arms: Sequence[str]) -> str:
    """A measure by layer, in each arm's colour; pretrained solid, others dashed, baselines grey.

    Args:
        panel: curves by arm and system.
        arms: names, in the order of their colours.
    """
    lines = [
        (arm, system, [(layer, value) for layer, value in enumerate(values) if value is not None])
        for arm, each in panel.curves.items()
        for system, values in each.items()
    ]
    levels = [(name, value) for name, each in panel.levels.items() for value in each.values()]
    heights = [value for _, _, points in lines for _, value in points] + [value for _, value in levels]
    last = max((layer for _, _, points in lines for layer, _ in points), default=0)
    if not heights:
        return ""
    bottom, colour = 176, colours(arms)
    x, y = _Scale(0, max(last, 1), LEFT, WIDTH - RIGHT, range(last + 1)), _scale(heights, bottom, 12)
    parts = [*_axis_below(x, 8, bottom), *_axis_left(y)]
    for name, value in levels:
        parts.append(_line(LEFT, y.at(value), WIDTH - RIGHT, y.at(value), "#888"))
        parts.append(_text(WIDTH - RIGHT, y.at(value) - 3, name, "end"))
    for arm, system, points in lines:
        path = " ".join(f"{x.at(layer):.1f},{y.at(value):.1f}" for layer, value in points)
        dashed = "" if system == "pretrained" else ' stroke-dasharray="5 3"'
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour[arm]}" stroke-width="1.5"{dashed}/>')
    return _svg(panel.title, bottom + 24, parts)


def dots(overall: Comparison | None, languages: Mapping[str, Comparison], smallest: float) -> str:
    """Differences by language with intervals over seeds, and of all languages above them.

    Args:
        overall: the difference that the verdict is about; None if there is none.
        languages: the difference in each.
        smallest: the smallest effect worth seeing, drawn on both sides of zero.
    """
    rows = [("all", overall)] if overall else []
    rows += [(name, each) for name, each in languages.items() if name or not overall]
    if not rows:
        return ""
    centre = [each.difference for _, each in rows]
    ends = [end for end in (overall.low, overall.high) if math.isfinite(end)] if overall else []
    reach = 1.15 * max(map(abs, (*centre, *ends, smallest, 1e-9)))
    x, bottom = _scale([-reach, reach], LEFT, WIDTH - RIGHT, round_out=False), ROW * len(rows) + 6
    parts = [*_axis_below(x, 2, bottom), _line(x.at(0), 2, x.at(0), bottom, "#333")]
    parts += [
        _line(x.at(side), 2, x.at(side), bottom, "#999", ' stroke-dasharray="3 3"') for side in (-smallest, smallest)
    ]
    for index, (name, each) in enumerate(rows):
        y, colour = 3 + ROW * (index + 0.5), "#d55e00" if name == "all" else "#0072b2"
        low, high = (
            min(max(end, -reach), reach) if math.isfinite(end) else each.difference for end in (each.low, each.high)
        )
        parts.append(_text(LEFT - 6, y + 4, name, "end"))
        parts.append(_line(x.at(low), y, x.at(high), y, colour))
        parts.append(f'<circle cx="{x.at(each.difference):.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
    return _svg("Differences with their intervals", bottom + 24, parts)


class _Scale:
    """Numbers between two ends as pixels, with ticks at round numbers."""

    def __init__(self, low: float, high: float, begin: float, end: float, ticks: Sequence[float]):
        self.low, self.high, self.begin, self.end, self.ticks = low, high, begin, end, ticks

    def at(self, value: float) -> float:
        return self.begin + (self.end - self.begin) * (value - self.low) / (self.high - self.low)


def _scale(values, begin, end, round_out=True):
    low, high = min(values), max(values)
    if high - low <= ROUNDING * max(abs(low), abs(high)):  # means of the same numbers in another order differ so
        low, high = low - 0.5, high + 0.5
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 4)
    if round_out:
        low, high = step * math.floor(low / step), step * math.ceil(high / step)
    first = math.ceil(low / step - 1e-9)
    ticks = [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]
    return _Scale(low, high, begin, end, ticks)


def _axis_below(x, top, bottom):
    for tick in x.ticks:
        yield _line(x.at(tick), top, x.at(tick), bottom, "#e5e5e5")
        yield _text(x.at(tick), bottom + 14, number(tick), "middle")


def _axis_left(y):
    for tick in y.ticks:
        yield _line(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick), "#e5e5e5")
        yield _text(LEFT - 6, y.at(tick) + 4, number(tick), "end")


def _line(x1, y1, x2, y2, colour, more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def _text(x, y, text, anchor="start"):
    """A text; one that would be cut at the edge is squeezed."""
    room = {"start": WIDTH - x, "end": x}.get(anchor, WIDTH)
    fitted = f' textLength="{room:.1f}" lengthAdjust="spacingAndGlyphs"' if LETTER * len(str(text)) > room else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fitted}>{escape(str(text))}</text>'


def _svg(title, height, parts):
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
