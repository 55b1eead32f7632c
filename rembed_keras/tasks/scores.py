"""Scores, and the table that compares them with encoder-free baselines.

`scores.json` is a list of rows `{task, language, metric, value, seed, n, system}`: which system got what on how many
examples. Stages replace their own rows and leave the others.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from rembed_keras.data.json_files import read_json, understood

LANGUAGE = re.compile("[a-z]{2,3}([-_].+)?")  # codes such as "de" and "zh-Hans"; other names are of parts of a test


@dataclass(frozen=True)
class Score:
    """One measurement.

    Attributes:
        task: the task's name.
        language: the language tested.
        metric: for example "accuracy".
        value: between 0 and 1, or between -1 and 1 for a correlation; None for a training that failed, or a metric that
            is not finite.
        seed: seed of the training; None for a deterministic system.
        n: how many examples, or questions, where several examples are one.
        system: what was evaluated: "pretrained", "scratch", "tfidf", "majority" and so on.
    """

    task: str
    language: str
    metric: str
    value: float | None
    seed: int | None
    n: int
    system: str


def finite(value: float) -> float | None:
    """A measured value; None for one that is not finite, which counts as failed.

    >>> finite(0.5), finite(float("nan"))
    (0.5, None)
    """
    return float(value) if math.isfinite(value) else None


def read_scores(path: Path) -> list[Score]:
    """Scores of a file; none if it is not there.

    Raises:
        UserError: for a file that is damaged.
    """
    if not path.exists():
        return []
    rows = read_json(path, list)
    with understood(path, "a list of scores"):
        return [Score(**row) for row in rows]


def dump_scores(scores: Iterable[Score]) -> str:
    """The text of a scores file."""
    return json.dumps([asdict(score) for score in scores], indent=1) + "\n"


def table(scores: Sequence[Score], task: str, systems: Sequence[str], source: str, seen: Collection[str]):
    """A table of one task: a row per language of the pre-training, or all, a column per system, and means below.

    Several seeds show as mean ± standard deviation; several metrics stand side by side. Failed trainings are counted
    and not averaged.

    Args:
        scores: rows of any tasks.
        task: the task to show.
        systems: the columns, in order.
        source: the language of fine-tuning, or the pivot of retrieval; always shown, and not part of a mean.
        seen: the languages of the pre-training; of others only the mean is shown, but parts of a test that are no
            languages, such as "mismatched", have a row. Empty if they are not known: every language is shown then.

    Returns:
        A `rich.table.Table`.
    """
    from rich.table import Table
    from rich.text import Text  # brackets of a name are no markup

    rows = [score for score in scores if score.task == task]
    metrics = list(dict.fromkeys(score.metric for score in rows))
    shown = Table(title=Text(f"{task}: {' / '.join(metrics)}, %", "table.title"))
    for column in ("language", "n", *systems):
        shown.add_column(column, justify="left" if column == "language" else "right")
    sizes: dict[str, dict[int, None]] = {}  # several where metrics count other things
    for score in rows:
        sizes.setdefault(score.language, {})[score.n] = None
    targets = [language for language in sizes if language != source]
    unseen = [name for name in targets if seen and name not in seen and LANGUAGE.fullmatch(name)]
    for language in sorted(sizes, key=lambda name: (name != source, name)):
        if language not in unseen:
            cells = [_cell(rows, metrics, system, [language]) for system in systems]
            shown.add_row(Text(language), " / ".join(map(str, sizes[language])), *cells)
    shown.add_section()
    known = [language for language in targets if language in seen]
    others = [] if seen else targets
    for languages, kind in ((known, "seen"), (unseen, "unseen"), (others, "others")):
        if languages:
            cells = [_cell(rows, metrics, system, languages) for system in systems]
            shown.add_row(f"mean of {len(languages)} {kind}", "", *cells)
    if source in sizes and targets:
        gaps = [_cell(_below(rows, source, targets), metrics, system, [source]) for system in systems]
        shown.add_row(Text(f"{source} minus mean of {len(targets)}"), "", *gaps)
    return shown


def _below(rows, source, targets):
    """The cross-lingual gap: the score of the source minus the mean of the other languages."""
    means = defaultdict(list)
    for score in rows:
        if score.language in targets:
            means[score.system, score.metric, score.seed].append(score.value)
    gaps = []
    for score in rows:
        others = means.get((score.system, score.metric, score.seed), [])
        if score.language == source and others:
            is_known = score.value is not None and None not in others
            gaps.append(replace(score, value=score.value - float(np.mean(others)) if is_known else None))
    return gaps


def _cell(rows, metrics, system, languages):
    """The mean of languages, for each metric, with the deviation over seeds; a seed that failed in one has none."""
    parts = []
    for metric in metrics:
        by_seed = defaultdict(list)
        failed = set()
        for score in rows:
            if (score.system, score.metric) == (system, metric) and score.language in languages:
                if score.value is None:
                    failed.add(score.seed)
                else:
                    by_seed[score.seed].append(score.value)
        means = [100 * float(np.mean(values)) for seed, values in by_seed.items() if seed not in failed]
        spread = f" ±{np.std(means, ddof=1):.1f}" if len(means) > 1 else ""
        lost = f" ({len(failed)} of {len(failed) + len(means)} failed)" if failed else ""
        parts.append((f"{np.mean(means):.1f}{spread}" if means else "-") + lost)
    return " / ".join(parts)
