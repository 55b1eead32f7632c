"""Figures of runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def draw_curves(path: Path, curves: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> None:
    """Draws named curves of (x, y) points into a PNG file.

    Args:
        path: the file.
        curves: points by name.
        x: what the horizontal axis means.
        y: what the vertical axis means.
    """
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel=x, ylabel=y)
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    writing = path.with_name(f".{path.stem}.writing.png")
    figure.savefig(writing, dpi=150)
    writing.replace(path)
