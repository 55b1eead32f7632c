"""A report on finished runs: scores, parameters, and whether runs differ significantly.

It reports uncertainty as plainly as results: failed trainings are counted beside the mean that excludes them, p-values
are adjusted for multiple comparisons, a difference that is not significant stands beside the smallest that is
detectable, and runs with unequal numbers of kept parameters are compared on request only.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

from rembed_keras.analysis.pages.records import is_smoke
from rembed_keras.analysis.reports.comparison import (
    MEAN,
    DifferenceRow,
    ScoreRow,
    adjusted,
    compare,
    groups,
    score_rows,
)
from rembed_keras.analysis.reports.results import ENCODERS, Run, read_run
from rembed_keras.analysis.reports.score_plots import draw_scores
from rembed_keras.analysis.reports.score_tables import differences_table, runs_table, scores_table
from rembed_keras.analysis.reports.suites import suite_notes
from rembed_keras.analysis.reports.tables import Table, csv_text, in_markdown
from rembed_keras.data.writing import write_atomically, written_together
from rembed_keras.errors import UserError

WIDTH = 120  # columns where there is no terminal
SAME_BUDGET = 1.05  # the larger number of kept parameters over the smaller
ABOUT_SCORES = "Scores are means over seeds ± sample standard deviation. Failed trainings are counted and not averaged."
ABOUT_DIFFERENCES = (
    "Differences are means over the seeds that both runs have. With predictions for n examples and several seeds, they "
    "are tested over both; without predictions over seeds alone, for the given examples; with one seed over examples "
    "alone, for the given models, not for others of their recipes; with one seed and no predictions, or predictions "
    "for one example, they are not tested. A difference is significant if p is below 0.05 after Holm's procedure over "
    "all comparisons of tasks or, separately, of single languages, else n.s. Confidence intervals are not adjusted; "
    "where a difference is the same on all n examples, they allow for examples unlike these. "
    "MDE is the minimum detectable effect: the smallest true difference that the test, not adjusted, detects with a "
    "power of 80 %."
)


@dataclass(frozen=True)
class Report:
    """A report; see `report`.

    Attributes:
        runs: the runs, then those that they are compared with.
        scores: a row for each task, run and system, baselines included.
        differences: a row for each task and pair of runs.
        notes: explanations of the tables.
    """

    runs: Sequence[Run]
    scores: Sequence[ScoreRow]
    differences: Sequence[DifferenceRow]
    notes: Sequence[str]

    def tables(self) -> list[Table]:
        """Tables of the runs, the scores and, if any are compared, the differences."""
        tables = [runs_table(self.runs), scores_table(self.scores)]
        return [*tables, differences_table(self.differences)] if self.differences else tables

    def show(self) -> None:
        """Prints the tables."""
        from rich.console import Console

        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        for table in self.tables():
            console.print(table.rich())
        for note in self.notes:
            console.print(note, markup=False, highlight=False)

    def write(self, folder: str | Path) -> None:
        """Writes `report.md`, `report.tex`, `report.png`, `scores.csv` and, if runs are compared, `differences.csv`.

        Raises:
            UserError: if the folder cannot be written.
        """
        folder = Path(folder)
        tables = self.tables()
        latex = [r"% needs \usepackage{booktabs}", *(table.latex() for table in tables)]
        texts = {
            "report.md": "\n\n".join([*(table.markdown() for table in tables), *map(in_markdown, self.notes)]),
            "report.tex": "\n\n".join([*latex, *("% " + note for note in self.notes)]),
            "scores.csv": csv_text(self.scores, ScoreRow).rstrip("\n"),
        }
        if self.differences:
            texts["differences.csv"] = csv_text(self.differences, DifferenceRow).rstrip("\n")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with written_together(folder) as writing:
                for name, text in texts.items():
                    write_atomically(writing / name, text + "\n")
                draw_scores(writing / "report.png", self.scores, self.differences)
            if not self.differences:  # those of an earlier report would stand beside scores that they are not of
                (folder / "differences.csv").unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be written: {error.strerror}") from None


def report(
    runs: Sequence[str | Path], against: Sequence[str | Path] = (), unequal: bool = False, languages: bool = False
) -> Report:
    """Reports on runs.

    Args:
        runs: their folders.
        against: folders of runs that each of them is compared with.
        unequal: whether to compare runs whose numbers of kept parameters differ by more than 5 %, or are not known.
        languages: whether to show each language below the mean of all.

    Raises:
        UserError: for folders that cannot be read, and for runs that cannot be compared: of unequal budgets, without a
            ledger, or scored on different examples or languages.
    """
    folders = [Path(path) for path in (*runs, *against)]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UserError("a run is named twice: name each folder once")
    names = [folder.resolve().name for folder in folders]
    names = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    read = [read_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    for one, other in combinations(read, 2):
        _check_sizes(one, other)
    pairs = [*product(read[: len(runs)], read[len(runs) :])]
    smoke = [f"{run.path} is a smoke run: nothing in it means anything." for run in read if is_smoke(run.path)]
    notes = [*smoke, ABOUT_SCORES]
    for run, other in pairs:
        notes += _check_budgets(run, other, unequal)
    scores = [
        row
        for run in read
        for measure, sizes in run.sizes.items()
        for language, names in groups(sizes, languages).items()
        for row in score_rows(run, measure, names, language)
    ]
    notes += suite_notes(read[: len(runs)])
    differences = _differences(pairs, languages)
    if differences:
        notes.append(ABOUT_DIFFERENCES)
    return Report(read, _in_order(scores), _in_order(differences), notes)


def _in_order(rows):
    """By task, the mean of languages first."""
    order = [*dict.fromkeys((row.task, row.metric) for row in rows)]
    return sorted(rows, key=lambda row: (order.index((row.task, row.metric)), row.language != MEAN, row.language))


def _differences(pairs, languages):
    """Rows of what both runs of a pair have; rows of tasks are one family of tests, rows of languages another."""
    tasks: list[DifferenceRow] = []
    details: list[DifferenceRow] = []
    for run, other in pairs:
        shared = [
            (measure, system)
            for measure in run.values
            for system in dict.fromkeys([*run.systems(measure), *other.systems(measure)])
            if system in run.values[measure] and system in other.values.get(measure, {})
            if not _is_baseline_of_both(system, run.values[measure][system], other.values[measure][system])
        ]
        if not shared:
            raise UserError(f"{_unlike(run, other)}: there is nothing to compare")
        for measure, system in shared:
            if run.sizes[measure].keys() != other.sizes[measure].keys():
                raise UserError(f"{run.path} and {other.path} were scored on {measure.task} in different languages")
            of_task, *of_languages = (
                compare(run, other, measure, system, names, language)
                for language, names in groups(run.sizes[measure], languages).items()
            )
            tasks.append(of_task)
            details += of_languages
    return [*adjusted(tasks), *adjusted(details)]


def _unlike(run, other):
    """Why two runs share nothing that could be compared."""
    measure = next((each for each in run.values if each in other.values), None)
    if measure is None:
        return f"{run.path} and {other.path} have no task in common"
    mine, theirs = (", ".join(each.systems(measure)) or "baselines" for each in (run, other))
    return f"{run.path} has scored {mine} on {measure.task} and {other.path} {theirs}"


def _is_baseline_of_both(system, one, other):
    """Whether a system is a baseline of a task of one's own: without seeds, and scored alike in both runs."""
    has_seeds = any(seed is not None for seeds in one.values() for seed in seeds)
    return system not in ENCODERS and one == other and not has_seeds


def _check_sizes(run, other):
    for measure, sizes in run.sizes.items():
        for language, n in sizes.items():
            others = other.sizes.get(measure, {}).get(language, n)
            if n != others:
                where = f"{measure.task} in {language}"
                raise UserError(f"{run.path} has {n:,} examples of {where} and {other.path} {others:,}")


def _check_budgets(run, other, unequal):
    unknown = next((each.path for each in (run, other) if each.kept is None), None)
    if unknown is not None:
        found = f"{unknown} has no ledger.json, so its kept parameters cannot be compared"
        if not unequal:
            raise UserError(f"{found}; compare its scores anyway with --unequal")
        return [f"Unknown budgets: {found}."]
    if max(run.kept, other.kept) <= SAME_BUDGET * min(run.kept, other.kept):
        return []
    found = f"{run.path} keeps {run.kept:,} parameters and {other.path} {other.kept:,}"
    if not unequal:
        raise UserError(f"{found}: these budgets are unequal; compare them anyway with --unequal")
    return [f"Unequal budgets: {found}."]
