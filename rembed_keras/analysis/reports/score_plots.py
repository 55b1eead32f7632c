"""Figures of runs: curves; scores with their spread over seeds, and differences with their confidence intervals."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rembed_keras.analysis.reports.comparison import NOT_SIGNIFICANT, NOT_TESTED, DifferenceRow, ScoreRow, apart
from rembed_keras.analysis.reports.results import BASELINES
from rembed_keras.data.writing import write_atomically

# the first eight for the colour-blind; the others so that no two of many arms look alike
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c564b"),
    *("#332288", "#882255", "#999933", "#7f7f7f", "#66c2a5", "#ff5fa2", "#b8a1ff", "#c0ca33"),
)
MARKS = dict(zip(BASELINES, "|x+34_12", strict=True))
ROW = 0.42  # inches
DPI, LONGEST = 150, 65_000  # dots an inch, and of the longer side: matplotlib draws fewer than 2**16


def draw_curves(path: Path, curves: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> None:
    """Draws named curves of (x, y) points into a PNG file.

    Args:
        path: the file, which is written atomically.
        curves: points by name.
        x: label of the horizontal axis.
        y: label of the vertical axis.
    """
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel=x, ylabel=y)
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=in_legend(name))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def in_legend(name: str) -> str:
    """A name as legends show it: matplotlib leaves out those that begin with an underscore.

    >>> in_legend("_a"), in_legend("a")
    (' _a', 'a')
    """
    return f" {name}" if name.startswith("_") else name


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure into a PNG file, atomically; texts are shown as they are, and no $ of a name begins a formula.

    One that is too long for a file at the usual resolution has a lower one.

    Args:
        figure: a `matplotlib.figure.Figure`.
        path: the file.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=min(DPI, LONGEST / max(figure.get_size_inches())))
    write_atomically(path, drawn.getvalue())


def draw_scores(path: Path, scores: Sequence[ScoreRow], differences: Sequence[DifferenceRow]) -> None:
    """Draws scores, and beside them differences if there are any, into a PNG file.

    Args:
        path: the file.
        scores: a point each; baselines are grey.
        differences: a confidence interval each, with a filled marker if significant.
    """
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    places = {place: index for index, place in enumerate(dict.fromkeys(_place(row) for row in scores))}
    shared = {metric for _, metric, _ in places}
    labels = [_label(place, len(shared) > 1) for place in places]
    figure = Figure(figsize=(11 if differences else 7, 1.6 + ROW * len(places) * _rows(scores)), layout="constrained")
    axes = figure.subplots(1, 2 if differences else 1, sharey=True, squeeze=False)[0]
    for each in axes:
        each.set_yticks(range(len(places)), labels)
        each.set_ylim(len(places) - 0.5, -0.5)
        each.grid(axis="x", alpha=0.3)
        each.spines[["top", "right"]].set_visible(False)
        for edge in range(1, len(places)):
            each.axhline(edge - 0.5, color="0.9", linewidth=0.8, zorder=0)
    _draw_scores(axes[0], scores, places)
    axes[0].set_xlabel(f"{shared.pop() if len(shared) == 1 else 'score'}, %; bars: standard deviation over seeds")
    if differences:
        _draw_differences(axes[1], differences, places)
        axes[1].set_xlabel("difference in points; bars: 95 % confidence interval")
    save_figure(figure, path)


def _place(row):
    return row.task, row.metric, row.language


def _label(place, with_metric):
    task, metric, language = place
    return "\n".join(part for part in (task, metric if with_metric else "", language) if part)


def _rows(scores):
    return max(1.0, 0.6 * len({(row.run, row.system) for row in apart(scores)[0]}))


def _shifts(names):
    """Vertical offsets of names within a row."""
    return {name: 0.6 * ((index + 0.5) / len(names) - 0.5) for index, name in enumerate(names)}


def _draw_scores(axes, scores, places):
    own, baselines = apart(scores)
    systems = [*dict.fromkeys((row.run, row.system) for row in own)]
    several = len({system for _, system in systems}) > 1
    shifts, runs = _shifts(systems), [*dict.fromkeys(row.run for row in scores)]
    for index, name in enumerate(systems):
        rows = [row for row in own if (row.run, row.system) == name]
        axes.errorbar(
            [100 * row.mean for row in rows],
            [places[_place(row)] + shifts[name] for row in rows],
            xerr=[100 * row.std for row in rows],
            fmt="o",
            capsize=3,
            color=COLOURS[index % len(COLOURS)],
            label=in_legend(" ".join(name) if several else name[0]),
        )
    for system in dict.fromkeys(row.system for row in baselines):
        rows = [row for row in baselines if row.system == system]
        lanes = [shifts.get((row.run, systems[0][1]), 0) if len(runs) > 1 and systems else 0 for row in rows]
        heights = [places[_place(row)] + lane for row, lane in zip(rows, lanes, strict=True)]
        axes.scatter([100 * row.mean for row in rows], heights, marker=MARKS[system], color="0.45", label=system)
    named = sorted(zip(*axes.get_legend_handles_labels(), strict=True), key=lambda pair: pair[1] in BASELINES)
    axes.legend(*zip(*named, strict=True), loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)


def _draw_differences(axes, differences, places):
    pairs = [*dict.fromkeys((row.run, row.against, row.system) for row in differences)]
    several = len({system for *_, system in pairs}) > 1
    shifts = _shifts(pairs)
    axes.axvline(0, color="0.3", linewidth=1)
    for index, pair in enumerate(pairs):
        colour = COLOURS[index % len(COLOURS)]
        for row in differences:
            if (row.run, row.against, row.system) == pair and row.difference == row.difference:
                height = places[_place(row)] + shifts[pair]
                axes.plot([100 * row.low, 100 * row.high], [height, height], color=colour)
                filling = "white" if row.verdict in (NOT_SIGNIFICANT, NOT_TESTED) else colour
                axes.plot(100 * row.difference, height, "o", color=colour, markerfacecolor=filling)
        label = f"{pair[0]} - {pair[1]}" + (f", {pair[2]}" if several else "")
        axes.plot([], [], "o-", color=colour, label=in_legend(label))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, title="filled: significant")
