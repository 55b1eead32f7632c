"""The figure of a run's layers: a score at each depth, of several systems, beside what needs no encoder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rembed_keras.analysis.reports.score_plots import COLOURS

STYLES = ("-", "--", "-.", ":")


def draw_layers(
    path: Path,
    systems: Mapping[str, Mapping[str, Sequence[float]]],
    baselines: Mapping[str, Mapping[str, float]],
    y: str,
) -> None:
    """Draws scores by layer into a PNG file: a color for each system, a line style for each group of languages.

    Args:
        path: the file, which is written atomically; its folder is made.
        systems: by system and by group of languages, a score from 0 to 1 for each layer, from the embeddings on.
        baselines: by system and by group of languages, the score of one without an encoder; a grey line.
        y: label of the vertical axis; numbers there are percentages.
    """
    from matplotlib.figure import Figure  # without pyplot: no display, no global state
    from matplotlib.ticker import MaxNLocator

    groups = dict.fromkeys(group for scores in (*systems.values(), *baselines.values()) for group in scores)
    styles = {group: STYLES[index % len(STYLES)] for index, group in enumerate(groups)}
    figure = Figure(figsize=(8.5, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="layer (0: embeddings)", ylabel=y)
    for index, (system, curves) in enumerate(systems.items()):
        for group, values in curves.items():
            color, heights = COLOURS[index % len(COLOURS)], [100 * value for value in values]
            axes.plot(heights, styles[group], marker="o", color=color, label=f"{system}, {group}")
    for index, (system, levels) in enumerate(baselines.items()):
        for group, value in levels.items():
            color = str(0.35 + 0.3 * (index % 2))
            axes.axhline(100 * value, linestyle=styles[group], color=color, label=f"{system}, {group}")
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f".{path.stem}.writing.png")
    figure.savefig(writing, dpi=150)
    writing.replace(path)
