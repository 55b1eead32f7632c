"""The figures of a study, PNG files for slides and READMEs.

One has losses by step and the effect of each hypothesis; the other what each layer knows, if the runs measured it.
"""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from rembed_keras.analysis.layers import draw_layers, panels_by_arm
from rembed_keras.analysis.pages.drawings import colours
from rembed_keras.analysis.reports.score_plots import in_legend, save_figure
from rembed_keras.analysis.studies.results.curves import on_one_axis
from rembed_keras.analysis.studies.verdicts import TOO_CLOSE

TITLE = 80  # characters that a line of a title has room for
TICKS = 6  # numbers such as -0.0075 that an axis has room for


def draw_study(path: Path, record: Mapping) -> None:
    """Draws a study.

    Args:
        path: the file, which is written atomically.
        record: what `study.json` says.
    """
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    pairs = [*zip(record["hypotheses"], record["verdicts"], strict=True)]
    figure = Figure(figsize=(7, 4 + 1.3 * len(pairs)), layout="constrained")
    axes = figure.subplots(1 + len(pairs), 1, squeeze=False, height_ratios=[4, *[1] * len(pairs)])[:, 0]
    colour, named = colours([arm["name"] for arm in record["arms"]]), set()
    shown, note = on_one_axis(record["curves"])
    for each in shown:
        if each["points"]:
            label = None if each["arm"] in named else in_legend(each["arm"])
            axes[0].plot(*zip(*each["points"], strict=True), color=colour[each["arm"]], label=label)
            named.add(each["arm"])
    axes[0].set(xlabel="step", ylabel="loss")
    axes[0].set_title(note, loc="left", fontsize="medium")
    axes[0].grid(alpha=0.3)
    if named:
        axes[0].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    for place, (hypothesis, verdict) in zip(axes[1:], pairs, strict=True):
        _draw_effect(place, hypothesis, verdict)
    save_figure(figure, path)


def draw_arms(path: Path, record: Mapping) -> bool:
    """Draws what the layers of each arm know, if its runs measured that.

    Args:
        path: the file, which is written atomically.
        record: what `study.json` says.

    Returns:
        Whether there was anything to draw.
    """
    panels = panels_by_arm(record)
    if panels:
        draw_layers(path, panels, [arm["name"] for arm in record["arms"]])
    return bool(panels)


def _draw_effect(axes, hypothesis, verdict):
    """A difference with its interval, filled if it is significant; dashed the smallest effect worth seeing."""
    axes.axvline(0, color="0.3", linewidth=1)
    for side in (-1, 1):
        axes.axvline(side * hypothesis["smallest_effect"], color="0.6", linestyle="--", linewidth=1)
    if verdict["low"] is not None:
        axes.plot([verdict["low"], verdict["high"]], [0, 0], color="#0072b2")
    if verdict["difference"] is not None:
        filling = "white" if verdict["verdict"] == TOO_CLOSE else "#0072b2"
        axes.plot(verdict["difference"], 0, "o", color="#0072b2", markerfacecolor=filling)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=TICKS)
    title = textwrap.fill(f"{hypothesis['name']}: {verdict['verdict']}", TITLE)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(f"{hypothesis['arm']} less {hypothesis['against']}, {hypothesis['measure']}")
    axes.spines[["top", "right", "left"]].set_visible(False)
