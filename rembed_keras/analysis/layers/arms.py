"""What layers know in the arms of a study, from what `study.json` says of its finished runs."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from rembed_keras.analysis.layers.figure import Panel

LAYER = re.compile(r"(?P<name>.+)/layer(?P<layer>\d+)")
SHOWN = ("pretrained", "finetuned")  # systems; what is left are baselines, and the untrained encoder
OF_LAYERS = {"token_cosine": "mean cosine of a row's tokens", "cka_with_next": "CKA with the next layer"}


def panels_by_arm(record: Mapping) -> list[Panel]:
    """A panel for each measure by layer that the runs have; none of a study without.

    Scores are means over languages and seeds, of those that are finite. What is measured on training examples is that
    of the first task.

    Args:
        record: with `run_scores`, rows of every run's `scores.json` and its `arm`; and `layers`, each with `arm` and
            `known`, what the run's `layers.json` says.
    """
    scores: dict[tuple[str, str], dict[tuple[str, str], dict[int, list[float]]]] = {}
    for row in record.get("run_scores", ()):
        found = LAYER.fullmatch(row["task"])
        if found and row["value"] is not None and math.isfinite(row["value"]):
            of = scores.setdefault((found["name"], row["metric"]), {})
            of.setdefault((row["arm"], row["system"]), defaultdict(list))[int(found["layer"])].append(row["value"])
    panels = []
    for (name, metric), each in scores.items():
        curves: dict[str, dict[str, list]] = defaultdict(dict)
        levels: dict[str, dict[str, float]] = {}
        for (arm, system), by_layer in each.items():
            means = {layer: 100 * float(np.mean(values)) for layer, values in by_layer.items()}
            if system in SHOWN:
                curves[arm][system] = [means.get(layer) for layer in range(1 + max(means))]
            elif system != "untrained":
                levels.setdefault(system, {"": next(iter(means.values()))})  # baselines are the same in all arms
        panels.append(Panel(f"{name}, {metric}, %", dict(curves), levels))
    return panels + _known(record.get("layers", ()))


def _known(runs: Sequence[Mapping]) -> list[Panel]:
    """Panels of what stands in `layers.json`, means over seeds."""
    found: dict[str, dict[str, dict[str, list]]] = {}
    for run in runs:
        first = next(
            (name for name, each in run["known"].items() if "token_cosine" in each.get("pretrained", {})), None
        )
        titles = {(first, key): f"{title}, {first}" for key, title in OF_LAYERS.items()} if first else {}
        titles |= {
            (name, "layers"): f"{name}: similarity, Spearman's correlation"
            for name, each in run["known"].items()
            if "table" in each.get("pretrained", {})
        }
        for (name, key), title in titles.items():
            for system in SHOWN:
                if system in run["known"][name]:
                    arm = found.setdefault(title, {}).setdefault(run["arm"], {})
                    arm.setdefault(system, []).append([_number(value) for value in run["known"][name][system][key]])
    return [
        Panel(title, {arm: {system: _means(rows) for system, rows in each.items()} for arm, each in arms.items()})
        for title, arms in found.items()
    ]


def _number(value):
    return np.nan if value is None else float(value)


def _means(rows):
    return [None if np.isnan(value) else float(value) for value in np.mean(rows, axis=0)]
