"""What is shown of layers: rows of `scores.json`, `layers.json`, tables and the run's figure."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rembed_keras.analysis.layers import Panel
from rembed_keras.analysis.reports.terminal import Whole
from rembed_keras.data.json_files import read_json
from rembed_keras.data.writing import write_atomically
from rembed_keras.tasks.scores import Score, dump_scores, read_scores
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.probing.systems import SYSTEMS


class Probed(NamedTuple):
    """Scores of one task or text at every layer.

    Attributes:
        name: "probe/TASK" or "retrieval/TEXT"; rows are of the tasks `NAME/layerN`.
        source: the language that a probe is fitted in, or the pivot.
        metrics: that are shown.
        scores: rows of all systems and baselines.
        num_layers: the embeddings among them.
    """

    name: str
    source: str
    metrics: Sequence[str]
    scores: Sequence[Score]
    num_layers: int

    def publish(self, workdir: Workdir) -> None:
        """Replaces its rows in the run's file, and shows them."""
        own = re.compile(rf"{re.escape(self.name)}/layer\d+")
        others = [score for score in read_scores(workdir.scores) if not own.fullmatch(score.task)]
        write_atomically(workdir.scores, dump_scores([*others, *self.scores]))
        for metric in self.metrics:
            means = self.means(metric)
            groups = " / ".join(next(iter(means.values())))
            shown = _table(f"{self.name}: {metric} in %, {groups}", means, self.num_layers)
            Console().print(Whole(shown))

    def panels(self) -> list[Panel]:
        """Drawings of its metrics, in percent."""
        panels = []
        for metric in self.metrics:
            means = {
                system: {group: [100 * value for value in values] for group, values in groups.items()}
                for system, groups in self.means(metric).items()
            }
            curves = {system: groups for system, groups in means.items() if system in SYSTEMS}
            levels = {
                system: {group: values[0] for group, values in groups.items()}
                for system, groups in means.items()
                if system not in SYSTEMS
            }
            panels.append(Panel(f"{self.name}, {metric}, %", curves, levels))
        return panels

    def means(self, metric: str) -> dict[str, dict[str, list[float]]]:
        """By system and group of languages, the mean score at each layer that the system has, by a metric; NaN if it
        failed in one language.
        """
        languages = dict.fromkeys(score.language for score in self.scores)
        targets = [language for language in languages if language != self.source]
        others = f"mean of {len(targets)} others" if self.source in languages else f"mean of {len(targets)} languages"
        groups = {self.source: [self.source] if self.source in languages else [], others: targets}
        values = {
            (score.system, score.task, score.language): score.value for score in self.scores if score.metric == metric
        }
        tasks = [f"{self.name}/layer{layer}" for layer in range(self.num_layers)]
        return {
            system: {
                group: [
                    float(np.mean(np.array([values[system, task, each] for each in members], float)))
                    for task in tasks
                    if (system, task, members[0]) in values
                ]
                for group, members in groups.items()
                if members
            }
            for system in dict.fromkeys(score.system for score in self.scores)
        }


def panels_of(known: Mapping[str, Mapping]) -> list[Panel]:
    """Drawings of what `layers.json` has besides scores.

    Args:
        known: as in the file, by task or by what is measured.
    """
    panels = []
    for key, title in (("token_cosine", "mean cosine of a row's tokens"), ("cka_with_next", "CKA with the next layer")):
        by_system: dict[str, dict] = {}
        for name, each in known.items():
            for system in SYSTEMS:
                if key in each.get(system, {}):
                    by_system.setdefault(system, {})[name] = each[system][key]
        if by_system:
            panels.append(Panel(title, by_system))
    for name, each in known.items():
        found = {system: each[system] for system in SYSTEMS if "table" in each.get(system, {})}
        if found:
            curves = {
                system: {"contextual": values["layers"], "table": [values["table"]] * len(values["layers"])}
                for system, values in found.items()
            }
            panels.append(Panel(f"{name}: similarity, Spearman's correlation", curves))
    return panels


def write_layers(workdir: Workdir, known: Mapping[str, Mapping]) -> None:
    """Replaces entries of `layers.json`, and leaves the others."""
    path = workdir.path / "layers.json"
    there = read_json(path) if path.exists() else {}
    write_atomically(path, json.dumps(there | {**known}, indent=1) + "\n")


def show_layers(known: Mapping[str, Mapping]) -> None:
    """Prints similarity of neighbors, over-smoothing and word similarity, a row a task and system."""
    shown = Table(title="Layers, from the embeddings on")
    for column in ("measured on", "system", "what", "by layer"):
        shown.add_column(column)
    about = {
        "token_cosine": "cosine of tokens",
        "cka_with_next": "CKA with next",
        "table": "word similarity, table",
        "layers": "word similarity",
    }
    for name, each in known.items():
        for system in SYSTEMS:
            for key, what in about.items():
                if key in each.get(system, {}):
                    values = np.atleast_1d(np.array(each[system][key], float))
                    shown.add_row(Text(name), system, what, " ".join(f"{value:.3f}" for value in values))
    Console().print(Whole(shown))


def _table(title, values, num_layers):
    """A row a layer, a column a system."""
    shown = Table(title=Text(title, "table.title"))  # brackets of a name are no markup
    for column in ("layer", *values):
        shown.add_column(column, justify="right")
    for layer in range(num_layers):
        cells = [" / ".join(_cell(row, layer) for row in rows.values()) for rows in values.values()]
        shown.add_row(str(layer), *cells)
    return shown


def _cell(values, layer):
    """A score in percent; a fine-tuned encoder may have fewer layers than the others."""
    return f"{100 * values[layer]:.1f}" if layer < len(values) else "-"
