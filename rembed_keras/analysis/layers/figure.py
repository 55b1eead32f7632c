"""The figure of layers: what is measured at each depth, of several systems, beside what needs no encoder."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rembed_keras.analysis.reports.score_plots import COLOURS, in_legend, save_figure

STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
ACROSS = 3  # panels side by side
WIDTH, KEY, LETTER = 4.3, 0.7, 0.1  # inches of a panel, of a line beside a system's name, and of a letter of it


class Panel(NamedTuple):
    """One measure by layer.

    Attributes:
        title: what is measured.
        curves: by system and by group of languages, a value for each layer, from the embeddings on; None for a layer
            that has none.
        levels: by system and by group, the value of one without an encoder; a grey line.
    """

    title: str
    curves: Mapping[str, Mapping[str, Sequence[float | None]]]
    levels: Mapping[str, Mapping[str, float]] = {}


def draw_layers(path: Path, panels: Sequence[Panel], order: Sequence[str] = ()) -> None:
    """Draws panels into a PNG file: a color for each system, a line style for each group of languages.

    Args:
        path: the file, which is written atomically; its folder is made.
        panels: one or more; a system has the same color in all.
        order: systems in the order of their colors; that in which they come by default.
    """
    from matplotlib.figure import Figure  # without pyplot: no display, no global state
    from matplotlib.ticker import MaxNLocator

    systems = dict.fromkeys(system for panel in panels for system in panel.curves)
    color = {system: COLOURS[index % len(COLOURS)] for index, system in enumerate(dict.fromkeys([*order, *systems]))}
    across = min(ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(WIDTH * across, 3.4 * down + 0.4), layout="constrained")
    places = [*figure.subplots(down, across, squeeze=False).flat]
    for axes, panel in zip(places, panels, strict=False):
        _draw(axes, panel, color)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    if len(systems) > 1:
        from matplotlib.lines import Line2D

        keys = [Line2D([], [], color=color[system], marker="o", label=system) for system in systems]
        columns = min(len(keys), max(1, int(WIDTH * across / (KEY + LETTER * max(map(len, systems))))))
        figure.legend(handles=keys, loc="outside upper center", ncols=columns, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, path)


def _draw(axes, panel, color):
    """One panel; its legend says what its styles and grey lines are, the figure's what its colors are."""
    groups = dict.fromkeys(group for each in (*panel.curves.values(), *panel.levels.values()) for group in each)
    styles = {"": "-"} | {group: STYLES[index % len(STYLES)] for index, group in enumerate(filter(None, groups))}
    for system, curves in panel.curves.items():
        for group, values in curves.items():
            heights = [math.nan if value is None else value for value in values]
            axes.plot(heights, linestyle=styles[group], marker="o", markersize=4, color=color[system])
    for index, (system, levels) in enumerate(panel.levels.items()):
        shade = str(0.35 + 0.3 * (index % 2))
        for group, value in levels.items():
            axes.axhline(value, linestyle=styles[group], color=shade)
        axes.plot([], [], color=shade, label=in_legend(system))
    of_curves = {group for curves in panel.curves.values() for group in curves}
    for group in filter(None, groups) if len(of_curves) > 1 else ():
        axes.plot([], [], linestyle=styles[group], color="black", label=in_legend(group))
    axes.set_title(panel.title, fontsize="medium")
    axes.set_xlabel("layer (0: embeddings)")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="x-small", frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)
