"""Tables of runs: parameters, scores, and differences."""

import math
from collections.abc import Sequence

from rembed_keras.analysis.reports.comparison import MEAN, NOT_SIGNIFICANT, DifferenceRow, ScoreRow, apart
from rembed_keras.analysis.reports.results import BASELINES, Run
from rembed_keras.analysis.reports.tables import Table


def runs_table(runs: Sequence[Run]) -> Table:
    """Kept and dropped parameters of runs."""
    counts = [[run.kept, run.dropped, (run.kept or 0) + (run.dropped or 0) or None] for run in runs]
    rows = [
        [run.name, *("-" if count is None else f"{count:,}" for count in row)]
        for run, row in zip(runs, counts, strict=True)
    ]
    return Table("Parameters", ["run", "kept", "dropped", "total"], rows, words=1)


def scores_table(scores: Sequence[ScoreRow]) -> Table:
    """A row for each system, with a column for each baseline of its run."""
    own, others = apart(scores)
    beside = {(*_place(row), row.run, row.system): row for row in others}
    systems = {row.system for row in others}
    baselines = [name for name in BASELINES if name in systems]
    rows = [
        [
            row.task,
            row.metric,
            f"mean of {row.languages}" if row.language == MEAN else row.language,
            row.run,
            row.system,
            f"{row.least_n:,}" if row.least_n == row.most_n else f"{row.least_n:,} to {row.most_n:,}",
            _score(row),
            f"{row.failed} of {row.seeds + row.failed} failed" if row.failed else str(row.seeds),
            *(_score(beside.get((*_place(row), row.run, name)), with_failed=True) for name in baselines),
        ]
        for row in own
    ]
    columns = ["task", "metric", "language", "run", "system", "n", "score", "seeds", *baselines]
    return Table("Scores, %", columns, rows, words=5).folded(["metric", "system"])


def _place(row):
    return row.task, row.metric, row.language


def _score(row, with_failed=False):
    if row is None:
        return "-"
    score = "-" if math.isnan(row.mean) else f"{100 * row.mean:.1f}"
    deviation = "" if math.isnan(row.std) else f" ±{100 * row.std:.1f}"
    failed = f" ({row.failed} of {row.seeds + row.failed} failed)" if with_failed and row.failed else ""
    return score + deviation + failed


def differences_table(differences: Sequence[DifferenceRow]) -> Table:
    """A row for each comparison."""
    words = ["task", "metric", "language", "system", "run", "against"]
    numbers = ["seeds", "n", "diff.", "95 % CI", "p", "p, Holm", "MDE", "verdict"]
    rows = [
        [
            row.task,
            row.metric,
            row.language,
            row.system,
            row.run,
            row.against,
            str(row.seeds),
            f"{row.examples:,}" if row.examples else "-",
            _points(row.difference),
            f"{_points(row.low)} to {_points(row.high)}" if not math.isnan(row.low) else "-",
            _probability(row.p),
            _probability(row.holm_p),
            f"{100 * row.detectable:.1f}" if math.isfinite(row.detectable) else "-",
            "n.s." if row.verdict == NOT_SIGNIFICANT else row.verdict,
        ]
        for row in differences
    ]
    table = Table("Differences, points", [*words, *numbers], rows, words=len(words))
    return table.folded(["metric", "system", "run", "against"])


def _points(number):
    return "-" if math.isnan(number) else f"{100 * number:+.1f}"


def _probability(p):
    if math.isnan(p):
        return "-"
    return f"{p:.3f}" if p >= 0.001 else "<0.001"
